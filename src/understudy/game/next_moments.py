"""Moment functions of the next observation, f_t(s'), for learners that see where actions lead and not the actions.

Uniformly drawn actions a of the learner lead to s'. With the weights |A| π_t(a | s) they stand for the policy π,
whichever policy had visited s. For f = w · φ with ‖w‖ ≤ 1 and μ_E the expert's mean of φ_t(s'), the integral
probability metric and its maximiser have a closed form:

    max_f E_π f − E_{π_E} f = ‖g‖,    f = g/‖g‖ · φ,    g = E |A| π_t(a | s) φ_t(s') − μ_E

Its gradient by π is that of E |A| π f at this f (Danskin). φ are random Fourier features of a Gaussian kernel over
s', or over (s, s' − s), and t, in the coordinates of the demonstrated observations.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from understudy.core.types import Dataset, Spec, Transition
from understudy.game.features import visible
from understudy.game.kernels import MAX_STEPS, bandwidth_of
from understudy.game.sampling import take
from understudy.policies import Carry, Policy
from understudy.policies.normalization import Normalization

CHUNK = 1024
"""Steps whose features are computed together."""
TINY = 1e-30
"""The smallest number whose logarithm is taken, or by whose root is divided."""
LEAST = 1e-2
"""The smallest scale of an observed number, relative to the largest one."""


class Probes(NamedTuple):
    """Probed steps of one side."""

    t: Int[Array, " n"]
    obs: Float[Array, "n obs"]
    next_obs: Float[Array, "n obs"]
    choice: Int[Array, " n"]
    """The number of the learner's action; 0 where the expert acted."""


class NextMoments(eqx.Module):
    """φ_t(s'), or φ_t(s, s') with `pairs`: random Fourier features of a Gaussian kernel."""

    normalization: Normalization
    scale: Float[Array, " d"]
    """The kernel's bandwidth in each direction."""
    directions: Float[Array, "d D"]
    phases: Float[Array, " D"]
    pairs: bool = eqx.field(static=True)
    timed: bool = eqx.field(static=True)
    seen: tuple[int, ...] | None = eqx.field(static=True)

    @classmethod
    def fit(
        cls,
        key: Key[Array, ""],
        spec: Spec,
        demonstrations: Dataset,
        features: int,
        bandwidth: float | Array,
        time_bandwidth: float | Array | None,
        pairs: bool,
    ) -> "NextMoments":
        """Coordinates and bandwidths from demonstrated observations, random features from the key.

        `bandwidth` is in multiples of the rule in `kernels`, `time_bandwidth` in steps; with None f does
        not see the time.
        """
        normalization = Normalization.fit(spec, demonstrations)
        timed = time_bandwidth is not None
        size = spec.obs_size * (2 if pairs else 1) + timed
        direction_key, phase_key = jax.random.split(key)
        directions = jax.random.normal(direction_key, (size, features))
        phases = jax.random.uniform(phase_key, (features,), maxval=2 * jnp.pi)
        moments = cls(normalization, jnp.ones(size), directions, phases, pairs, timed, spec.critic_obs)
        rows = demonstrations.evenly_spaced(min(MAX_STEPS, demonstrations.steps.t.shape[0]))
        shown = take(demonstrations.steps, rows)
        once = jnp.concatenate([jnp.ones(1, bool), rows[1:] != rows[:-1]])  # rows repeat where data are padded
        points = jnp.where((shown.known_next & once)[:, None], moments.points(shown)[:, : size - timed], jnp.nan)
        spread = jnp.nan_to_num(jnp.nanstd(points, axis=0))
        spread = jnp.maximum(spread, LEAST * spread.max())
        spread = jnp.where(spread > 0, spread, 1.0)
        distances = jnp.sqrt(jnp.square((points[:, None] - points) / spread).sum(-1))
        measured = bandwidth_of(jnp.where(distances > 0, distances, jnp.nan))
        width = bandwidth * jnp.where(jnp.isfinite(measured), measured, 1.0) * spread
        scale = width if time_bandwidth is None else jnp.append(width, time_bandwidth)
        return eqx.tree_at(lambda m: m.scale, moments, scale)

    def __call__(self, steps: Probes) -> Float[Array, "n D"]:
        points = self.points(steps) / self.scale
        return jnp.sqrt(2.0 / self.phases.shape[0]) * jnp.cos(points @ self.directions + self.phases)

    def points(self, steps: Probes | Transition) -> Float[Array, "n d"]:
        """s', or s and s' − s; and t if f sees it."""
        before, after = (visible(self.normalization.encode_obs(x), self.seen) for x in (steps.obs, steps.next_obs))
        parts = [before, after - before] if self.pairs else [after]
        times = [steps.t[:, None].astype(after.dtype)] if self.timed else []
        return jnp.concatenate([*parts, *times], axis=1)

    def mean(
        self, steps: Probes, size: Int[Array, ""], weights: Callable[[Probes], Array] = lambda steps: jnp.ones(())
    ) -> Float[Array, " D"]:
        """The weighted mean of φ over the first `size` steps; 0 if there are none."""

        def add(i: Int[Array, ""], total: Array) -> Array:
            rows = i * CHUNK + jnp.arange(CHUNK)
            here = take(steps, jnp.minimum(rows, steps.t.shape[0] - 1))
            return total + jnp.where(rows < size, weights(here), 0) @ self(here)

        total = jax.lax.fori_loop(0, -(-size // CHUNK), add, jnp.zeros_like(self.phases))
        return total / jnp.maximum(size, 1)


def importance(policy: Policy, steps: Probes, normalization: Normalization) -> tuple[Array, Array]:
    """|A| π_t(a | s) of the actions that were drawn, and the policy's entropy in their states."""

    def one(t: Array, obs: Array, choice: Array) -> tuple[Array, Array]:
        _, weights = policy.support(Carry(t, jnp.zeros_like(t)), obs, jax.random.key(0))  # it is exact
        log = jnp.log(jnp.maximum(weights, TINY))
        return weights.shape[0] * weights[choice], -weights @ log

    return jax.vmap(one)(steps.t, normalization.encode_obs(steps.obs), steps.choice)


def best_response(weights: Float[Array, " n"], features: Float[Array, "n D"], mean: Float[Array, " D"]) -> Array:
    """g/‖g‖, the weights of f (line 4). `mean` is E_{D_E} φ."""
    g = weights @ features / len(weights) - mean
    return g / jnp.sqrt(jnp.maximum(g @ g, TINY))


def payoff(
    weights: Float[Array, " n"], features: Float[Array, "n D"], mean: Float[Array, " D"], f: Float[Array, " D"]
) -> Float[Array, ""]:
    """E_D |A| π (f − E_{D_E} f): the policy's loss in line 5, without the entropy."""
    return (weights * (features @ f - mean @ f)).mean()


def nearest(points: Array, act: Array) -> Int[Array, ""]:
    """The number of the action that was taken."""
    return jnp.abs(points - act).reshape(len(points), -1).sum(1).argmin().astype(jnp.int32)
