"""Inverse soft Q-learning (IQ-Learn): a player without rewards, whose critics are both the reward and its value.

A soft Q-function and its policy determine the reward for which they are optimal: r = Q(s, a) − γ V(s'), the inverse of
the soft Bellman operator. So the game between a reward and a policy becomes one problem in Q,

    max_Q  E_{D_E} [ r ] − E_μ [ V(s) − γ V(s') ] − 1/(4β) E_μ [ r² ]

The first term is the expert's reward. The second is the policy's: along an episode V(s) − γ V(s') telescopes, so that
its mean is (1 − γ) E V(s_0) under any distribution μ of steps that start where the policy starts. The third is the χ²
regulariser, with weight β. Here μ is the minibatch: all of its steps, the expert's among them. One gradient step on
steps (s, a, s'):

    1. V_i(s) = α log Σ_b exp(Q_i(s, b) / α), or Q_i(s, x) − α log π(x | s) with x ~ π(s)   discrete, or continuous
    2. y = γ (c · V̄(s') + v),  r_i = Q_i(s, a) − y
    3. L = Σ_i E_μ [ −1_E r_i / e + V_i(s) − y + r_i² / (4β) ],  Q_i ← Q_i − η ∇L,  i = 1, 2
    4. π, α and the target networks move as in soft Q-learning or soft actor-critic

1_E marks the expert's steps, and e is their fraction in a minibatch that counts both sides equally, so 1_E / e averages
over the expert. V̄ is the smaller of two target networks, and has no gradient; without `targets` it is the smaller of
the networks themselves. c is 1 to bootstrap from the next state, 0 after a terminal step; v is the value of the
absorbing state if the step ends in it, else 0 (`rl.base.Batch`).

Reference: Garg, Chakraborty, Cundy, Song and Ermon, "IQ-Learn: Inverse soft-Q Learning for Imitation" (2021), with the
χ² divergence. The players of line 4 are `rl.soft_q` and `rl.sac`.

Deviations: the two critics are two games, each with a V_i(s) of its own; only V̄(s') takes the smaller.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from understudy.core.types import Spec
from understudy.policies import Policy
from understudy.policies.networks import MLP, NormedMLP
from understudy.rl import sac_losses, soft_q
from understudy.rl.base import Batch, Experience, PlayerState, RLPlayer
from understudy.rl.sac import SAC, SACState
from understudy.rl.soft_q import SoftQ, SoftQState
from understudy.rl.updates import LrSchedule, learning_rate

Metrics = dict[str, Float[Array, ""]]


class InverseQ(RLPlayer):
    """Inverse soft Q-learning with the networks and settings of another player."""

    player: SAC | SoftQ
    """Soft actor-critic for continuous actions, soft Q-learning for discrete ones."""
    regularization: float | Array
    """β: rewards are smaller with a smaller β."""
    expert_share: float
    """e: the expert's fraction of a minibatch that counts both sides equally."""
    targets: bool = eqx.field(static=True)
    """Take the value of the next state from target networks, without a gradient."""

    @property
    def discount(self) -> float | Array:
        return self.player.discount

    @property
    def lr_schedule(self) -> LrSchedule:
        return self.player.lr_schedule

    def init(self, key: Key[Array, ""], spec: Spec) -> PlayerState:
        return self.player.init(key, spec)

    def improve(
        self, state: PlayerState, experience: Experience, progress: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[PlayerState, Metrics]:
        lr = learning_rate(self.player.lr, self.player.lr_schedule, progress)
        batch_keys, noise_keys = jax.random.split(key, (self.player.gradient_steps, 2)).T

        def step(state: PlayerState, inputs: tuple[Batch, Key[Array, ""]]) -> tuple[PlayerState, Metrics]:
            batch, noise_key = inputs
            if isinstance(self.player, SoftQ):
                return self._soft_q_step(self.player, state, batch, lr)
            return self._sac_step(self.player, state, batch, noise_key, lr, progress)

        state, metrics = jax.lax.scan(step, state, (experience.batches(batch_keys), noise_keys))
        return state, {name: values.mean() for name, values in metrics.items()}

    def policy(self, state: PlayerState) -> Policy:
        return self.player.policy(state)

    def clone(
        self, state: PlayerState, sample: Callable[[Key[Array, ""]], Batch], steps: int, key: Key[Array, ""]
    ) -> PlayerState:
        return self.player.clone(state, sample, steps, key)

    def loss(
        self, q: Float[Array, "k n"], value: Float[Array, "k n"], y: Float[Array, " n"], batch: Batch
    ) -> Float[Array, ""]:
        """L of line 3."""
        reward = q - y
        expert = batch.demonstrated * reward / self.expert_share
        return (-expert + value - y + jnp.square(reward) / (4 * self.regularization)).mean(1).sum()

    def _soft_q_step(
        self, player: SoftQ, state: SoftQState, batch: Batch, lr: float | Array
    ) -> tuple[SoftQState, Metrics]:
        temperature = player.alpha(state)
        without_rewards = batch._replace(reward=jnp.zeros_like(batch.reward))

        def loss(critics: MLP) -> tuple[Float[Array, ""], Float[Array, "2 n actions"]]:
            q = critics(batch.obs)
            taken = jnp.take_along_axis(q, batch.act[None, :, None], axis=-1)[..., 0]
            value = temperature * jax.nn.logsumexp(q / temperature, axis=-1)  # line 1
            y = soft_q.target(  # line 2
                without_rewards, state.targets if self.targets else critics, temperature, player.discount
            )
            return self.loss(taken, value, y, batch), q

        return player.step_on(loss, state, lr)  # lines 3 and 4

    def _sac_step(
        self, player: SAC, state: SACState, batch: Batch, key: Key[Array, ""], lr: float | Array, share: Array
    ) -> tuple[SACState, Metrics]:
        temperature = player.alpha(state)
        without_rewards = batch._replace(reward=jnp.zeros_like(batch.reward))
        actor_noise, next_noise, noise = jax.random.normal(key, (3, *batch.act.shape))
        act, log_prob = state.actor.draw_from(batch.obs, noise)

        def loss(critics: MLP | NormedMLP) -> tuple[Float[Array, ""], Float[Array, ""]]:
            q = sac_losses.values(critics, batch.obs, batch.act)
            value = sac_losses.values(critics, batch.obs, act) - temperature * log_prob  # line 1
            y = sac_losses.target(  # line 2
                *(without_rewards, state.actor, state.targets if self.targets else critics, temperature),
                *(player.discount, next_noise, player.bound_values, player.combine),
            )
            return self.loss(q, value, y, batch), q.mean()

        return player.step_on(loss, state, batch, actor_noise, lr, share)  # lines 3 and 4
