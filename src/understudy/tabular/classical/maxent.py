"""Maximum-entropy inverse optimal control: the policy of largest entropy among those with the expert's moments.

It matches reward moments and is a dual algorithm: the cost ascends, and the policy best-responds. The response is
entropy-regularised, so it is unique and smooth in the cost. The algorithm finds the saddle point itself, not an
average:

    max_θ  g(θ),    g(θ) = min_π  θ · (μ(π) − μ_E) − (α/T) H(π),    ∇g(θ) = μ(π_θ) − μ_E

g is concave. Where its gradient is zero, π_θ has the expert's moments, and by duality it has the largest entropy.

    Input: expert's moments μ_E, features φ, temperature α
    1. θ ← 0
    2. π ← argmin_π E_π Σ_t φ_t · θ − α H(π)                      one soft backward pass
    3. stop if ‖μ(π) − μ_E‖ ≤ tolerance
    4. v ← solution of −∇²g(θ) v = ∇g(θ)                           conjugate gradients
    5. θ ← θ + η v, η the first of 1, ½, ¼, ... that raises g enough; go to 2

If the expert never takes some action, its moments are on the boundary of the reachable moments. No θ attains them, but
the error falls below any tolerance as ‖θ‖ grows.

Reference: Ziebart, Maas, Bagnell and Dey, "Maximum Entropy Inverse Reinforcement Learning" (2008); Ziebart, Bagnell and
Dey, "Modeling Interaction via the Principle of Maximum Causal Entropy" (2010).

Deviations: the entropy is the causal entropy of 2010. It agrees with the distribution over paths of 2008 if dynamics
are deterministic. φ · θ is a cost, not a reward. The papers use gradient ascent, or exponentiated gradients. This uses
a truncated Newton method, because the dual is smooth and gradient ascent takes thousands of passes to reach 1e-8. The
expert's moments have no sampling error, so g has no regulariser.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from understudy.core.arrays import Array
from understudy.core.errors import check_positive
from understudy.game import Card
from understudy.tabular.classical.matching import Matched, Weights, check, linear, matched, moments
from understudy.tabular.compiling import over_batches
from understudy.tabular.mdp import FiniteMDP, Table
from understudy.tabular.planning import causal_entropy, occupancy, soft_response

CARD = Card(
    name="maxent",
    title="MaxEnt IOC",
    moments="reward",
    solver="dual",
    needs=("demonstrations", "environment"),
    actions=("discrete",),
    collects="the soft best response to the cost, by dynamic programming, and its moments",
    reference="Ziebart et al. 2008, 2010",
)
ARMIJO = 1e-4
"""The fraction of the linear increase that a step must achieve."""
ROUNDING = 1e-13
"""A decrease of g of this relative size counts as rounding."""
MIN_STEP = 2.0**-40
"""The smallest step size of the line search."""


def maxent(
    mdp: FiniteMDP,
    features: Any,
    expert: Any,
    temperature: float = 1.0,
    tolerance: float = 1e-8,
    max_iterations: int = 200,
) -> Matched:
    """The policy of largest causal entropy with the expert's moments: the soft response to the cost φ · weights."""
    check(mdp, features, expert, tolerance, max_iterations)
    check_positive(temperature=temperature)
    return _maxent(mdp, features, expert, temperature, tolerance, max_iterations)


@over_batches
def _maxent(
    mdp: FiniteMDP,
    features: Float[Array, "... k"],
    expert: Table,
    temperature: Float[Array, ""],
    tolerance: Float[Array, ""],
    max_iterations: Int[Array, ""],
) -> Matched:
    target = moments(features, occupancy(mdp, expert))

    def respond(theta: Weights) -> Table:
        return soft_response(mdp, linear(mdp, features, theta), temperature)  # line 2

    def at(theta: Weights) -> tuple[Weights, Array, Weights]:
        """θ, g(θ), ∇g(θ)."""
        policy = respond(theta)
        gradient = moments(features, occupancy(mdp, policy)) - target
        return theta, theta @ gradient - temperature / mdp.horizon * causal_entropy(mdp, policy), gradient

    def newton(theta: Weights, gradient: Weights) -> Weights:
        def curvature(v: Weights) -> Weights:
            return -jax.jvp(lambda x: at(x)[2], (theta,), (v,))[1]

        precision = jnp.minimum(0.1, jnp.linalg.norm(gradient))
        solve: Any = jax.scipy.sparse.linalg.cg
        v, _ = solve(curvature, gradient, tol=precision, maxiter=2 * theta.size)  # line 4
        return jnp.where(v @ gradient > 0, v, gradient)  # v · ∇g ≤ 0 happens only by rounding

    def step(carry: tuple[Array, Any, Array]) -> tuple[Array, Any, Array]:
        k, (theta, value, gradient), _ = carry
        v = newton(theta, gradient)
        slack = ROUNDING * (1 + abs(value) + jnp.linalg.norm(theta))

        def low(tried: tuple[Array, Any]) -> Array:
            eta, (_, reached, _) = tried
            return ~(reached >= value + ARMIJO * eta * (v @ gradient) - slack) & (eta > MIN_STEP)

        def halve(tried: tuple[Array, Any]) -> tuple[Array, Any]:
            return tried[0] / 2, at(theta + tried[0] / 2 * v)

        eta, best = jax.lax.while_loop(low, halve, (jnp.ones(()), at(theta + v)))  # line 5
        return k + 1, best, eta > MIN_STEP

    def unmet(carry: tuple[Array, Any, Array]) -> Array:
        k, (_, _, gradient), moved = carry
        return (jnp.linalg.norm(gradient) > tolerance) & (k < max_iterations) & moved  # line 3

    start = at(jnp.zeros(features.shape[-1]))  # line 1
    k, (theta, _, _), _ = jax.lax.while_loop(unmet, step, (jnp.zeros((), int), start, jnp.array(True)))
    return matched(mdp, features, target, respond(theta), theta, k, tolerance)
