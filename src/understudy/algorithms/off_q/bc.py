"""Behavioral cloning: supervised learning of the expert's action from the expert's state.

It matches off-Q moments: the learner's actions are compared with the expert's in the demonstrated states. The learner
never sees the consequences of its actions, so errors compound as O(εT²) (section 4.3). It is not a game: AdVIL searches
for a moment function f that separates the two sides, behavioral cloning minimises one fixed loss ℓ_BC.

    Input: demonstrations D_E, policy class Π
    1. for each gradient step:
    2.     draw a minibatch (s, a) ~ D_E
    3.     π ← π − η ∇_π mean ℓ(π, s, a)

States are standardized with D_E and continuous actions are scaled to [-1, 1]. The loss is one of

    squared error      ℓ = ‖π(s) − a‖²              a deterministic policy (with tanh): the conditional mean
    log-likelihood     ℓ = −log π(a | s)            a tanh-Gaussian policy, or a mixture of clipped Gaussians
    cross-entropy      ℓ = −log π(a | s)            a categorical policy, for discrete actions

A mixture (`components`) is for an expert that acts in several ways in the same state, where the conditional mean may be
an action that the expert never takes. It matches the distribution of the expert's actions there; errors compound as
before.

Reference: Pomerleau, "ALVINN: An Autonomous Land Vehicle in a Neural Network" (1989); Table 7 of the paper for the
settings it shares (no entropy bonus, no weight decay, 256 × 2 ReLU).

Deviations: the paper uses the `imitation` package. The default differs from its settings there in

    setting                    default    the paper's runs
    loss                       squared    likelihood of a Gaussian without tanh
    batch_size                 256        32
    lr                         3e-4       1e-3
    weight_decay               0.1        0
    squash                     True       no tanh on actions
    ema_decay                  0.999      0: the last weights
    rounds × gradient_steps    50,000     500,000 (Table 6: 100,000)

and states are standardized and actions scaled, which the package does not do. So there is no preset `paper`: no
settings here are exactly the paper's. The squared error is more stable and does not learn a standard deviation.
docs/bc.md measures tanh, weight decay and averaging on the paper's tasks; each can be switched off.
"""

from typing import Any, ClassVar, Literal, NamedTuple, get_args

import equinox as eqx
import jax
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
from understudy.core.types import Dataset, Info, MultiDiscrete, RoundData, Spec
from understudy.game import QUICK, Algorithm, Card
from understudy.game.losses import cloning_loss
from understudy.game.players import Averaged, Player, averaging, gradient, repeat, side_by_side
from understudy.policies import (
    NetworkPolicy,
    Normalized,
    Policy,
    deterministic_policy,
    ensemble,
    independent_policy,
    mixture_policy,
    stochastic_policy,
)
from understudy.policies.networks import Activation
from understudy.policies.normalization import Normalization


class BCState(NamedTuple):
    policy: NetworkPolicy
    """The ensemble members, stacked along the leading axis."""
    normalization: Normalization
    memory: Averaged


class BC(Algorithm):
    """Behavioral cloning: supervised learning of the expert's actions in the demonstrated states."""

    card: ClassVar[Card] = Card(
        name="bc",
        title="Behavioral cloning",
        moments="off-Q",
        solver="-",
        needs=("demonstrations",),
        actions=("continuous", "discrete"),
        collects="nothing",
        reference="Pomerleau 1989",
        fixed=True,
    )
    has_critic: ClassVar[bool] = False
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        QUICK: {"rounds": 20, "hidden": (64, 64)},
        "mixture": {"loss": "likelihood", "components": 10, "weight_decay": 0.0},
    }
    multi_discrete: ClassVar[bool] = True
    small: ClassVar[dict[str, Any]] = {"rounds": 2, "gradient_steps": 2, "batch_size": 8, "hidden": (8,)}

    loss: Literal["squared", "likelihood"] = eqx.field(static=True, default="squared")
    """Loss for continuous actions: squared error, or log-likelihood of a tanh-Gaussian. Discrete: cross-entropy."""
    components: int = eqx.field(static=True, default=1)
    """Gaussians in the policy's mixture, for continuous actions and the likelihood loss."""
    lr: float = 3e-4
    """Learning rate of Adam, η."""
    decay: bool = eqx.field(static=True, default=False)
    """Decay the learning rate to zero with a cosine schedule."""
    weight_decay: float = 0.1
    """Decoupled weight decay (AdamW)."""
    squash: bool = eqx.field(static=True, default=True)
    """Continuous actions: apply tanh to the network's output. (Always on with the likelihood loss.)"""
    ema_decay: float = 0.999
    """Decay of the moving average of weights that is returned (0: return the last weights)."""
    batch_size: int = eqx.field(static=True, default=256)
    """Minibatch size."""
    rounds: int = eqx.field(static=True, default=100)
    """Training rounds. Metrics are logged once a round."""
    gradient_steps: int = eqx.field(static=True, default=500)
    """Gradient steps per round."""
    ensemble_size: int = eqx.field(static=True, default=1)
    """Networks in the ensemble; their actions are averaged."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers."""
    activation: Activation = eqx.field(static=True, default="relu")
    """Activation function."""

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
            components=self.components,
        )
        check_layers(hidden=self.hidden)
        if self.ensemble_size > 1 and self.loss == "likelihood":
            raise SettingError(
                f"ensemble_size is {self.ensemble_size} and loss is 'likelihood': choose loss='squared' or one network"
            )
        if self.components > 1 and self.loss == "squared":
            raise SettingError(
                f"components is {self.components} and loss is 'squared': a mixture is trained with loss='likelihood'"
            )

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> BCState:
        space = spec.action
        if isinstance(space, MultiDiscrete) and self.ensemble_size > 1:
            raise SettingError(f"ensemble_size is {self.ensemble_size}: multi-discrete actions need one network")

        def member(k: Key[Array, ""]) -> NetworkPolicy:
            if isinstance(space, MultiDiscrete):
                return independent_policy(k, spec, space, self.hidden, self.activation)
            if self.components > 1:
                return mixture_policy(k, spec, self.hidden, self.components, self.activation)
            if self.loss == "likelihood":
                return stochastic_policy(k, spec, self.hidden, self.activation)
            return deterministic_policy(k, spec, self.hidden, self.activation, squash=self.squash)

        policy = jax.lax.map(member, jax.random.split(key, self.ensemble_size))
        return BCState(policy, Normalization.fit(spec, demonstrations), self._player().init(policy))

    def update(self, state: BCState, data: RoundData, key: Key[Array, ""]) -> tuple[BCState, Info]:
        def loss(policy: Policy, k: Key[Array, ""]) -> Float[Array, ""]:
            batch = state.normalization.encode(data.demonstrations.sample(k, (self.batch_size,)))  # line 2
            return jax.vmap(cloning_loss, (None, 0))(policy, batch).mean()

        policy, memory, value = self._player().move(key, state.policy, state.memory, loss)  # lines 1 and 3
        return state._replace(policy=policy, memory=memory), Info({"loss": value})

    def policy(self, state: BCState) -> Policy:
        return Normalized(ensemble(state.memory.average), state.normalization)

    def _player(self) -> Player:
        schedule = optax.cosine_decay_schedule(self.lr, self.rounds * self.gradient_steps) if self.decay else self.lr
        optimizer = optax.adamw(schedule, weight_decay=self.weight_decay)
        return repeat(side_by_side(averaging(gradient(optimizer), self.ema_decay)), self.gradient_steps)
