"""The learner's side of a kernel's moment function: the mean of its features over the steps of all earlier rounds.

Round k counts k^p times as much as round 1, for a power p. With p = 0 all steps count the same, as in fictitious play.
With p > 0 the first rounds count less; no rate of convergence is claimed. A terminated episode counts with the time
that it spends in the absorbing state.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from understudy.algorithms.reward.moments import SideCounts, count_steps
from understudy.algorithms.reward.payoff import feature_sum
from understudy.core.types import Dataset, Transition
from understudy.game.kernels import GaussianKernel
from understudy.game.sampling import take

BLOCK = 1024
"""Demonstrated steps whose features are computed at a time."""


def mean_features(kernel: GaussianKernel, demonstrations: Dataset) -> Float[Array, " D"]:
    """The mean features of the demonstrated steps."""
    rows = demonstrations.steps.t.shape[0]
    block = min(BLOCK, rows)

    def add(total: Array, first: Array) -> tuple[Array, None]:
        row = first + jnp.arange(block)
        features = kernel.features(kernel.points(take(demonstrations.steps, jnp.minimum(row, rows - 1))))
        return total + jnp.where((row < demonstrations.size)[:, None], features, 0).sum(0), None

    total, _ = jax.lax.scan(add, jnp.zeros(kernel.phases.shape[0]), jnp.arange(0, rows, block))
    return total / demonstrations.size


class Sums(NamedTuple):
    """Weighted sums over steps."""

    features: Float[Array, " D"]
    counts: SideCounts

    @property
    def mean(self) -> Float[Array, " D"]:
        """The mean features over time, where those of the absorbing state are 0."""
        return self.features / jnp.maximum(self.counts.steps + self.counts.absorbing_steps, 1)


class LearnerAverage(NamedTuple):
    """The sums of the current round, and the weighted ones of all earlier rounds."""

    current: Sums
    earlier: Sums

    @classmethod
    def init(cls, features: int) -> "LearnerAverage":
        def zero() -> Sums:  # states are donated, so no array may appear twice
            return Sums(jnp.zeros(features), SideCounts(jnp.zeros(()), jnp.zeros(()), jnp.zeros(())))

        return cls(zero(), zero())

    def add(
        self,
        kernel: GaussianKernel,
        new_steps: Transition,
        horizon: Int[Array, ""],
        new_round: Bool[Array, ""],
        index: Int[Array, ""] | int,
        power: float | Float[Array, ""],
    ) -> "LearnerAverage":
        """With the steps since the last update. A new round, number `index`, first joins the last one to the earlier.

        Weights are relative to the newest round's: w_k / w_{k-1} = (k / (k - 1))^p.
        """
        number = jnp.maximum(jnp.asarray(index, jnp.float32), 1)
        decay = ((number - 1) / number) ** power
        joined = jax.tree.map(lambda old, new: decay * old + new, self.earlier, self.current)
        earlier, current = jax.tree.map(
            lambda moved, kept: jnp.where(new_round, moved, kept),
            (joined, jax.tree.map(jnp.zeros_like, self.current)),
            (self.earlier, self.current),
        )
        counts = count_steps(new_steps, jnp.ones(new_steps.t.shape, bool), horizon)
        new = Sums(feature_sum(kernel, new_steps), counts)
        return LearnerAverage(jax.tree.map(jnp.add, current, new), earlier)
