"""Soft Q-learning: the policy player of discrete actions, learning from everything that was ever seen.

Of finitely many actions the best policy with entropy is known once Q is: π(a | s) ∝ exp(Q(s, a) / α). So there is no
actor to train. Two networks estimate Q, and the smaller of the two is believed of what follows, since a maximum over
noisy estimates is too large. One gradient step, on a minibatch (s, a, r, s'):

    1. V(s') = α log Σ_b exp(min_i Q̄_i(s', b) / α), no less than −m and no more than m + α log n / (1 − γ)
    2. y = r + γ (c · V(s') + v)
    3. Q_i ← Q_i − η ∇ ½ E (Q_i(s, a) − y)²,  i = 1, 2
    4. log α ← log α − η ∇ ( log α · (E H(π(s)) − h log n) ),  where a target entropy h is given
    5. Q̄_i ← (1 − τ) Q̄_i + τ Q_i

c is 1 where the next state's value counts and v what an absorbing state is worth where the step ends in one
(`rl.base.Batch`); H(π(s)) is the entropy of the policy in s, at most log n for n actions. m is the largest reward, for
ever, where that is known. Demonstrated steps say what the expert's action is worth and nothing of the others, whose
values are extrapolated, and V seeks out the largest: without a bound it may chase its own tail.

The policy is softmax(Q_1 / α), of the first network alone, as TD3's actor follows the first critic alone: the two
differ by noise, and one network is half the work of acting. It is a `Categorical` with α folded into the last layer.
The networks are the policy, so with `Spec.policy_obs` they see no more than it may.

How large α should be. Rewards of an imitation game are about 1/N a step, N trajectories: 0.2 to 0.04 for 5 to 25. The
policy trades α · H a step for reward. With α = 0.005 that is at most 0.0035 for two actions and 0.007 for four, a small
part of what a step in the expert's company earns, over any horizon, since both add up alike. It is also well below what
a wrong action costs, some steps of that company, so the policy is nearly greedy where it matters. With rewards of
another size, an environment's own, set it in proportion; or give `target_entropy`, a share of log n, and α finds it.
Where rewards shrink as training goes on, as AdRIL's do, no fixed α will do: in the end entropy is all that pays.

Reference: Haarnoja et al., "Reinforcement Learning with Deep Energy-Based Policies" (2017); the two networks are those
of Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods" (2018).

Deviations: actions are finitely many, so that V and the policy are exact and no sampler is trained. V has bounds. Line
4 is that of soft actor-critic.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from understudy.core.errors import (
    check_choice,
    check_fraction,
    check_layers,
    check_positive,
    check_share,
    check_whole,
)
from understudy.core.types import Spec
from understudy.policies import Categorical
from understudy.policies.networks import MLP
from understudy.rl.base import Batch, Experience, RLPlayer
from understudy.rl.updates import LR_SCHEDULES, LrSchedule, descend, discrete, entropy, rate, twins


class SoftQState(NamedTuple):
    critics: MLP
    """Both, stacked: Q_1(s, ·) and Q_2(s, ·)."""
    critics_memory: optax.OptState
    targets: MLP
    """The critics' slow copies, Q̄."""
    log_temperature: Float[Array, ""]
    temperature_memory: optax.OptState


class SoftQ(RLPlayer):
    """Soft Q-learning, for discrete actions."""

    lr: float = 5e-4
    """Adam's learning rate of the networks and the temperature, η."""
    lr_schedule: LrSchedule = eqx.field(static=True, default="constant")
    """Whether the learning rate stays or falls to 0 along a line."""
    discount: float = 0.99
    """γ."""
    tau: float = 0.02
    """How far the targets move towards the networks in a gradient step, τ."""
    gradient_steps: int = eqx.field(static=True, default=64)
    """Gradient steps a turn."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of the networks."""
    temperature: float = 0.005
    """What a unit of entropy is worth, α; where there is a target entropy, α at the start."""
    target_entropy: float | None = None
    """What the policy's entropy is held at, as a share of its maximum, log n; none: the temperature stays."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr, tau=self.tau, temperature=self.temperature)
        check_share(tau=self.tau)
        check_fraction(discount=self.discount)
        check_choice(LR_SCHEDULES, lr_schedule=self.lr_schedule)
        check_whole(1, gradient_steps=self.gradient_steps)
        check_layers(hidden=self.hidden)
        if self.target_entropy is not None:
            check_positive(target_entropy=self.target_entropy)
            check_fraction(target_entropy=self.target_entropy)

    def init(self, key: Key[Array, ""], spec: Spec) -> SoftQState:
        critics = twins(key, spec.obs_size, self.hidden, discrete("SoftQ", spec.action), spec.policy_obs)
        log_temperature = jnp.log(jnp.asarray(self.temperature, jnp.float32))
        memory = optax.adam(self.lr).init
        targets: MLP = jax.tree.map(jnp.copy, critics)  # states are donated: no array may be in one twice
        return SoftQState(critics, memory(critics), targets, log_temperature, memory(log_temperature))

    def improve(
        self, state: SoftQState, experience: Experience, progress: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[SoftQState, dict[str, Float[Array, ""]]]:
        lr = rate(self.lr, self.lr_schedule, progress)

        def step(state: SoftQState, k: Key[Array, ""]) -> tuple[SoftQState, dict[str, Float[Array, ""]]]:
            return self.step(state, experience.sample(k), lr)

        state, history = jax.lax.scan(step, state, jax.random.split(key, self.gradient_steps))
        return state, {name: values.mean() for name, values in history.items()}

    def step(
        self, state: SoftQState, batch: Batch, lr: float | Array
    ) -> tuple[SoftQState, dict[str, Float[Array, ""]]]:
        """One gradient step of everything."""
        adam, temperature = optax.adam(lr), self._temperature(state)
        wanted = target(batch, state.targets, temperature, self.discount)  # lines 1 and 2
        (loss, q), gradient = jax.value_and_grad(critics_loss, has_aux=True)(state.critics, batch, wanted)
        critics, critics_memory = descend(adam, gradient, state.critics, state.critics_memory)  # line 3
        uncertainty = entropy(q[0] / temperature).mean()
        log_temperature, temperature_memory = state.log_temperature, state.temperature_memory
        if self.target_entropy is not None:  # line 4
            above = uncertainty - self.target_entropy * jnp.log(q.shape[-1])
            log_temperature, temperature_memory = descend(adam, above, log_temperature, temperature_memory)
        targets = optax.incremental_update(critics, state.targets, self.tau)  # line 5
        metrics = {"critic_loss": loss, "temperature": temperature, "entropy": uncertainty, "q": q.mean()}
        return SoftQState(critics, critics_memory, targets, log_temperature, temperature_memory), metrics

    def policy(self, state: SoftQState) -> Categorical:
        """softmax(Q_1 / α)."""
        temperature, net = self._temperature(state), state.critics
        weights, biases = [weight[0] for weight in net.weights], [bias[0, 0] for bias in net.biases]
        weights[-1], biases[-1] = weights[-1] / temperature, biases[-1] / temperature
        return Categorical(MLP(tuple(weights), tuple(biases), net.activation, net.reads))

    def _temperature(self, state: SoftQState) -> Float[Array, ""]:
        # A fixed one is the player's own, so that a sweep over it is a sweep.
        return jnp.asarray(self.temperature) if self.target_entropy is None else jnp.exp(state.log_temperature)


def target(batch: Batch, targets: MLP, temperature: Float[Array, ""], discount: float | Array) -> Float[Array, " n"]:
    """y = r + γ (c · V(s') + v), V(s) = α log Σ_b exp(min_i Q̄_i(s, b) / α), as far as rewards and entropy can go."""
    q = targets(batch.next_obs).min(0)
    value = temperature * jax.nn.logsumexp(q / temperature, axis=-1)
    value = jnp.clip(value, -batch.most, batch.most + temperature * jnp.log(q.shape[-1]) / (1 - discount))
    return batch.reward + discount * (batch.continues * value + batch.after)


def critics_loss(
    critics: MLP, batch: Batch, wanted: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, "2 n actions"]]:
    """½ Σ_i E (Q_i(s, a) − y)², and the networks' values of all actions."""
    q = critics(batch.obs)
    taken = jnp.take_along_axis(q, batch.act[None, :, None], axis=-1)[..., 0]
    return 0.5 * jnp.square(taken - wanted).mean(1).sum(), q
