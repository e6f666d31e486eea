"""Reward moments as the policy meets them: how much there is of each side of the game, and what −f pays."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from understudy.core.types import Dataset, Transition


class Side(NamedTuple):
    """How much there is of one side of the game."""

    steps: Float[Array, ""]
    episodes: Float[Array, ""]
    absorbed: Float[Array, ""]
    """Steps that its ended episodes spend in the absorbing state until the horizon."""

    @property
    def absorbing_share(self) -> Float[Array, ""]:
        return self.absorbed / jnp.maximum(self.steps + self.absorbed, 1)


class Sides(NamedTuple):
    expert: Side
    earlier: Side
    """The learner's steps of rounds before this one."""
    current: Side

    @property
    def learner(self) -> Side:
        return jax.tree.map(jnp.add, self.earlier, self.current)


class Moments(eqx.Module):
    """Abstract: a moment function as the policy meets it, by the reward −f."""

    @abstractmethod
    def reward(self, steps: Transition) -> Float[Array, " n"]:
        """−f(s, a) of some steps."""

    @abstractmethod
    def at_rest(self, sides: Sides, balanced: bool) -> Float[Array, ""]:
        """−f of the absorbing state."""

    def bound(self) -> Float[Array, ""]:
        """What |f| is nowhere above, the absorbing state aside; infinite where that is not known."""
        return jnp.asarray(jnp.inf)

    def metrics(self) -> dict[str, Float[Array, ""]]:
        """What a person would plot of it."""
        return {}


class Labels(Moments):
    """Rewards that depend on where a step comes from: the indicator kernel, where no state is seen twice."""

    expert: Float[Array, ""]
    earlier: Float[Array, ""]
    """Of the learner's steps from rounds before `since`; those of later rounds have reward 0."""
    since: Int[Array, ""]

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        own = jnp.where(steps.round < self.since, self.earlier, 0.0)
        return jnp.where(steps.round < 0, self.expert, own)

    def at_rest(self, sides: Sides, balanced: bool) -> Float[Array, ""]:
        """The absorbing state is seen more than once: the labels of its samples are summed, over their number."""
        expert, earlier, current = (side.absorbed for side in sides)
        if balanced:  # each side's samples count by the share that they have of it
            half = jnp.maximum(sides.expert.steps + expert, 1)
            other = jnp.maximum(sides.learner.steps + sides.learner.absorbed, 1)
            expert, earlier, current = expert / half, earlier / other, current / other
        total = expert * self.expert + earlier * self.earlier
        return total / jnp.maximum(expert + earlier + current, 1e-6)

    def bound(self) -> Float[Array, ""]:
        return jnp.maximum(jnp.abs(self.expert), jnp.abs(self.earlier))


def counted(steps: Transition, chosen: Array, horizon: Int[Array, ""]) -> Side:
    """What the chosen steps come to. Where no episode has ended, so many as would fill the steps."""
    ended, absorbed = chosen & steps.last, chosen & steps.terminal
    left = jnp.where(absorbed, horizon - 1 - steps.t, 0)
    count = chosen.sum().astype(jnp.float32)
    episodes = jnp.where(ended.any(), ended.sum(), count / horizon)
    return Side(count, episodes, left.sum().astype(jnp.float32))


def expert_side(shown: Dataset, held_out: Dataset | None, horizon: Int[Array, ""]) -> Side:
    """Of all steps that were demonstrated: an episode's end may be among those that are kept aside."""
    steps, mask = shown.steps, shown.mask
    if held_out is not None:
        steps = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), steps, held_out.steps)
        mask = jnp.concatenate([mask, held_out.mask])
    side = counted(steps, mask, horizon)
    if shown.episodes is None:
        return side
    episodes = shown.episodes.astype(jnp.float32)
    share = episodes / jnp.maximum(side.episodes, 1)  # a half where nothing is kept aside, and all serves as both
    return Side(side.steps * share, episodes, side.absorbed * share)
