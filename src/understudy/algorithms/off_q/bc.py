"""Behavioral cloning: supervised learning of the expert's action from the expert's state.

It matches off-Q moments: the learner is asked for actions on the demonstrations' states and never sees the
consequences, so an error compounds as O(εT²) (section 4.3). It is not a game: where AdVIL looks for the moment function
f that tells the two sides apart, behavioral cloning minimises one fixed loss ℓ_BC.

    Input: demonstrations D_E, policy class Π
    1. for each gradient step:
    2.     draw a minibatch (s, a) ~ D_E
    3.     π ← π − η ∇_π mean ℓ(π, s, a)

with, in coordinates where states are standardised with D_E and continuous actions lie in [-1, 1],

    squared error      ℓ = ‖π(s) − a‖²              a deterministic policy (under tanh): the conditional mean
    log-likelihood     ℓ = −log π(a | s)            a Gaussian policy under tanh
    cross-entropy      ℓ = −log π(a | s)            a categorical policy, for discrete actions

Reference: Pomerleau, "ALVINN: An Autonomous Land Vehicle in a Neural Network" (1989); Table 7 of the paper for the
settings it shares (no entropy bonus, no weight decay, 256 × 2 ReLU).

Deviations: the paper takes the `imitation` package's implementation, a log-likelihood loss with batches of 32 and no
weight decay; here the default for continuous actions is the squared error on batches of 256, which is steadier and
needs no width to be learned. Actions pass through tanh, weights decay, and an exponential average of them is handed
over: docs/bc.md has what each does on the paper's tasks, and each can be switched off.
"""

from typing import ClassVar, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.core.errors import (
    SettingError,
    check_choice,
    check_fraction,
    check_layers,
    check_not_negative,
    check_positive,
    check_whole,
)
from understudy.core.types import Dataset, Discrete, Info, RoundData, Spec, Transition
from understudy.game import Algorithm, Card
from understudy.game.players import Averaged, Player, averaging, gradient, repeat, side_by_side
from understudy.policies import Carry, Categorical, Deterministic, Normalized, Policy, ensemble
from understudy.policies.gaussian import Gaussian, NetworkPolicy
from understudy.policies.networks import Activation
from understudy.policies.normalization import Normalization


class BCState(NamedTuple):
    policy: NetworkPolicy
    """The members, stacked along the leading axis of their arrays."""
    normalization: Normalization
    memory: Averaged


class BC(Algorithm):
    """Behavioral cloning: fit the expert's actions on the expert's states."""

    card: ClassVar[Card] = Card(
        name="bc",
        title="Behavioral cloning",
        moments="off-Q",
        solver="-",
        needs=("demonstrations",),
        actions=("continuous", "discrete"),
        collects="nothing",
        reference="Pomerleau 1989",
    )

    loss: Literal["squared", "likelihood"] = eqx.field(static=True, default="squared")
    """Continuous actions: squared error, or log-likelihood under a tanh-Gaussian. Discrete: always cross-entropy."""
    lr: float = 3e-4
    """Adam's learning rate η."""
    decay: bool = eqx.field(static=True, default=False)
    """Let the learning rate fall to zero along a half cosine."""
    weight_decay: float = 0.1
    """Decay of the weights, decoupled from Adam."""
    squash: bool = eqx.field(static=True, default=True)
    """Continuous actions: pass the network's output through tanh. (The likelihood's policy always does.)"""
    ema_decay: float = 0.999
    """Decay of the average of weights that is handed over; 0 hands over the last ones."""
    batch_size: int = eqx.field(static=True, default=256)
    """Steps in a minibatch."""
    rounds: int = eqx.field(static=True, default=100)
    """Rounds of training; a round is a line of the metrics."""
    gradient_steps: int = eqx.field(static=True, default=500)
    """Gradient steps a round."""
    ensemble_size: int = eqx.field(static=True, default=1)
    """Networks, each with its own start and minibatches, whose actions are averaged."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers."""
    activation: Activation = eqx.field(static=True, default="relu")
    """The nonlinearity between layers."""

    def __check_init__(self) -> None:
        check_choice(("squared", "likelihood"), loss=self.loss)
        check_choice(get_args(Activation), activation=self.activation)
        check_positive(lr=self.lr)
        check_not_negative(weight_decay=self.weight_decay)
        check_fraction(ema_decay=self.ema_decay)
        check_whole(
            1,
            batch_size=self.batch_size,
            rounds=self.rounds,
            gradient_steps=self.gradient_steps,
            ensemble_size=self.ensemble_size,
        )
        check_layers(hidden=self.hidden)
        if self.ensemble_size > 1 and self.loss == "likelihood":
            raise SettingError(
                f"members is {self.ensemble_size}: a likelihood has no mean of several policies, use squared"
            )

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> BCState:
        def member(k: Key[Array, ""]) -> NetworkPolicy:
            outputs = spec.action.n if isinstance(spec.action, Discrete) else spec.action.shape[0]
            shape = (spec.obs_size, outputs, self.hidden, self.activation)
            if isinstance(spec.action, Discrete):
                return Categorical.init(k, *shape, reads=spec.policy_obs)
            if self.loss == "likelihood":
                return Gaussian.init(k, *shape, reads=spec.policy_obs)
            return Deterministic.init(k, *shape, squash=self.squash, reads=spec.policy_obs)

        policy = jax.lax.map(member, jax.random.split(key, self.ensemble_size))
        return BCState(policy, Normalization.fit(spec, demonstrations), self._player().init(policy))

    def update(self, state: BCState, data: RoundData, key: Key[Array, ""]) -> tuple[BCState, Info]:
        def loss(policy: Policy, k: Key[Array, ""]) -> Float[Array, ""]:
            batch = state.normalization.encode(data.demonstrations.sample(k, (self.batch_size,)))  # line 2
            return jax.vmap(ell, (None, 0))(policy, batch).mean()

        policy, memory, value = self._player().move(key, state.policy, state.memory, loss)  # lines 1 and 3
        return state._replace(policy=policy, memory=memory), Info({"loss": value})

    def policy(self, state: BCState) -> Policy:
        return Normalized(ensemble(state.memory.average), state.normalization)

    def _player(self) -> Player:
        schedule = optax.cosine_decay_schedule(self.lr, self.rounds * self.gradient_steps) if self.decay else self.lr
        optimizer = optax.adamw(schedule, weight_decay=self.weight_decay)
        return repeat(side_by_side(averaging(gradient(optimizer), self.ema_decay)), self.gradient_steps)


def ell(policy: Policy, example: Transition) -> Float[Array, ""]:
    """ℓ_BC at one (s, a), by the kind of policy."""
    carry = Carry(example.t, jnp.zeros_like(example.t))
    if isinstance(policy, Deterministic):
        return jnp.sum(jnp.square(policy.mode(carry, example.obs) - example.act))
    return -policy.log_prob(carry, example.obs, example.act)
