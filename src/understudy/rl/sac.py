"""Soft actor-critic: the policy player of continuous actions, learning from everything that was ever seen.

The policy maximises reward plus α times its entropy. Two critics estimate what an action is worth under it, entropy
included, and the smaller of the two is believed, since the policy seeks out what is overestimated. α is a price: it is
set so that the entropy comes to a target. One gradient step, on a minibatch (s, a, r, s'):

    1. y = r + γ (c · (min_i Q̄_i(s', a') − α log π(a' | s')) + v),  a' ~ π(s')
    2. Q_i ← Q_i − η ∇ ½ E (Q_i(s, a) − y)²,  i = 1, 2
    3. π ← π − η ∇ E [ α log π(x | s) − min_i Q_i(s, x) ],  x = tanh(μ(s) + σ(s) ξ)
    4. log α ← log α − η ∇ ( −log α · E [ log π(x | s) + H ] )
    5. Q̄_i ← (1 − τ) Q̄_i + τ Q_i

c is 1 where the next state's value counts and v what an absorbing state is worth where the step ends in one
(`rl.base.Batch`), H the target entropy. Lines 1 and 3 take α from before line 4, and line 1 the policy from before
line 3; line 3 takes the critics that line 2 has moved.

Reference: Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (2018), with the defaults of Table 10 of the
paper, in the order and with the initialisation of Stable-Baselines3.

With `sde`, what is played has noise that depends on the state and stays a while, and σ(s) its width (`gaussians`).

Deviations: line 4 descends by log α, as implementations do, which keeps α positive. A time limit is not an end: c is 1
there.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

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
from understudy.policies.networks import MLP
from understudy.rl.base import Batch, Experience, RLPlayer
from understudy.rl.updates import LR_SCHEDULES, LrSchedule, continuous, descend, rate, twins


class SACState(NamedTuple):
    actor: Squashed
    actor_memory: optax.OptState
    critics: MLP
    """Both, stacked: Q_1 and Q_2 of (s, a)."""
    critics_memory: optax.OptState
    targets: MLP
    """The critics' slow copies, Q̄."""
    log_temperature: Float[Array, ""]
    temperature_memory: optax.OptState


class SAC(RLPlayer):
    """Soft actor-critic, for continuous actions."""

    lr: float = 7.3e-4
    """Adam's learning rate of the policy, the critics and the temperature, η."""
    lr_schedule: LrSchedule = eqx.field(static=True, default="linear")
    """Whether the learning rate stays or falls to 0 along a line."""
    discount: float = 0.98
    """γ."""
    tau: float = 0.02
    """How far the targets move towards the critics in a gradient step, τ."""
    gradient_steps: int = eqx.field(static=True, default=64)
    """Gradient steps a turn."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of policy and critics."""
    temperature: float | None = None
    """What a unit of entropy is worth, α; none: set by the target entropy."""
    initial_temperature: float = 1.0
    """α at the start, where it is set by the target entropy."""
    target_entropy: float | None = None
    """What the policy's entropy is held at, H; none: minus the dimension of the actions."""
    sde: bool = eqx.field(static=True, default=False)
    """Explore by noise that depends on the state and stays a while (`gaussians`); else by new noise in each step."""
    sde_steps: int = eqx.field(static=True, default=64)
    """For how many steps of an episode it stays."""
    sde_log_std: float = -3.0
    """log σ_ij of it at the start."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr, tau=self.tau, initial_temperature=self.initial_temperature)
        check_share(tau=self.tau)
        check_fraction(discount=self.discount)
        check_choice(LR_SCHEDULES, lr_schedule=self.lr_schedule)
        check_whole(1, gradient_steps=self.gradient_steps)
        check_layers(hidden=self.hidden)
        check_switches(self)
        check_whole(1, sde_steps=self.sde_steps)
        check_finite(sde_log_std=self.sde_log_std)
        if self.temperature is not None:
            check_not_negative(temperature=self.temperature)
        if self.target_entropy is not None:
            check_finite(target_entropy=self.target_entropy)

    def init(self, key: Key[Array, ""], spec: Spec) -> SACState:
        actor_key, critics_key = jax.random.split(key)
        size = continuous("SAC", spec.action)
        outputs = size if self.sde else 2 * size
        net = MLP.init(actor_key, spec.obs_size, self.hidden, outputs, reads=spec.policy_obs, init="uniform")
        actor: Squashed = Gaussian(net, log_std_min=-20.0, log_std_max=2.0, bound="clip")
        if self.sde:
            actor = StateDependent.init(net, self.sde_log_std, self.sde_steps)
        critics = twins(critics_key, spec.obs_size + size, self.hidden, 1)
        log_temperature = jnp.log(jnp.asarray(self.initial_temperature, jnp.float32))
        memory = optax.adam(self.lr).init
        return SACState(
            actor,
            memory(actor),
            critics,
            memory(critics),
            jax.tree.map(jnp.copy, critics),  # states are donated: no array may be in one twice
            log_temperature,
            memory(log_temperature),
        )

    def improve(
        self, state: SACState, experience: Experience, progress: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[SACState, dict[str, Float[Array, ""]]]:
        lr = rate(self.lr, self.lr_schedule, progress)

        def step(state: SACState, keys: Key[Array, " 2"]) -> tuple[SACState, dict[str, Float[Array, ""]]]:
            batch = experience.sample(keys[0])
            return self.step(state, batch, jax.random.normal(keys[1], (2, *batch.act.shape)), lr)

        state, history = jax.lax.scan(step, state, jax.random.split(key, (self.gradient_steps, 2)))
        return state, {name: values.mean() for name, values in history.items()}

    def step(
        self, state: SACState, batch: Batch, noise: Float[Array, "2 n act"], lr: float | Array
    ) -> tuple[SACState, dict[str, Float[Array, ""]]]:
        """One gradient step of everything; `noise` is that of the actions at s and at s'."""
        adam = optax.adam(lr)
        temperature = jnp.exp(state.log_temperature) if self.temperature is None else jnp.asarray(self.temperature)
        wanted = target(batch, state.actor, state.targets, temperature, self.discount, noise[1])  # line 1
        (critic_loss, q), gradient = jax.value_and_grad(critics_loss, has_aux=True)(state.critics, batch, wanted)
        critics, critics_memory = descend(adam, gradient, state.critics, state.critics_memory)  # line 2
        (policy_loss, log_prob), gradient = jax.value_and_grad(actor_loss, has_aux=True)(
            state.actor, critics, batch.obs, temperature, noise[0]
        )
        actor, actor_memory = descend(adam, gradient, state.actor, state.actor_memory)  # line 3
        log_temperature, temperature_memory = state.log_temperature, state.temperature_memory
        if self.temperature is None:  # line 4
            entropy = -batch.act.shape[-1] if self.target_entropy is None else self.target_entropy
            gradient = jax.grad(temperature_loss)(log_temperature, log_prob, entropy)
            log_temperature, temperature_memory = descend(adam, gradient, log_temperature, temperature_memory)
        targets = optax.incremental_update(critics, state.targets, self.tau)  # line 5
        metrics = {
            "critic_loss": critic_loss,
            "actor_loss": policy_loss,
            "temperature": temperature,
            "entropy": -log_prob,
            "q": q,
        }
        return SACState(
            actor, actor_memory, critics, critics_memory, targets, log_temperature, temperature_memory
        ), metrics

    def policy(self, state: SACState) -> Squashed:
        return state.actor


def target(
    batch: Batch,
    actor: Squashed,
    targets: MLP,
    temperature: Float[Array, ""],
    discount: float | Array,
    noise: Float[Array, "n act"],
) -> Float[Array, " n"]:
    """y = r + γ (c · (min_i Q̄_i(s', a') − α log π(a' | s')) + v), a' the action that `noise` makes."""
    act, log_prob = actor.draw_from(batch.next_obs, noise)
    value = values(targets, batch.next_obs, act).min(0) - temperature * log_prob
    return batch.reward + discount * (batch.continues * value + batch.after)


def critics_loss(critics: MLP, batch: Batch, wanted: Float[Array, " n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """½ Σ_i E (Q_i(s, a) − y)², and the mean of the critics' values."""
    q = values(critics, batch.obs, batch.act)
    return 0.5 * jnp.square(q - wanted).mean(1).sum(), q.mean()


def actor_loss(
    actor: Squashed,
    critics: MLP,
    obs: Float[Array, "n obs"],
    temperature: Float[Array, ""],
    noise: Float[Array, "n act"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """E [ α log π(x | s) − min_i Q_i(s, x) ], x the action that `noise` makes, and E log π(x | s)."""
    act, log_prob = actor.draw_from(obs, noise)
    q = values(critics, obs, act).min(0)
    return (temperature * log_prob - q).mean(), log_prob.mean()


def temperature_loss(
    log_temperature: Float[Array, ""], log_prob: Float[Array, ""], entropy: float | Array
) -> Float[Array, ""]:
    """−log α · (E log π(x | s) + H): α grows while the policy's entropy is below H."""
    return -log_temperature * (log_prob + entropy)


def values(critics: MLP, obs: Float[Array, "n obs"], act: Float[Array, "n act"]) -> Float[Array, "2 n"]:
    """Both critics' values of (s, a)."""
    return critics(jnp.concatenate([obs, act], -1))[..., 0]
