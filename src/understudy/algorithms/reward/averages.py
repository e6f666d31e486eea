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
from understudy.core.types import Dataset, Transition
from understudy.game.kernels import GaussianKernel, matched
from understudy.game.sampling import take

BLOCK = 1024
"""Demonstrated steps whose features are computed at a time."""


def mean_features(kernel: GaussianKernel, demonstrations: Dataset) -> Float[Array, " D"]:
    """The mean features of the demonstrated steps that the kernel can see, or of the estimate in their place."""
    steps, weight = demonstrations.steps, matched(demonstrations, kernel.match).astype(jnp.float32)
    if demonstrations.estimate is not None:
        steps, weight = demonstrations.estimate.steps, demonstrations.estimate.weight
    rows = steps.t.shape[0]
    block = min(BLOCK, rows)

    def add(total: Array, first: Array) -> tuple[Array, None]:
        row = first + jnp.arange(block)
        inside = jnp.minimum(row, rows - 1)
        features = kernel.features(kernel.points(take(steps, inside)))
        return total + (jnp.where(row < rows, weight[inside], 0)[:, None] * features).sum(0), None

    total, _ = jax.lax.scan(add, jnp.zeros(kernel.phases.shape[0]), jnp.arange(0, rows, block))
    return total / jnp.maximum(weight.sum(), 1e-6)


class Sums(NamedTuple):
    """Weighted sums over steps."""

    features: Float[Array, " D"]
    counts: SideCounts

    @classmethod
    def zero(cls, features: int) -> "Sums":
        return cls(jnp.zeros(features), SideCounts(*(jnp.zeros(()) for _ in range(3))))

    @property
    def mean(self) -> Float[Array, " D"]:
        """The mean features over time, where those of the absorbing state are 0."""
        return self.features / jnp.maximum(self.counts.steps + self.counts.absorbing_steps, 1)

    def with_round(
        self,
        kernel: GaussianKernel,
        steps: Transition,
        horizon: Int[Array, ""],
        number: Int[Array, ""] | int,
        power: float | Array,
        mask: Bool[Array, " n"] | None = None,
    ) -> "Sums":
        """With the steps of round `number`, from 1, or those in `mask`; unchanged if it is 0.

        Weights are relative to the newest round's: those of earlier rounds shrink by ((k - 1) / k)^p.
        """
        count = jnp.maximum(jnp.asarray(number, jnp.float32), 1)
        decay = ((count - 1) / count) ** power
        features = kernel.features(kernel.points(steps))
        if mask is not None:
            features = jnp.where(mask[:, None], features, 0)
        new = Sums(
            features.sum(0), count_steps(steps, jnp.ones(steps.t.shape, bool) if mask is None else mask, horizon)
        )
        return jax.tree.map(lambda old, add: jnp.where(jnp.asarray(number) > 0, decay * old + add, old), self, new)
