"""Proximal policy optimization (PPO), the on-policy player.

It learns only from the steps since its last update. Each step has an advantage: how much better it went than the value
function predicted. The policy makes actions with a positive advantage more likely, within a clipped ratio. One update,
on the steps (s_t, a_t, r_t, s_{t+1}) that the policy π_old collected, environment by environment:

    1. δ_t = r_t + γ (c_t V(s_{t+1}) + v_t) − V(s_t)
    2. A_t = δ_t + γ λ (1 − last_t) A_{t+1},  R_t = A_t + V(s_t)
    3. for each of some epochs, for each minibatch of the shuffled steps, with A normalized over it:
    4.     ρ = π(a | s) / π_old(a | s)
    5.     L = E [ −min(ρ A, clip(ρ, 1 − ε, 1 + ε) A) ] + w_v E (V(s) − R)² − w_e E H(π(s))
    6.     (π, V) ← (π, V) − η ∇L, the gradient clipped to a global norm

c is 1 to bootstrap from the next state, 0 after a terminal step; v is the value of the absorbing state if the step ends
in it, else 0 (`rl.base.Batch`). At a truncation, line 1 bootstraps (c = 1) and line 2 cuts the trace (last = 1). The
same holds at the last of the collected steps.

Reference: Schulman et al., "Proximal Policy Optimization Algorithms" (2017), and "High-Dimensional Continuous Control
Using Generalized Advantage Estimation" (2016) for lines 1 and 2; the defaults are Stable-Baselines3's.

Deviations: continuous actions follow a tanh-Gaussian with a state-dependent σ. Its entropy has no closed form and is
estimated by sampling. Weights are initialised uniformly, and the policy's last layer is scaled by 0.01. An epoch drops
the shuffled steps after the last whole minibatch.
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
from understudy.core.types import Spec
from understudy.policies import Categorical, start
from understudy.policies.gaussian import Gaussian
from understudy.policies.networks import MLP
from understudy.rl.base import Batch, Experience, RLPlayer
from understudy.rl.updates import LR_SCHEDULES, LrSchedule, descend, entropy, learning_rate

StochasticPolicy = Gaussian | Categorical


class PPOState(NamedTuple):
    actor: StochasticPolicy
    value: MLP
    """V(s)."""
    opt_state: optax.OptState


class Minibatch(NamedTuple):
    """Steps with the numbers that stay fixed during an update."""

    obs: Float[Array, "n obs"]
    act: Array
    log_prob: Float[Array, " n"]
    """log π_old(a | s)."""
    advantage: Float[Array, " n"]
    returns: Float[Array, " n"]
    """R, the target of V(s)."""


class PPO(RLPlayer):
    """Proximal policy optimization, for continuous and discrete actions."""

    lr: float = 3e-4
    """Learning rate of Adam, η."""
    lr_schedule: LrSchedule = eqx.field(static=True, default="constant")
    """constant, or linear: decay to 0 over training."""
    discount: float = 0.99
    """Discount factor γ."""
    trace: float = 0.95
    """λ of generalized advantage estimation."""
    clip: float = 0.2
    """Clip range of the probability ratio, ε."""
    epochs: int = eqx.field(static=True, default=10)
    """Passes over the collected steps in an update."""
    minibatch: int = eqx.field(static=True, default=64)
    """Largest minibatch size."""
    value_weight: float = 0.5
    """Weight of the value loss, w_v."""
    entropy_weight: float = 0.0
    """Weight of the entropy bonus, w_e."""
    max_norm: float = 0.5
    """Gradients are clipped to this global norm."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of policy and value function, with tanh activations."""

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
        discrete = spec.num_actions is not None
        outputs = spec.action_size if discrete else 2 * spec.action_size
        net = MLP.init(
            actor_key, spec.obs_size, self.hidden, outputs, "tanh", input_indices=spec.policy_obs, init="uniform"
        )
        net = eqx.tree_at(lambda n: (n.weights[-1], n.biases[-1]), net, replace_fn=lambda x: 0.01 * x)
        actor = Categorical(net) if discrete else Gaussian(net, log_std_min=-20.0, log_std_max=2.0, bound="clip")
        value = MLP.init(
            value_key, spec.obs_size, self.hidden, 1, "tanh", input_indices=spec.critic_obs, init="uniform"
        )
        return PPOState(actor, value, self._optimizer(self.lr).init((actor, value)))

    def improve(
        self, state: PPOState, experience: Experience, progress: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[PPOState, dict[str, Float[Array, ""]]]:
        shuffle_key, step_key = jax.random.split(key)
        optimizer = self._optimizer(learning_rate(self.lr, self.lr_schedule, progress))
        assert experience.new_steps is not None
        assert experience.last is not None
        steps = self.prepare(state, experience.new_steps, experience.last)
        count = steps.advantage.shape[0]
        size = min(self.minibatch, count)
        orders = jax.vmap(lambda k: jax.random.permutation(k, count))(jax.random.split(shuffle_key, self.epochs))
        rows = orders[:, : count // size * size].reshape(-1, size)

        def step(state: PPOState, inputs: tuple[Array, Array]) -> tuple[PPOState, dict[str, Float[Array, ""]]]:
            row, k = inputs
            batch = jax.tree.map(lambda x: x[row], steps)
            gradient, metrics = jax.grad(self.loss, has_aux=True)((state.actor, state.value), batch, k)
            (actor, value), opt_state = descend(  # line 6
                optimizer, gradient, (state.actor, state.value), state.opt_state
            )
            return PPOState(actor, value, opt_state), metrics

        state, metrics = jax.lax.scan(step, state, (rows, jax.random.split(step_key, rows.shape[0])))  # line 3
        return state, {name: values.mean() for name, values in metrics.items()}

    def prepare(self, state: PPOState, new_steps: Batch, last: Bool[Array, "envs time"]) -> Minibatch:
        """All collected steps as one batch, with their advantages, returns and log-probabilities."""
        value, next_value = state.value(new_steps.obs)[..., 0], state.value(new_steps.next_obs)[..., 0]
        future = self.discount * (new_steps.bootstrap * next_value + new_steps.terminal_value)
        advantage = jax.vmap(advantages, (0, 0, None))(
            new_steps.reward + future - value,  # line 1
            last,
            self.discount * self.trace,
        )
        log_prob = state.actor.log_prob(start(), new_steps.obs, new_steps.act)
        steps = Minibatch(new_steps.obs, new_steps.act, log_prob, advantage, advantage + value)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)

    def loss(
        self, networks: tuple[StochasticPolicy, MLP], batch: Minibatch, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
        """L of line 5, and its terms as metrics."""
        actor, value = networks
        advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
        ratio = jnp.exp(actor.log_prob(start(), batch.obs, batch.act) - batch.log_prob)  # line 4
        policy_loss = surrogate(ratio, advantage, self.clip).mean()
        value_loss = jnp.square(value(batch.obs)[..., 0] - batch.returns).mean()
        mean_entropy = policy_entropy(actor, batch.obs, key).mean()
        loss = policy_loss + self.value_weight * value_loss - self.entropy_weight * mean_entropy
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": mean_entropy,
            "clipped": (jnp.abs(ratio - 1) > self.clip).mean(),
        }

    def policy(self, state: PPOState) -> StochasticPolicy:
        return state.actor

    def _optimizer(self, lr: float | Array) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.max_norm), optax.adam(lr, eps=1e-5))


def advantages(
    td_errors: Float[Array, " time"], last: Bool[Array, " time"], decay: float | Array
) -> Float[Array, " time"]:
    """A_t = δ_t + γ λ (1 − last_t) A_{t+1} along the steps of one environment. `decay` is γ λ."""

    def step(following: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        td_error, is_last = inputs
        advantage = td_error + decay * jnp.where(is_last, 0, following)
        return advantage, advantage

    return jax.lax.scan(step, jnp.zeros(()), (td_errors, last), reverse=True)[1]  # line 2


def surrogate(ratio: Float[Array, "..."], advantage: Float[Array, "..."], clip: float | Array) -> Float[Array, "..."]:
    """−min(ρ A, clip(ρ, 1 − ε, 1 + ε) A)."""
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def policy_entropy(actor: StochasticPolicy, obs: Float[Array, "n obs"], key: Key[Array, ""]) -> Float[Array, " n"]:
    """The policy's entropy in each state: exact for discrete actions, else −log π of a new sample."""
    if isinstance(actor, Categorical):
        return entropy(actor.net(obs))
    size = actor.net.biases[-1].shape[-1] // 2
    return -actor.draw_from(obs, jax.random.normal(key, (obs.shape[0], size)))[1]
