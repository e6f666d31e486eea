"""Time-varying linear-Gaussian models, fitted to a few episodes: y ≈ A_t x + b_t + noise, at each time step.

A few episodes have fewer samples at a time step than x has numbers. So a model is fitted to the steps near in time
too: steps at distance d weigh exp(−½ (d / width)²). For a continuous system, time steps that are near have states that
are near, and so have its linearisations.

    1. A_t, b_t ← argmin Σ over steps of weight · ‖y − A x − b‖² + ridge · weight of all steps · ‖A‖²
    2. noise_t  ← the weighted mean of (y − A x − b)(y − A x − b)'

For dynamics, y is the change x' − x of the state. So in directions that the episodes do not explore, the ridge says
that the state stays where it is.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from understudy.rl.lqr import Controller, Dynamics

TINY = 1e-30
"""The least weight of all steps, so that none divides by zero."""
REACH = 3
"""Steps weigh up to this many widths away."""


class Linear(NamedTuple):
    """y ~ N(A_t x + b_t, noise_t)."""

    matrix: Float[Array, "t y x"]
    offset: Float[Array, "t y"]
    noise: Float[Array, "t y y"]


def fit_linear(
    x: Float[Array, "t n x"],
    y: Float[Array, "t n y"],
    mask: Bool[Array, "t n"],
    width: int,
    ridge: float | Array,
) -> Linear:
    """Lines 1 and 2, from n episodes. Steps where the mask is False do not count; without any, A, b and noise are 0."""
    time = x.shape[0]
    distance = jnp.arange(-REACH * width, REACH * width + 1)
    kernel = jnp.exp(-0.5 * jnp.square(distance / max(width, 1)))

    def at(t: Array) -> Linear:
        near = jnp.clip(t + distance, 0, time - 1)
        inside = (t + distance >= 0) & (t + distance < time)
        weight = jnp.where(inside[:, None] & mask[near], kernel[:, None], 0).reshape(-1)
        weight = weight / jnp.maximum(weight.sum(), TINY)
        inputs, outputs = (side[near].reshape(-1, side.shape[2]) for side in (x, y))
        means = weight @ inputs, weight @ outputs
        inputs, outputs = inputs - means[0], outputs - means[1]
        weighted = weight[:, None] * inputs
        scatter = inputs.T @ weighted + ridge * jnp.eye(inputs.shape[1], dtype=x.dtype)
        matrix = jnp.linalg.solve(scatter, weighted.T @ outputs).T  # line 1
        residual = outputs - inputs @ matrix.T
        return Linear(matrix, means[1] - matrix @ means[0], residual.T @ (weight[:, None] * residual))  # line 2

    return jax.vmap(at)(jnp.arange(time))


def fit_dynamics(
    states: Float[Array, "t n x"],
    actions: Float[Array, "t n u"],
    following: Float[Array, "t n x"],
    mask: Bool[Array, "t n"],
    width: int,
    ridge: float | Array,
) -> Dynamics:
    """The dynamics of n episodes that start alike. `ridge` is also the smallest variance of their noise."""
    size, count = states.shape[2], jnp.maximum(mask[0].sum(), 1)
    model = fit_linear(jnp.concatenate([states, actions], axis=2), following - states, mask, width, ridge)
    stays = jnp.concatenate([jnp.eye(size), jnp.zeros((size, actions.shape[2]))], axis=1)
    mean = jnp.where(mask[0, :, None], states[0], 0).sum(0) / count
    apart = jnp.where(mask[0, :, None], states[0] - mean, 0)
    least = ridge * jnp.eye(size)
    return Dynamics(model.matrix + stays, model.offset, model.noise + least, mean, apart.T @ apart / count + least)


def fit_controller(
    states: Float[Array, "t n x"],
    actions: Float[Array, "t n u"],
    noise: Float[Array, "u u"],
    mask: Bool[Array, "t n"],
    width: int,
    ridge: float | Array,
) -> Controller:
    """A policy near the states of n episodes, as a linear-Gaussian controller: its mean actions there, and its noise.

    The residuals add to the noise: where the policy is not linear, it is known less well.
    """
    model = fit_linear(states, actions, mask, width, ridge)
    return Controller(model.matrix, model.offset, model.noise + noise)
