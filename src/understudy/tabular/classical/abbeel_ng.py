"""Apprenticeship learning by projection: move the average of best responses towards the expert's moments.

It matches reward moments and is a dual algorithm: the cost points where the average differs most from the expert, and
the policy best-responds. No single response needs to match. Their mixture does, and one policy has its occupancy.

    Input: expert's moments μ_E, features φ
    1. d̄ ← occupancy of the uniform policy
    2. θ ← μ̄ − μ_E, where μ̄ = (1/T) Σ d̄ · φ                      θ / ‖θ‖ is the unit cost of largest payoff
    3. stop if ‖θ‖ ≤ tolerance
    4. π ← argmin_π E_π Σ_t φ_t · θ
    5. d̄ ← d̄ + η (d^π − d̄), η = θ · (μ̄ − μ(π)) / ‖μ̄ − μ(π)‖², which brings μ̄ nearest to μ_E; go to 2

The returned policy has the occupancy d̄.

η is at most 1, because the response is at least as good as the expert under θ. This is the Frank-Wolfe method on
½ ‖μ̄ − μ_E‖²: line 5 never increases the error, and after k rounds it is at most 2 D / √(k + 2), where D is the largest
distance between two policies' moments. Convergence is geometric if the expert's moments are in the interior of the
reachable moments, for example if the expert takes every action.

Reference: Abbeel and Ng, "Apprenticeship Learning via Inverse Reinforcement Learning" (2004), the projection method of
section 3.1; Syed and Schapire, "A Game-Theoretic Approach to Apprenticeship Learning" (2007) and, for the mixture as
one policy, Syed, Bowling and Schapire, "Apprenticeship Learning Using Linear Programming" (2008).

Deviations: moments are means over a finite horizon, not discounted sums, and the expert's are exact. φ · θ is a cost,
not a reward. The paper returns all policies, or their mixture; this returns one policy with the mixture's occupancy.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from understudy.core.arrays import Array
from understudy.game import Card
from understudy.tabular.classical.matching import Matched, check, linear, matched, moments
from understudy.tabular.compiling import over_batches
from understudy.tabular.mdp import FiniteMDP, Table
from understudy.tabular.planning import best_response, collapse, occupancy, uniform

CARD = Card(
    name="abbeel-ng",
    title="Apprenticeship (Abbeel-Ng)",
    moments="reward",
    solver="dual",
    needs=("demonstrations", "environment"),
    actions=("discrete",),
    collects="the best response to the cost, by dynamic programming, and its moments",
    reference="Abbeel and Ng 2004",
)


def abbeel_ng(
    mdp: FiniteMDP, features: Any, expert: Any, tolerance: float = 1e-2, max_iterations: int = 100_000
) -> Matched:
    """A mixture of best responses that matches the expert's moments, as one policy. The weights are μ(π) − μ_E."""
    check(mdp, features, expert, tolerance, max_iterations)
    return _abbeel_ng(mdp, features, expert, tolerance, max_iterations)


@over_batches
def _abbeel_ng(
    mdp: FiniteMDP,
    features: Float[Array, "... k"],
    expert: Table,
    tolerance: Float[Array, ""],
    max_iterations: Int[Array, ""],
) -> Matched:
    target = moments(features, occupancy(mdp, expert))

    def project(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, average, theta = carry
        visited = occupancy(mdp, best_response(mdp, linear(mdp, features, theta)))  # line 4
        back = theta + target - moments(features, visited)
        size = back @ back
        eta = jnp.clip(theta @ back / jnp.where(size > 0, size, 1.0), 0.0, 1.0)  # line 5; clipped against rounding
        average = average + eta * (visited - average)
        return k + 1, average, moments(features, average) - target  # line 2

    def unmet(carry: tuple[Array, Array, Array]) -> Array:
        return (jnp.linalg.norm(carry[2]) > tolerance) & (carry[0] < max_iterations)  # line 3

    average = occupancy(mdp, uniform(mdp))  # line 1
    start = (jnp.zeros((), int), average, moments(features, average) - target)
    k, average, theta = jax.lax.while_loop(unmet, project, start)
    return matched(mdp, features, target, collapse(mdp, average), theta, k, tolerance)
