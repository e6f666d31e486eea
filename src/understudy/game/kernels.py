"""The Gaussian kernel over (s, a), for moment functions and for payoffs that mean the same across rounds.

    k(x, y) = exp(−‖x − y‖² / 2h²),        x = (s standardised by the demonstrations, a in [-1, 1] or one-hot)

h is the median distance between the expert's pairs, or half of their root mean square distance where that is more: the
median of an expert that rests most of the time says how still it rests. Random Fourier features make k a product,
k(x, y) ≈ φ(x) · φ(y) with φ(x) = √(2/D) cos(W x / h + b), W normal and b uniform (Rahimi and Recht, 2007): a mean over
any number of samples is then a vector of D numbers.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from understudy.core.types import Dataset, Discrete, Spec, Transition
from understudy.game.critics import as_vector
from understudy.policies.normalization import Normalization

MOST = 512
"""Demonstrated steps that the bandwidth is measured on, at the most: every pair is compared."""


class GaussianKernel(eqx.Module):
    normalization: Normalization
    bandwidth: Float[Array, ""]
    directions: Float[Array, "d D"]
    phases: Float[Array, " D"]
    actions: int | None = eqx.field(static=True)

    @classmethod
    def fit(cls, spec: Spec, demonstrations: Dataset, features: int) -> "GaussianKernel":
        """Coordinates and bandwidth from demonstrations. The features are the same in every run: drawn once."""
        normalization = Normalization.fit(spec, demonstrations)
        actions = spec.action.n if isinstance(spec.action, Discrete) else None
        size = spec.obs_size + (spec.action.n if isinstance(spec.action, Discrete) else spec.action.shape[0])
        direction_key, phase_key = jax.random.split(jax.random.key(0))
        directions = jax.random.normal(direction_key, (size, features))
        phases = jax.random.uniform(phase_key, (features,), maxval=2 * jnp.pi)
        kernel = cls(normalization, jnp.ones(()), directions, phases, actions)
        distance = _typical_distance(kernel, demonstrations)
        return eqx.tree_at(lambda k: k.bandwidth, kernel, jnp.where(jnp.isfinite(distance), distance, 1.0))

    def points(self, steps: Transition) -> Float[Array, "n d"]:
        """(s, a) in the kernel's coordinates."""
        act = jax.vmap(as_vector, (0, None))(self.normalization.encode_act(steps.act), self.actions)
        return jnp.concatenate([self.normalization.encode_obs(steps.obs), act], axis=-1)

    def features(self, points: Float[Array, "n d"]) -> Float[Array, "n D"]:
        count = self.phases.shape[0]
        return jnp.sqrt(2.0 / count) * jnp.cos(points @ (self.directions / self.bandwidth) + self.phases)

    def __call__(self, x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return jnp.exp(-squared_distances(x, y) / (2 * self.bandwidth**2))


def _typical_distance(kernel: GaussianKernel, demonstrations: Dataset) -> Float[Array, ""]:
    """Over pairs of different points, of all real steps or of MOST evenly spread over them; NaN where there is none."""
    count = min(MOST, demonstrations.steps.t.shape[0])
    whole, rest = demonstrations.size // count, demonstrations.size % count
    place = jnp.arange(count) * whole + jnp.arange(count) * rest // count
    again = jnp.concatenate([jnp.zeros(1, bool), place[1:] == place[:-1]])  # where there are fewer steps than places
    points = kernel.points(jax.tree.map(lambda x: x[place], demonstrations.steps))
    # Not by `squared_distances`: what rounding leaves there of a point's distance to itself is above 0.
    apart = jnp.sqrt(jnp.square(points[:, None] - points).sum(-1))
    no_pair = again[:, None] | again | (apart == 0)
    apart = jnp.where(no_pair, jnp.nan, apart)
    return jnp.maximum(jnp.nanmedian(apart), jnp.sqrt(jnp.nanmean(jnp.square(apart))) / 2)


def squared_distances(x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    inner = x @ y.T
    return jnp.maximum(jnp.sum(x**2, -1)[:, None] + jnp.sum(y**2, -1) - 2 * inner, 0)
