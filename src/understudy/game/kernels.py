"""A Gaussian kernel over (s, a), for moment functions and for payoffs that can be compared across rounds.

    k(x, y) = exp(−‖x − y‖² / 2h²),        x = (s standardized by the demonstrations, a in [-1, 1] or one-hot)

`match` chooses x: (s, a), or only s, or (s, s') with the recorded next observation. Steps whose next observation is
unknown have no (s, s') (`matched`).

Standardized numbers are clipped to ± 10: where the expert hardly varies, the learner can be far away. The bandwidth h
is the median distance between demonstrated steps, or half their root mean square distance if that is larger. The median
alone is too small for an expert that stands still most of the time.

Random Fourier features approximate k by a product, k(x, y) ≈ φ(x) · φ(y), φ(x) = √(2/D) cos(W x / h + b) with normal W
and uniform b (Rahimi and Recht, 2007). The mean of k over any number of samples is then a vector of D numbers.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from understudy.core.arrays import namespace
from understudy.core.errors import check_choice
from understudy.core.types import Dataset, Spec, Transition
from understudy.game.critics import as_vector
from understudy.game.features import visible
from understudy.policies.normalization import Normalization

Match = Literal["obs-act", "obs", "obs-next"]
MATCHES: tuple[Match, ...] = ("obs-act", "obs", "obs-next")
"""The part of a step that moments see: (s, a), s, or (s, s')."""
MAX_STEPS = 512
"""The most demonstrated steps that the bandwidth is measured on; the cost is quadratic."""


class GaussianKernel(eqx.Module):
    """k(x, y), its coordinates and its random features."""

    normalization: Normalization
    bandwidth: Float[Array, ""]
    directions: Float[Array, "d D"]
    phases: Float[Array, " D"]
    actions: int | None = eqx.field(static=True)
    seen: tuple[int, ...] | None = eqx.field(static=True, default=None)
    """Indices of the observation that the kernel sees (`Spec.critic_obs`)."""
    match: Match = eqx.field(static=True, default="obs-act")

    @classmethod
    def fit(
        cls,
        key: Key[Array, ""],
        spec: Spec,
        demonstrations: Dataset,
        features: int,
        bandwidth: float | Float[Array, ""] = 1.0,
        match: Match = "obs-act",
    ) -> "GaussianKernel":
        """Coordinates and bandwidth from demonstrations, random features from the key.

        `bandwidth` is in multiples of the rule above.
        """
        normalization = Normalization.fit(spec, demonstrations)
        size = spec.obs_size + {"obs-act": spec.action_size, "obs": 0, "obs-next": spec.obs_size}[match]
        direction_key, phase_key = jax.random.split(key)
        directions = jax.random.normal(direction_key, (size, features))
        phases = jax.random.uniform(phase_key, (features,), maxval=2 * jnp.pi)
        kernel = cls(normalization, jnp.ones(()), directions, phases, spec.num_actions, spec.critic_obs, match)
        measured = bandwidth_of(_distances(kernel, demonstrations))
        chosen = bandwidth * jnp.where(jnp.isfinite(measured), measured, 1.0)
        return eqx.tree_at(lambda k: k.bandwidth, kernel, chosen)

    def points(self, steps: Transition) -> Float[Array, "n d"]:
        """(s, a), s or (s, s') in the kernel's coordinates."""
        obs = visible(self.normalization.encode_obs(steps.obs), self.seen)
        if self.match == "obs":
            return obs
        if self.match == "obs-next":
            following = visible(self.normalization.encode_obs(steps.next_obs), self.seen)
            return jnp.concatenate([obs, following], axis=-1)
        act = jax.vmap(as_vector, (0, None))(self.normalization.encode_act(steps.act), self.actions)
        return jnp.concatenate([obs, act], axis=-1)

    def features(self, points: Float[Array, "n d"]) -> Float[Array, "n D"]:
        """φ(x)."""
        count = self.phases.shape[0]
        return jnp.sqrt(2.0 / count) * jnp.cos(points @ (self.directions / self.bandwidth) + self.phases)

    def __call__(self, x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
        return jnp.exp(-squared_distances(x, y) / (2 * self.bandwidth**2))

    def weighted_sums(self, x: Float[Array, "n d"], y: Float[Array, "m d"], weights: Float[Array, " m"]) -> Array:
        """Σ_j k(x_i, y_j) w_j for each x_i, in blocks: all of (n, m) may not fit into memory."""
        return jax.lax.map(lambda row: self(row[None], y)[0] @ weights, x, batch_size=512)


def check_match(match: Match) -> None:
    """Raise unless it is one of the three."""
    check_choice(MATCHES, match=match)


def matched(data: Dataset, match: Match) -> Bool[Array, " n"]:
    """The real steps that have the part that moments see: all, or those with a known next observation."""
    return data.mask & data.steps.known_next if match == "obs-next" else data.mask


def bandwidth_of(distances: Any) -> Any:
    """h from the distances between steps, on JAX or NumPy. NaN entries are ignored; if all are NaN, h is NaN."""
    xp = namespace(distances)
    return xp.maximum(xp.nanmedian(distances), xp.sqrt(xp.nanmean(xp.square(distances))) / 2)


def _distances(kernel: GaussianKernel, demonstrations: Dataset) -> Float[Array, "n n"]:
    """Distances between the real steps, or MAX_STEPS evenly spaced ones. NaN for a step and itself or a copy of it."""
    count = min(MAX_STEPS, demonstrations.steps.t.shape[0])
    row = demonstrations.evenly_spaced(count)
    repeated = jnp.concatenate([jnp.zeros(1, bool), row[1:] == row[:-1]])  # if there are fewer than `count` steps
    repeated |= ~matched(demonstrations, kernel.match)[row]
    points = kernel.points(jax.tree.map(lambda x: x[row], demonstrations.steps))
    # Not by `squared_distances`: its rounding makes the distance of a point to itself positive.
    distances = jnp.sqrt(jnp.square(points[:, None] - points).sum(-1))
    return jnp.where(repeated[:, None] | repeated | (distances == 0), jnp.nan, distances)


def squared_distances(x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """‖x_i − y_j‖²."""
    inner = x @ y.T
    return jnp.maximum(jnp.sum(x**2, -1)[:, None] + jnp.sum(y**2, -1) - 2 * inner, 0)
