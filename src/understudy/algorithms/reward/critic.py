"""The moment function of HyPE and FILTER: a network f that maximises an integral probability metric, once a round.

    U(f) = E_π f − E_E f
    `discriminator_steps` times, on a minibatch of the learner's steps and one of D_E:
        f ← f + η ∇ [ U(f) − w_g E (‖∇f‖ − t)² ]

An episode that terminates continues in an absorbing state. It is a point of f's input space: its state and action are
0, and another input, 0 elsewhere, is 1. A side that spends a share p of its time there has it in a share p of its
samples, so a constant added to f changes nothing, and the penalty between the sides bounds how far its value is from
the others (docs/absorbing.md). The first round has the reward of an untrained f, because there are no learner's steps
yet.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from understudy.algorithms.reward.defaults import QUICK_PLAYERS, SMALL
from understudy.algorithms.reward.expert import expert_steps
from understudy.algorithms.reward.matching import RewardMatching, RewardState
from understudy.algorithms.reward.moments import Counts, RewardMoments, count_steps, samples_in
from understudy.core.errors import check_choice, check_layers, check_not_negative, check_positive, check_whole
from understudy.core.types import Pair, RoundData, Samples, Transition
from understudy.game.critics import Critic, MLPCritic, penalty_between
from understudy.game.features import state_action
from understudy.game.kernels import GaussianKernel, Match
from understudy.game.players import Memory, gradient, repeat
from understudy.game.sampling import ChosenSteps, Rows
from understudy.policies.networks import MLP

QUICK_CRITIC: dict[str, Any] = {**QUICK_PLAYERS, "rounds": 16, "discriminator_hidden": (64, 64)}
"""The preset "quick"."""
SMALL_CRITIC: dict[str, Any] = {
    **SMALL,
    "discriminator_batch_size": 8,
    "discriminator_hidden": (8,),
    "discriminator_steps": 1,
}
"""Settings for the protocol tests."""


class CriticMatching(RewardMatching):
    """Abstract base class of algorithms whose f is a network that takes some gradient steps once a round."""

    learning: ClassVar[dict[str, Any]] = {
        "rounds": 16,
        "round_steps": 128,
        "discriminator_hidden": (32,),
        "discriminator_lr": 3e-3,
    }

    f_rounds: Literal["last", "all"] = eqx.field(static=True, default="last")
    """The learner's steps that f sees: those of the last round, or of all rounds before."""
    discriminator_batch_size: int = eqx.field(static=True, default=256)
    """Steps of the expert in a minibatch of f, and as many of the learner."""
    discriminator_steps: int = eqx.field(static=True, default=100)
    """Gradient steps of f per round."""
    discriminator_lr: float = 8e-4
    """Learning rate of f's Adam, η."""
    discriminator_hidden: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of f."""
    gradient_weight: float = 10.0
    """Weight of f's gradient penalty, w_g."""
    gradient_target: float = 1.0
    """Target norm of f's gradient, t."""
    match: Match = eqx.field(static=True, default="obs-act")
    """The part of a step that f compares: obs-act, or without actions obs or obs-next (with the next observation)."""
    replays: int = eqx.field(static=True, default=0)
    """Episodes of a clone that smooth the expert's side of f (replay estimation). 0: demonstrations alone."""
    clip: float = 40.0
    """Clip rewards to ± this."""

    def __check_init__(self) -> None:
        check_choice(("last", "all"), f_rounds=self.f_rounds)
        check_positive(discriminator_lr=self.discriminator_lr, clip=self.clip)
        check_not_negative(gradient_weight=self.gradient_weight, gradient_target=self.gradient_target)
        check_whole(1, discriminator_batch_size=self.discriminator_batch_size)
        check_whole(1, discriminator_steps=self.discriminator_steps)
        check_layers(discriminator_hidden=self.discriminator_hidden)
        if self.buffer_size is not None:  # f needs the round before in the buffer
            check_whole(2 * self.schedule.round_steps, buffer_size=self.buffer_size)

    def initial_moments(self, kernel: GaussianKernel, key: Key[Array, ""]) -> "Moments":
        size = kernel.directions.shape[0] + 1  # and the mark of the absorbing state
        critic = MLPCritic(MLP.init(key, size, self.discriminator_hidden, 1, init="uniform"), state_action, None)
        memory = gradient(optax.adam(self.discriminator_lr)).init(critic)
        return Moments(critic, memory, kernel, jnp.asarray(self.clip, jnp.float32), jnp.zeros(()))

    def next_moments(self, state: RewardState, data: RoundData, counts: Counts, key: Key[Array, ""]) -> "Moments":
        assert data.replay is not None
        steps, old = data.replay.steps, state.moments
        assert isinstance(old, Moments)
        seen = steps.round == data.round - 1 if self.f_rounds == "last" else steps.round < data.round
        seen = data.replay.usual & seen
        own = count_steps(steps, seen, state.horizon).absorbing_share
        shares = (own, counts.expert.absorbing_share) if self.absorbing else (0.0, 0.0)
        chosen = ChosenSteps(steps, Rows.where(seen))

        def loss(critic: Critic, k: Key[Array, ""]) -> Float[Array, ""]:
            learner_key, expert_key, mix_key = jax.random.split(k, 3)
            learner = self._draw(old, chosen.sample, shares[0], learner_key)
            expert = self._draw(old, partial(expert_steps, data.demonstrations, state.expert), shares[1], expert_key)
            return self.loss(critic, Pair(learner, expert), mix_key)

        def move() -> Moments:
            player = repeat(gradient(optax.adam(self.discriminator_lr)), self.discriminator_steps)
            critic, memory, value = player.move(key, old.critic, old.memory, loss)
            return replace(old, critic=critic, memory=memory, loss=value)

        return jax.lax.cond(seen.any(), move, lambda: old)

    def loss(self, critic: Critic, pair: Pair, key: Key[Array, ""]) -> Float[Array, ""]:
        """−U(f) plus the gradient penalty between the two sides."""
        learner, expert = (side.weight @ jax.vmap(critic)(side.t, side.obs, side.act) for side in pair)
        return expert - learner + self.gradient_weight * penalty_between(critic, pair, self.gradient_target, key)

    def _draw(
        self,
        moments: "Moments",
        sample: Callable[[Key[Array, ""], tuple[int, ...]], Transition],
        absorbing_share: float | Float[Array, ""],
        key: Key[Array, ""],
    ) -> Samples:
        """A minibatch of one side, a share of it in the absorbing state."""
        step_key, mark_key = jax.random.split(key)
        shape = (self.discriminator_batch_size,)
        return moments.samples(sample(step_key, shape), jax.random.bernoulli(mark_key, absorbing_share, shape))


class Moments(RewardMoments):
    """f, with another input that marks the absorbing state."""

    critic: Critic
    memory: Memory
    """Optimizer state of f."""
    kernel: GaussianKernel
    """Defines the coordinates of f's inputs."""
    clip: Float[Array, ""]
    loss: Float[Array, ""]
    """Mean loss over the gradient steps of the last round."""

    def samples(self, steps: Transition, absorbed: Bool[Array, " n"]) -> Samples:
        """Steps in f's coordinates, or the absorbing state in their place."""
        plain, mark = samples_in(self.kernel, steps, 1.0), absorbed[:, None]
        obs = jnp.concatenate([jnp.where(mark, 0, plain.obs), mark.astype(plain.obs.dtype)], axis=1)
        return plain._replace(obs=obs, act=jnp.where(mark, 0, plain.act))

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        points = self.samples(steps, jnp.zeros(steps.t.shape, bool))
        return self._clipped(jax.vmap(self.critic)(points.t, points.obs, points.act))

    def absorbing_reward(self, counts: Counts, balanced: bool) -> Float[Array, ""]:
        size = self.kernel.normalization.obs_mean.shape[0]
        obs, act = jnp.append(jnp.zeros(size), 1.0), jnp.zeros(self.kernel.directions.shape[0] - size)
        return self._clipped(self.critic(jnp.zeros((), jnp.int32), obs, act))

    def bound(self) -> Float[Array, ""]:
        return self.clip

    def metrics(self) -> dict[str, Float[Array, ""]]:
        return {"discriminator_loss": self.loss}

    def _clipped(self, f: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.clip(-f, -self.clip, self.clip)
