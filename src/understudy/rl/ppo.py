"""Proximal policy optimisation: the policy player that learns from its own last steps alone.

It needs no replay: a turn's steps are weighed by how much better they went than expected, the policy moves towards the
better ones, and no further than a small change of their probabilities. One turn, on the steps (s_t, a_t, r_t, s_{t+1})
of the policy π_old that played them, environment by environment:

    1. δ_t = r_t + γ (c_t V(s_{t+1}) + v_t) − V(s_t)
    2. A_t = δ_t + γ λ (1 − last_t) A_{t+1},  R_t = A_t + V(s_t)
    3. for each of some epochs, for each minibatch of the shuffled steps, with A normalised over it:
    4.     ρ = π(a | s) / π_old(a | s)
    5.     L = E [ −min(ρ A, clip(ρ, 1 − ε, 1 + ε) A) ] + w_v E (V(s) − R)² − w_e E H(π(s))
    6.     (π, V) ← (π, V) − η ∇L, the gradient clipped to a global norm

c is 1 where the next state's value counts and v what an absorbing state is worth where the step ends in one
(`rl.base.Batch`). At a time limit the record ends (last) and the value of what would have come counts (c = 1): line 1
bootstraps, line 2 cuts the trace. So too at the end of the turn.

Reference: Schulman et al., "Proximal Policy Optimization Algorithms" (2017), and "High-Dimensional Continuous Control
Using Generalized Advantage Estimation" (2016) for lines 1 and 2; the defaults are Stable-Baselines3's.

Deviations: continuous actions are drawn from a Gaussian under tanh whose width depends on the state; its entropy has no
closed form and is estimated at fresh draws. Weights start uniform, the policy's last layer a hundredth of that, so that
the first policy is the same everywhere. What is left of the shuffled steps after the last whole minibatch waits for the
next epoch.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from understudy.core.errors import (
    check_choice,
    check_fraction,
    check_layers,
    check_not_negative,
    check_positive,
    check_share,
    check_whole,
)
from understudy.core.types import Discrete, Spec
from understudy.policies import Categorical, start
from understudy.policies.gaussian import Gaussian
from understudy.policies.networks import MLP
from understudy.rl.base import Batch, Experience, RLPlayer
from understudy.rl.updates import LR_SCHEDULES, LrSchedule, descend, entropy, rate

Drawing = Gaussian | Categorical


class PPOState(NamedTuple):
    actor: Drawing
    value: MLP
    """V(s)."""
    memory: optax.OptState


class Minibatch(NamedTuple):
    """Steps with what does not change in a turn."""

    obs: Float[Array, "n obs"]
    act: Array
    log_prob: Float[Array, " n"]
    """log π_old(a | s)."""
    advantage: Float[Array, " n"]
    outcome: Float[Array, " n"]
    """R, what V(s) should have said."""


class PPO(RLPlayer):
    """Proximal policy optimisation, for continuous and discrete actions."""

    lr: float = 3e-4
    """Adam's learning rate, η."""
    lr_schedule: LrSchedule = eqx.field(static=True, default="constant")
    """Whether the learning rate stays or falls to 0 along a line."""
    discount: float = 0.99
    """γ."""
    trace: float = 0.95
    """How far an advantage looks ahead before it trusts the value, λ."""
    clip: float = 0.2
    """How far the ratio of probabilities may move from 1 before it stops counting, ε."""
    epochs: int = eqx.field(static=True, default=10)
    """Passes over a turn's steps."""
    minibatch: int = eqx.field(static=True, default=64)
    """Steps in a minibatch, at most."""
    value_weight: float = 0.5
    """Weight of the value's squared error, w_v."""
    entropy_weight: float = 0.0
    """Weight of the policy's entropy, w_e."""
    max_norm: float = 0.5
    """Largest norm of the gradient."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of policy and value, under tanh."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr, clip=self.clip, max_norm=self.max_norm)
        check_not_negative(value_weight=self.value_weight, entropy_weight=self.entropy_weight)
        check_fraction(discount=self.discount)
        check_share(trace=self.trace)
        check_choice(LR_SCHEDULES, lr_schedule=self.lr_schedule)
        check_whole(1, epochs=self.epochs, minibatch=self.minibatch)
        check_layers(hidden=self.hidden)

    def init(self, key: Key[Array, ""], spec: Spec) -> PPOState:
        actor_key, value_key = jax.random.split(key)
        several = isinstance(spec.action, Discrete)
        outputs = spec.action.n if isinstance(spec.action, Discrete) else 2 * spec.action.shape[0]
        net = MLP.init(actor_key, spec.obs_size, self.hidden, outputs, "tanh", reads=spec.policy_obs, init="uniform")
        net = eqx.tree_at(lambda n: (n.weights[-1], n.biases[-1]), net, replace_fn=lambda x: 0.01 * x)
        actor = Categorical(net) if several else Gaussian(net, log_std_min=-20.0, log_std_max=2.0, bound="clip")
        value = MLP.init(value_key, spec.obs_size, self.hidden, 1, "tanh", init="uniform")
        return PPOState(actor, value, self._optimizer(self.lr).init((actor, value)))

    def improve(
        self, state: PPOState, experience: Experience, progress: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[PPOState, dict[str, Float[Array, ""]]]:
        shuffle_key, step_key = jax.random.split(key)
        optimizer = self._optimizer(rate(self.lr, self.lr_schedule, progress))
        steps = self.weigh(state, experience.new_steps, experience.last)
        count = steps.advantage.shape[0]
        size = min(self.minibatch, count)
        orders = jax.vmap(lambda k: jax.random.permutation(k, count))(jax.random.split(shuffle_key, self.epochs))
        rows = orders[:, : count // size * size].reshape(-1, size)

        def step(state: PPOState, drawn: tuple[Array, Array]) -> tuple[PPOState, dict[str, Float[Array, ""]]]:
            row, k = drawn
            batch = jax.tree.map(lambda x: x[row], steps)
            gradient, metrics = jax.grad(self.loss, has_aux=True)((state.actor, state.value), batch, k)
            (actor, value), memory = descend(  # line 6
                optimizer, gradient, (state.actor, state.value), state.memory
            )
            return PPOState(actor, value, memory), metrics

        state, history = jax.lax.scan(step, state, (rows, jax.random.split(step_key, rows.shape[0])))  # line 3
        return state, {name: values.mean() for name, values in history.items()}

    def weigh(self, state: PPOState, new_steps: Batch, last: Bool[Array, "envs time"]) -> Minibatch:
        """All of a turn's steps, one after the other, with what the policy and the value that played them say."""
        value, following = state.value(new_steps.obs)[..., 0], state.value(new_steps.next_obs)[..., 0]
        outlook = self.discount * (new_steps.continues * following + new_steps.after)
        advantage = jax.vmap(advantages, (0, 0, None))(
            new_steps.reward + outlook - value,  # line 1
            last,
            self.discount * self.trace,
        )
        log_prob = state.actor.log_prob(start(), new_steps.obs, new_steps.act)
        steps = Minibatch(new_steps.obs, new_steps.act, log_prob, advantage, advantage + value)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)

    def loss(
        self, strategy: tuple[Drawing, MLP], batch: Minibatch, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
        """L of line 5, and its parts."""
        actor, value = strategy
        advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
        ratio = jnp.exp(actor.log_prob(start(), batch.obs, batch.act) - batch.log_prob)  # line 4
        policy_loss = surrogate(ratio, advantage, self.clip).mean()
        value_loss = jnp.square(value(batch.obs)[..., 0] - batch.outcome).mean()
        uncertainty = entropy_of(actor, batch.obs, key).mean()
        loss = policy_loss + self.value_weight * value_loss - self.entropy_weight * uncertainty
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": uncertainty,
            "clipped": (jnp.abs(ratio - 1) > self.clip).mean(),
        }

    def policy(self, state: PPOState) -> Drawing:
        return state.actor

    def _optimizer(self, lr: float | Array) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.max_norm), optax.adam(lr, eps=1e-5))


def advantages(
    surprises: Float[Array, " time"], last: Bool[Array, " time"], decay: float | Array
) -> Float[Array, " time"]:
    """A_t = δ_t + γ λ (1 − last_t) A_{t+1} along one environment's steps, with γ λ the decay."""

    def back(ahead: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        surprise, ends = at
        advantage = surprise + decay * jnp.where(ends, 0, ahead)
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros(()), (surprises, last), reverse=True)[1]  # line 2


def surrogate(ratio: Float[Array, "..."], advantage: Float[Array, "..."], clip: float | Array) -> Float[Array, "..."]:
    """−min(ρ A, clip(ρ, 1 − ε, 1 + ε) A)."""
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def entropy_of(actor: Drawing, obs: Float[Array, "n obs"], key: Key[Array, ""]) -> Float[Array, " n"]:
    """The policy's entropy in each state: exact where actions are discrete, else −log π at a fresh draw."""
    if isinstance(actor, Categorical):
        return entropy(actor.net(obs))
    size = actor.net.biases[-1].shape[-1] // 2
    return -actor.draw_from(obs, jax.random.normal(key, (obs.shape[0], size)))[1]
