"""A round's steps as episodes, and the quadratic expansion of a cost along them."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from understudy.core.types import Dataset, Transition
from understudy.rl.lqr import Quadratic

UNSEEN = 1e-6
"""The weight of a step after an episode's end, so that a time step that no episode reaches has a cost."""


class Samples(NamedTuple):
    """Episodes by their start, or those of one start."""

    states: Float[Array, "... t m x"]
    actions: Float[Array, "... t m u"]
    following: Float[Array, "... t m x"]
    """The next states."""
    cost: Float[Array, "... t m"]
    mask: Bool[Array, "... t m"]
    """Which steps are real."""

    @classmethod
    def by_start(cls, starts: int, *columns: Array) -> "Samples":
        """From arrays (episodes, time, ...) in which the episodes of a start follow each other."""
        return cls(*(jnp.swapaxes(x.reshape(starts, -1, *x.shape[1:]), 1, 2) for x in columns))

    @property
    def mean_cost(self) -> Float[Array, ""]:
        """Of a real step; 0 if there is none."""
        return jnp.where(self.mask, self.cost, 0).sum() / jnp.maximum(self.mask.sum(), 1)


def as_episodes(steps: Dataset, count: int, horizon: int, padding: Transition) -> tuple[Transition, Bool[Array, "n t"]]:
    """Steps that lie end to end, as (episodes, time) arrays, and which of these are real.

    The last step of an episode is repeated after its end. Episodes without a step are `padding`.
    """
    real = steps.mask
    episode = jnp.cumsum((steps.steps.t == 0) & real) - 1
    place = jnp.where(real & (episode >= 0) & (episode < count), episode * horizon + steps.steps.t, count * horizon)
    mask = jnp.zeros(count * horizon, bool).at[place].set(True, mode="drop").reshape(count, horizon)
    last = jnp.maximum(mask.sum(1) - 1, 0)
    rows = jnp.minimum(jnp.arange(horizon), last[:, None])

    def arranged(x: Array, filler: Array) -> Array:
        empty = jnp.broadcast_to(filler, (count * horizon, *x.shape[1:]))
        grid = empty.at[place].set(x, mode="drop").reshape(count, horizon, *x.shape[1:])
        return jnp.take_along_axis(grid, rows.reshape(*rows.shape, *(1,) * (x.ndim - 1)), axis=1)

    return jax.tree.map(arranged, steps.steps, padding), mask


def quadratic_cost(
    cost: Callable[[Float[Array, " x"], Float[Array, " u"]], Float[Array, ""]],
    states: Float[Array, "t n x"],
    actions: Float[Array, "t n u"],
    mask: Bool[Array, "t n"],
) -> Quadratic:
    """A quadratic cost for each time step, from the cost's second-order expansions around the samples.

    It has their mean Hessian, whose negative eigenvalues are set to 0 so that there is a minimum, their mean gradient
    at the samples' mean, and their mean value on average over the samples.
    """
    size = states.shape[2]
    points = jnp.concatenate([states, actions], axis=2)
    weight = jnp.where(mask, 1.0, UNSEEN)
    weight = weight / weight.sum(1, keepdims=True)

    def joint(z: Array) -> Array:
        return cost(z[:size], z[size:])

    each = jax.vmap(jax.vmap(lambda z: (joint(z), jax.grad(joint)(z), jax.hessian(joint)(z))))(points)
    value, slope, curvature = (jnp.einsum("tn,tn...->t...", weight, x) for x in each)
    center = jnp.einsum("tn,tnz->tz", weight, points)
    values, vectors = jnp.linalg.eigh((curvature + jnp.swapaxes(curvature, 1, 2)) / 2)
    hessian = jnp.einsum("tij,tj,tkj->tik", vectors, jnp.maximum(values, 0), vectors)
    gradient = slope - jnp.einsum("tij,tj->ti", hessian, center)
    quadratic = 0.5 * jnp.einsum("tn,tni,tij,tnj->t", weight, points, hessian, points)
    return Quadratic(hessian, gradient, value - quadratic - jnp.einsum("ti,ti->t", gradient, center))
