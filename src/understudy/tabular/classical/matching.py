"""Shared parts of the classical algorithms: features, the moments of a policy, the result, and checks.

    f_t(s, a) = φ_t(s, a) · θ        μ(π) = (1/T) Σ_t E_π φ_t(s_t, a_t)        U1(π, f) = θ · (μ(π) − μ_E)

f is a cost that is linear in given features, and μ_E = μ(π_E). The error ‖μ(π) − μ_E‖₂ is the largest payoff of the
reward game over ‖θ‖₂ ≤ 1. For any reward r = φ · θ in the span of the features, the gap is at most T ‖θ‖₂ · error.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from understudy.core.arrays import Array
from understudy.core.errors import SpecError, check_positive, check_whole
from understudy.tabular.compiling import over_batches
from understudy.tabular.mdp import FiniteMDP, Table, check_policy
from understudy.tabular.planning import occupancy

Weights = Float[Array, " k"]


class Matched(NamedTuple):
    """A policy and the distance of its moments from the expert's. For a batch of MDPs, one of each."""

    policy: Table
    weights: Weights
    """θ: the weights of the final cost."""
    error: Float[Array, "*batch"]
    """‖μ(π) − μ_E‖₂ of this policy."""
    iterations: Int[Array, "*batch"]
    tolerance: Float[Array, "*batch"]
    """The requested error."""

    @property
    def met(self) -> Bool[Array, "*batch"]:
        """Whether the error is within the tolerance. False if the iterations ran out."""
        return self.error <= self.tolerance


def feature_moments(mdp: FiniteMDP, features: Any, policy: Any) -> Float[Array, "*batch k"]:
    """μ(π) = (1/T) Σ_t E_π φ_t(s_t, a_t), for features [s, a, k] (stationary) or [t, s, a, k]."""
    check_policy(mdp, policy)
    check_features(mdp, features)
    return _feature_moments(mdp, features, policy)


@over_batches
def _feature_moments(mdp: FiniteMDP, features: Float[Array, "... k"], policy: Table) -> Weights:
    return moments(features, occupancy(mdp, policy))


def moments(features: Float[Array, "... k"], visited: Table) -> Weights:
    """(1/T) Σ_t Σ_{s, a} d_t(s, a) φ_t(s, a)."""
    total = visited if features.ndim == 4 else visited.sum(0)
    return jnp.tensordot(total, features, axes=total.ndim) / visited.shape[0]


def linear(mdp: FiniteMDP, features: Float[Array, "... k"], weights: Weights) -> Table:
    """f_t(s, a) = φ_t(s, a) · θ."""
    return jnp.broadcast_to(features @ weights, mdp.shape)


def unvisited(visited: Table) -> Table:
    """1 where the expert never goes, else 0: the loss of the margin methods, linear in occupancies."""
    return (visited == 0).astype(visited.dtype)


def matched(
    mdp: FiniteMDP,
    features: Float[Array, "... k"],
    target: Weights,
    policy: Table,
    weights: Weights,
    iterations: Int[Array, ""],
    tolerance: Float[Array, ""],
) -> Matched:
    """The result, with the error of the returned policy."""
    error = jnp.linalg.norm(_feature_moments(mdp, features, policy) - target)
    return Matched(policy, weights, error, iterations, tolerance)


def check(mdp: FiniteMDP, features: Any, expert: Any, tolerance: Any, max_iterations: Any) -> None:
    """Check the arguments that all algorithms here share."""
    check_policy(mdp, expert, "the expert")
    check_features(mdp, features)
    check_positive(tolerance=tolerance)
    check_whole(1, max_iterations=max_iterations)


def check_features(mdp: FiniteMDP, features: Any) -> None:
    """Raise unless the features are finite numbers [s, a, k] or [t, s, a, k]."""
    values = numbers(features, "the features")
    batch = mdp.available.shape[:-2]
    tables = [(*batch, *mdp.shape[1:]), (*batch, *mdp.shape)]
    if values.shape[:-1] not in tables or values.shape[-1] == 0:
        raise SpecError(f"the features have shape {values.shape}: {(*tables[0], 'k')} or {(*tables[1], 'k')} is needed")


def numbers(values: Any, name: str) -> np.ndarray:
    """Convert to an array of finite float64 numbers, or raise."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{name} are not an array of numbers: {str(error).splitlines()[0]}") from error
    if not np.isfinite(array).all():
        raise SpecError(
            f"{name} {np.argwhere(~np.isfinite(array))[0].tolist()} are not finite: finite numbers are needed"
        )
    return array
