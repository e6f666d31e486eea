"""Reward moments for an RL player: the reward −f, and the counts of steps on both sides that f depends on."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from understudy.core.types import Dataset, Replay, RoundData, Samples, Transition, Weighted
from understudy.game.kernels import GaussianKernel
from understudy.game.sampling import Rows


class SideCounts(NamedTuple):
    """Counts for one side of the game."""

    steps: Float[Array, ""]
    episodes: Float[Array, ""]
    absorbing_steps: Float[Array, ""]
    """Steps in the absorbing state, from the end of each terminated episode to the horizon."""

    @property
    def absorbing_share(self) -> Float[Array, ""]:
        """The share of time in the absorbing state."""
        return self.absorbing_steps / jnp.maximum(self.steps + self.absorbing_steps, 1)


class Counts(NamedTuple):
    """Counts for both sides of the game."""

    expert: SideCounts
    earlier: SideCounts
    """The learner's steps of earlier rounds."""
    current: SideCounts
    """The learner's steps of the current round."""

    @classmethod
    def of(cls, data: RoundData, horizon: Int[Array, ""]) -> "Counts":
        """Counts at an update. The learner's are of ordinary episodes (`Replay.usual`)."""
        assert data.replay is not None
        steps, usual = data.replay.steps, data.replay.usual
        return cls(
            count_expert_steps(data.demonstrations, horizon),
            count_steps(steps, usual & (steps.round < data.round), horizon),
            count_steps(steps, usual & (steps.round == data.round), horizon),
        )

    @property
    def learner(self) -> SideCounts:
        return jax.tree.map(jnp.add, self.earlier, self.current)

    @property
    def alive_weights(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Weights of learner and expert: their shares of time outside the absorbing state, scaled to a sum of 2."""
        learner, expert = (1 - side.absorbing_share for side in (self.learner, self.expert))
        return 2 * learner / (learner + expert), 2 * expert / (learner + expert)


class RewardMoments(eqx.Module):
    """Abstract base class: a moment function f, which the RL player gets as the reward −f."""

    @abstractmethod
    def reward(self, steps: Transition) -> Float[Array, " n"]:
        """−f(s, a) at each step."""

    @abstractmethod
    def absorbing_reward(self, counts: Counts, balanced: bool) -> Float[Array, ""]:
        """−f in the absorbing state."""

    def bound(self) -> Float[Array, ""]:
        """A bound on |f| outside the absorbing state; infinite if there is none."""
        return jnp.asarray(jnp.inf)

    def metrics(self) -> dict[str, Float[Array, ""]]:
        """Metrics to log."""
        return {}


class Labels(RewardMoments):
    """Rewards that depend only on a step's origin: an indicator kernel on data without repeated states."""

    expert: Float[Array, ""]
    """The reward of demonstrated steps."""
    earlier: Float[Array, ""]
    """The reward of the learner's steps from rounds before `since`. Later steps have reward 0."""
    since: Int[Array, ""]

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        learner = jnp.where(steps.round < self.since, self.earlier, 0.0)
        return jnp.where(steps.round < 0, self.expert, learner)

    def absorbing_reward(self, counts: Counts, balanced: bool) -> Float[Array, ""]:
        """The mean label over all visits of the absorbing state, the one state that is visited repeatedly."""
        expert, earlier, current = (side.absorbing_steps for side in counts)
        if balanced:  # each side's visits count by their share of the side's steps
            expert_steps = jnp.maximum(counts.expert.steps + expert, 1)
            learner_steps = jnp.maximum(counts.learner.steps + counts.learner.absorbing_steps, 1)
            expert, earlier, current = expert / expert_steps, earlier / learner_steps, current / learner_steps
        total = expert * self.expert + earlier * self.earlier
        return total / jnp.maximum(expert + earlier + current, 1e-6)

    def bound(self) -> Float[Array, ""]:
        return jnp.maximum(jnp.abs(self.expert), jnp.abs(self.earlier))


def learner_rows(replay: Replay) -> Rows:
    """The learner's steps that f is about: those of ordinary episodes, not of episodes from demonstrated steps on."""
    return Rows(None, replay.size) if replay.ordinary is None else Rows.where(replay.usual)


def count_steps(steps: Transition, mask: Bool[Array, "..."], horizon: Int[Array, ""] | int) -> SideCounts:
    """Counts over the steps in `mask`. If no episode has ended among them, episodes = steps / horizon."""
    last, terminal = mask & steps.last, mask & steps.terminal
    remaining = jnp.where(terminal, horizon - 1 - steps.t, 0)
    count = mask.sum().astype(jnp.float32)
    episodes = jnp.where(last.any(), last.sum(), count / horizon)
    return SideCounts(count, episodes, remaining.sum().astype(jnp.float32))


def count_expert_steps(demonstrations: Dataset, horizon: Int[Array, ""] | int) -> SideCounts:
    """Counts over the demonstrated episodes. Their lengths count, since a block of steps may be held out.

    An estimate in their place counts as one expected episode.
    """
    if demonstrations.estimate is not None:
        return count_weighted_steps(demonstrations.estimate, horizon)
    steps, mask = demonstrations.steps, demonstrations.mask
    counts, last = count_steps(steps, mask, horizon), mask & steps.last
    lengths = jnp.where(last, steps.t + 1, 0).sum().astype(jnp.float32)
    return counts._replace(steps=jnp.where(last.any(), lengths, counts.steps))


def count_weighted_steps(estimate: Weighted, horizon: Int[Array, ""] | int) -> SideCounts:
    """Counts of one expected episode."""
    remaining = jnp.where(estimate.steps.terminal, horizon - 1 - estimate.steps.t, 0)
    return SideCounts(estimate.weight.sum(), jnp.ones(()), (estimate.weight * remaining).sum())


def samples_in(kernel: GaussianKernel, steps: Transition, weight: float | Float[Array, ""]) -> Samples:
    """Steps in a kernel's coordinates, for a learned f: actions as vectors, and the given total weight.

    With `match`, the next observation takes the place of the action, or nothing does.
    """
    points = kernel.points(steps)
    count, size = points.shape[0], kernel.normalization.obs_mean.shape[0]
    return Samples(steps.t, points[:, :size], points[:, size:], jnp.full(count, weight / count))
