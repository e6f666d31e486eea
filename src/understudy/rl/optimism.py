"""From the values of several critics to the value of an action: the smallest, or their optimistic mean.

    mean_i Q_i + κ · min(std_i Q_i, clip)

The critics of an ensemble agree where there are data. So the smallest keeps the policy near what it has tried, and the
optimistic mean sends it to what it has not. In imitation by RL the moment function then judges what was explored. The
clip bounds what is paid for exploring.

Reference: Viel, Viano and Cevher, "SOAR: Soft Optimistic Actor cRitic" (2025), for costs to go, from which the clipped
deviation is subtracted. Deviation: our critics share minibatches and targets, so that only their initial weights make
them differ; there each critic has its own.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

MIN_VARIANCE = 1e-8
"""Added to the variance of critics, whose square root has no derivative at 0."""
Combine = Callable[[Float[Array, "k n"]], Float[Array, " n"]]
"""The values of all critics ↦ the value of an action."""


def optimistic(q: Float[Array, "k n"], optimism: float | Array, clip: float | Array) -> Float[Array, " n"]:
    """mean_i Q_i + κ min(std_i Q_i, clip)."""
    deviation = jnp.sqrt(jnp.square(q - q.mean(0)).mean(0) + MIN_VARIANCE)
    return q.mean(0) + optimism * jnp.minimum(deviation, clip)
