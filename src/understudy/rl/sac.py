"""Soft actor-critic (SAC), the off-policy player for continuous actions.

The policy maximises reward plus α times its entropy. Two critics estimate the value of an action, entropy included. The
smaller of the two is used, because the policy seeks out overestimated actions. The temperature α is adjusted to hold
the entropy at a target. One gradient step, on a minibatch (s, a, r, s') from the replay buffer:

    1. y = r + γ (c · (min_i Q̄_i(s', a') − α log π(a' | s')) + v),  a' ~ π(s')
    2. Q_i ← Q_i − η ∇ ½ E (Q_i(s, a) − y)²,  i = 1, 2
    3. π ← π − η_π ∇ ( E [ α log π(x | s) − min_i Q_i(s, x) ] + λ q̄ C(π) ),  x = tanh(μ(s) + σ(s) ξ)
    4. log α ← log α − η ∇ ( −log α · E [ log π(x | s) + H ] )
    5. Q̄_i ← (1 − τ) Q̄_i + τ Q_i

η_π is `policy_lr`, or η, and follows the same schedule. c is 1 to bootstrap from the next state, 0 after a terminal
step; v is the value of the absorbing state if the step ends in it, else 0 (`rl.base.Batch`). H is the target entropy.
Lines 1 and 3 use α from before line 4, line 1 uses the policy from before line 3, and line 3 uses the critics from
after line 2.

Reference: Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (2018), with the defaults of Table 10 of the
paper, in the order and with the initialisation of Stable-Baselines3.

C(π) is the cloning error on the minibatch's demonstrated steps (`rl.cloning`), q̄ the mean of |Q|, so that λ, 0 by
default, does not depend on the unit of rewards. It pulls the policy towards the demonstrated actions. The first
`critic_warmup` gradient steps, but at most a tenth of training, are lines 1, 2 and 5 alone: a policy that starts as a
clone is not moved by critics that have learned nothing. With `layer_norm` the critics normalize their hidden layers,
which bounds their values far from the data (Ball et al., "Efficient Online Reinforcement Learning with Offline Data",
2023).

With `bound_values` the value of the next state in line 1 is at most what the rewards allow, B + α d log 2 / (1 − γ): B
bounds the discounted sum of rewards, if the caller knows it (`Batch.value_bound`), and d log 2 is the largest entropy
of d actions in [-1, 1]. True values are never above it, so only errors are cut; those of critics that explode feed on
themselves through line 1.

With `optimism` κ, min_i Q_i in lines 1 and 3 is mean_i Q_i + κ min(std_i Q_i, clip) over `critics` (`rl.optimism`).

With `sde` the acting policy uses state-dependent exploration (gSDE), and σ(s) is the standard deviation of its noise
(`policies.gaussian`).

Deviations: line 4 descends in log α, as most implementations do, which keeps α positive. Truncation is not termination:
c is 1 there.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from understudy.core.errors import (
    check_choice,
    check_finite,
    check_fraction,
    check_layers,
    check_not_negative,
    check_positive,
    check_share,
    check_switches,
    check_whole,
)
from understudy.core.types import Spec
from understudy.policies.gaussian import Gaussian, Squashed, StateDependent
from understudy.policies.networks import MLP, NormedMLP
from understudy.rl.base import Batch, Experience, RLPlayer
from understudy.rl.cloning import clone
from understudy.rl.optimism import optimistic
from understudy.rl.sac_losses import actor_loss, critics_loss, target, temperature_loss
from understudy.rl.updates import LR_SCHEDULES, LrSchedule, check_continuous, descend, learning_rate, twins

WARMUP_SHARE = 0.1
"""The largest share of training in which the critics learn alone."""


class SACState(NamedTuple):
    actor: Squashed
    actor_opt_state: optax.OptState
    critics: MLP | NormedMLP
    """Q_1(s, a), Q_2(s, a), ..., stacked."""
    critics_opt_state: optax.OptState
    targets: MLP | NormedMLP
    """Target networks Q̄_i."""
    log_temperature: Float[Array, ""]
    temperature_opt_state: optax.OptState
    steps: Int[Array, ""]
    """Gradient steps so far."""


class SAC(RLPlayer):
    """Soft actor-critic, for continuous actions."""

    lr: float = 7.3e-4
    """Learning rate of Adam, η. The policy may have its own, policy_lr."""
    policy_lr: float | None = None
    """Learning rate of Adam for the policy, η_π. None: lr."""
    lr_schedule: LrSchedule = eqx.field(static=True, default="linear")
    """constant, or linear: decay to 0 over training."""
    discount: float = 0.98
    """Discount factor γ."""
    tau: float = 0.02
    """Polyak averaging rate of the target networks, τ."""
    gradient_steps: int = eqx.field(static=True, default=64)
    """Gradient steps per update."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of policy and critics."""
    temperature: float | None = None
    """Fixed temperature α. None: adjusted to the target entropy."""
    initial_temperature: float = 1.0
    """Initial α, if it is adjusted."""
    target_entropy: float | None = None
    """Target entropy H. None: minus the dimension of the actions."""
    bound_values: bool = eqx.field(static=True, default=False)
    """Clip values to what the rewards allow, where that is known: AdRIL's kernels are bounded."""
    layer_norm: bool = eqx.field(static=True, default=False)
    """Layer normalization in the critics, which bounds their values far from the data."""
    cloning_weight: float = 0.0
    """Weight λ of the cloning error on demonstrated steps in the policy's loss, relative to the mean of |Q|."""
    critic_warmup: int = eqx.field(static=True, default=0)
    """Gradient steps of the critics alone, before policy and temperature learn; at most a tenth of training."""
    critics: int = eqx.field(static=True, default=2)
    """Critics in the ensemble."""
    optimism: float | None = None
    """Weight κ of the critics' standard deviation, added to their mean. None: the smallest critic."""
    optimism_clip: float = 0.5
    """Optimism: largest standard deviation that counts, in the unit of values."""
    sde: bool = eqx.field(static=True, default=False)
    """Use state-dependent exploration (gSDE)."""
    sde_steps: int = eqx.field(static=True, default=64)
    """gSDE: steps between redraws of the noise."""
    sde_log_std: float = -3.0
    """gSDE: initial log σ_ij."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr, tau=self.tau, initial_temperature=self.initial_temperature)
        check_share(tau=self.tau)
        check_fraction(discount=self.discount)
        check_choice(LR_SCHEDULES, lr_schedule=self.lr_schedule)
        check_whole(1, gradient_steps=self.gradient_steps)
        check_layers(hidden=self.hidden)
        check_switches(self)
        check_whole(1, sde_steps=self.sde_steps)
        check_whole(0, critic_warmup=self.critic_warmup)
        check_not_negative(cloning_weight=self.cloning_weight)
        check_whole(1 if self.optimism is None else 2, critics=self.critics)
        check_positive(optimism_clip=self.optimism_clip)
        if self.optimism is not None:
            check_not_negative(optimism=self.optimism)
        check_finite(sde_log_std=self.sde_log_std)
        if self.policy_lr is not None:
            check_positive(policy_lr=self.policy_lr)
        if self.temperature is not None:
            check_not_negative(temperature=self.temperature)
        if self.target_entropy is not None:
            check_finite(target_entropy=self.target_entropy)

    def init(self, key: Key[Array, ""], spec: Spec) -> SACState:
        actor_key, critics_key = jax.random.split(key)
        check_continuous("SAC", spec)
        outputs = spec.action_size if self.sde else 2 * spec.action_size
        net = MLP.init(actor_key, spec.obs_size, self.hidden, outputs, input_indices=spec.policy_obs, init="uniform")
        actor: Squashed = Gaussian(net, log_std_min=-20.0, log_std_max=2.0, bound="clip")
        if self.sde:
            actor = StateDependent.init(net, self.sde_log_std, self.sde_steps)
        size = spec.obs_size + spec.action_size
        seen = None if spec.critic_obs is None else (*spec.critic_obs, *range(spec.obs_size, size))
        plain = twins(critics_key, size, self.hidden, 1, seen, self.critics)
        critics = NormedMLP(plain) if self.layer_norm else plain
        log_temperature = jnp.log(jnp.asarray(self.initial_temperature, jnp.float32))
        init = optax.adam(self.lr).init
        return SACState(
            actor,
            init(actor),
            critics,
            init(critics),
            jax.tree.map(jnp.copy, critics),  # states are donated, so no array may appear twice
            log_temperature,
            init(log_temperature),
            jnp.zeros((), jnp.int32),
        )

    def improve(
        self, state: SACState, experience: Experience, progress: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[SACState, dict[str, Float[Array, ""]]]:
        lr = learning_rate(self.lr, self.lr_schedule, progress)

        batch_keys, noise_keys = jax.random.split(key, (self.gradient_steps, 2)).T
        batches = experience.batches(batch_keys)
        noise = jax.vmap(lambda k: jax.random.normal(k, (2, *batches.act.shape[1:])))(noise_keys)

        def step(state: SACState, inputs: tuple[Batch, Array]) -> tuple[SACState, dict[str, Float[Array, ""]]]:
            return self.step(state, *inputs, lr, progress)

        state, metrics = jax.lax.scan(step, state, (batches, noise))
        return state, {name: values.mean() for name, values in metrics.items()}

    def step(
        self, state: SACState, batch: Batch, noise: Float[Array, "2 n act"], lr: float | Array, share: float | Array
    ) -> tuple[SACState, dict[str, Float[Array, ""]]]:
        """One gradient step of policy, critics and temperature. `noise` makes the actions at s and at s'.

        `share` is the share of training that is over.
        """
        y = target(  # line 1
            *(batch, state.actor, state.targets, self.alpha(state), self.discount, noise[1]),
            *(self.bound_values, self.combine),
        )
        return self.step_on(lambda critics: critics_loss(critics, batch, y), state, batch, noise[0], lr, share)

    def step_on(
        self,
        loss: Callable[[Any], tuple[Float[Array, ""], Float[Array, ""]]],
        state: SACState,
        batch: Batch,
        noise: Float[Array, "n act"],
        lr: float | Array,
        share: float | Array,
    ) -> tuple[SACState, dict[str, Float[Array, ""]]]:
        """Lines 2 to 5, with the given loss of the critics, which also returns the mean Q-value."""
        adam, temperature = optax.adam(lr), self.alpha(state)
        policy_adam = adam if self.policy_lr is None else optax.adam(lr * self.policy_lr / self.lr)
        (critic_loss, q), gradient = jax.value_and_grad(loss, has_aux=True)(state.critics)
        critics, critics_opt_state = descend(adam, gradient, state.critics, state.critics_opt_state)  # line 2
        (policy_loss, log_prob), gradient = jax.value_and_grad(actor_loss, has_aux=True)(
            state.actor, critics, batch, temperature, noise, self.cloning_weight, self.combine
        )
        actor, actor_opt_state = descend(policy_adam, gradient, state.actor, state.actor_opt_state)  # line 3
        log_temperature, temperature_opt_state = state.log_temperature, state.temperature_opt_state
        if self.temperature is None:  # line 4
            gradient = jax.grad(temperature_loss)(log_temperature, log_prob, self._entropy(batch.act.shape[-1]))
            log_temperature, temperature_opt_state = descend(adam, gradient, log_temperature, temperature_opt_state)
        if self.critic_warmup:
            old = state.actor, state.actor_opt_state, state.log_temperature, state.temperature_opt_state
            new = actor, actor_opt_state, log_temperature, temperature_opt_state
            warms_up = (state.steps < self.critic_warmup) & (share <= WARMUP_SHARE)
            actor, actor_opt_state, log_temperature, temperature_opt_state = jax.tree.map(
                lambda o, n: jnp.where(warms_up, o, n), old, new
            )
        targets = optax.incremental_update(critics, state.targets, self.tau)  # line 5
        metrics = {
            "critic_loss": critic_loss,
            "actor_loss": policy_loss,
            "temperature": temperature,
            "entropy": -log_prob,
            "q": q,
        }
        return SACState(
            actor,
            actor_opt_state,
            critics,
            critics_opt_state,
            targets,
            log_temperature,
            temperature_opt_state,
            state.steps + 1,
        ), metrics

    def policy(self, state: SACState) -> Squashed:
        return state.actor

    def clone(
        self, state: SACState, sample: Callable[[Key[Array, ""]], Batch], steps: int, key: Key[Array, ""]
    ) -> SACState:
        """The state whose policy is a clone of the steps that `sample` draws; a Gaussian has the target entropy."""
        act = jax.eval_shape(sample, key).act
        return state._replace(actor=clone(state.actor, sample, steps, self._entropy(act.shape[-1]), key))

    def combine(self, q: Float[Array, "k n"]) -> Float[Array, " n"]:
        """The value of an action from those of all critics: the smallest, or their optimistic mean."""
        return q.min(0) if self.optimism is None else optimistic(q, self.optimism, self.optimism_clip)

    def alpha(self, state: SACState) -> Float[Array, ""]:
        """The temperature α."""
        return jnp.exp(state.log_temperature) if self.temperature is None else jnp.asarray(self.temperature)

    def _entropy(self, size: int) -> float | Array:
        """The target entropy of `size` actions."""
        return -float(size) if self.target_entropy is None else self.target_entropy
