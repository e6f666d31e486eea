"""The moment functions of AdRIL in the function space of a Gaussian kernel, by random features or by sampled points.

    FeatureMoments   −f(x) = w · φ(x)             φ are the kernel's random features
    PointMoments     −f(x) = Σ_j w_j k(x_j, x)    exact, on a sample of steps of both sides

The absorbing state is a point of its own: the kernel of it and any other state is 0.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from understudy.algorithms.reward.averages import Sums
from understudy.algorithms.reward.moments import Counts, RewardMoments
from understudy.core.types import Transition
from understudy.game.kernels import GaussianKernel

Inner = Callable[[Array, Array], Float[Array, ""]]
"""The inner product of two functions by their weights."""


def scaled(
    absorbing: Float[Array, ""], weights: Array, inner: Inner, expert: Array, mean_kernel: bool, unit_norm: bool
) -> tuple[Float[Array, ""], Array]:
    """−f in the absorbing state and its weights elsewhere, with `unit_norm` over the norm of f.

    `absorbing` is the difference of the shares of time there. `expert` are the weights of the expert's mean: its square
    is the mean kernel between its steps, which with `mean_kernel` is the absorbing state's kernel with itself, else 1.
    """
    kernel = inner(expert, expert) if mean_kernel else jnp.ones(())
    norm = jnp.ones(())
    if unit_norm:
        squared = inner(weights, weights) + kernel * jnp.square(absorbing)
        norm = jnp.sqrt(jnp.maximum(squared, 1e-12))  # rounding makes a square negative
    return kernel * absorbing / norm, weights / norm


class KernelMoments(RewardMoments):
    """Abstract base class of Gaussian-kernel moments. The kernel of the absorbing state and any other state is 0."""

    kernel: GaussianKernel
    absorbing: Float[Array, ""]
    """−f in the absorbing state."""

    def absorbing_reward(self, counts: Counts, balanced: bool) -> Float[Array, ""]:
        return self.absorbing


class FeatureMoments(KernelMoments):
    """−f(x) = w · φ(x)."""

    weights: Float[Array, " D"]
    learner: Sums
    """The learner's side, over all earlier rounds."""

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        return self.kernel.features(self.kernel.points(steps)) @ self.weights

    def bound(self) -> Float[Array, ""]:
        return jnp.sqrt(2.0) * jnp.linalg.norm(self.weights)  # ‖φ‖ ≤ √2


class PointMoments(KernelMoments):
    """−f(x) = Σ_j w_j k(x_j, x)."""

    points: Float[Array, "m d"]
    weights: Float[Array, " m"]

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        return self.kernel(self.kernel.points(steps), self.points) @ self.weights

    def bound(self) -> Float[Array, ""]:
        positive, negative = jnp.maximum(self.weights, 0).sum(), jnp.maximum(-self.weights, 0).sum()
        return jnp.maximum(positive, negative)  # 0 ≤ k ≤ 1
