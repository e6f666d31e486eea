"""LEARCH: a positive cost whose logarithm rises where the planner goes and falls where the expert goes.

It matches reward moments and is a dual algorithm: the cost takes functional gradient steps, and the policy
best-responds. The objective is that of maximum margin planning without its regulariser, as a functional of the cost c
> 0, one number for each (t, s, a). Its gradient is d_E − d^π, the expert's visits minus the planner's. Steps are taken
in log c, along the linear function of the features that is closest in direction:

    c = exp(h),    h = φ · θ,    argmax over ‖v‖ ≤ 1 of Σ (d^π − d_E) (φ · v)  ∝  μ(π) − μ_E

    Input: expert's moments μ_E, features φ, margin m, step η
    1. θ ← 0, so c = 1
    2. for k = 1, 2, ...:
    3.     π ← argmin_π E_π Σ_t exp(φ_t · θ) − ℓ_t                  ℓ = m where the expert never goes
    4.     θ ← θ + η (μ(π) − μ_E)                                   c ← c · exp(η φ · (μ(π) − μ_E))
    5.     d̄ ← d̄ + (d^π − d̄) / k;  stop if ‖μ̄ − μ_E‖ ≤ tolerance

The returned policy has the occupancy d̄.

What it matches: line 4 adds up to θ = η k (μ̄ − μ_E), so the mixture's error is ‖θ‖ / ηk. A best response to exp(φ ·
θ) is not one to φ · θ. With a long step, θ can get to where the planner stays on a wrong path. The error then remains,
and `Matched.met` is False. A short step avoids this. With B = max ‖φ_t(s, a)‖, no margin and η = 1 / (e B² K), c is so
close to 1 + h for K rounds that the error after them is at most 2 B √((e − 1) / K).

Reference: Ratliff, Silver and Bagnell, "Learning to Search: Functional Gradient Techniques for Imitation Learning"
(2009).

Deviations: the paper fits a regressor or classifier to the planner's and the expert's points, and its cost is a sum of
these. Here log c is a linear function along the gradient, without a fit, so that line 4 adds up. The margin is a
setting, 0 by default, because a stochastic expert has no margin. The paper returns the cost and plans with it; this
also returns the mixture of the plans, which matches the moments.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from understudy.core.arrays import Array
from understudy.core.errors import check_not_negative, check_positive
from understudy.game import Card
from understudy.tabular.classical.matching import (
    Matched,
    Weights,
    check,
    linear,
    matched,
    moments,
    unvisited,
)
from understudy.tabular.compiling import over_batches
from understudy.tabular.mdp import FiniteMDP, Table
from understudy.tabular.planning import best_response, collapse, occupancy

CARD = Card(
    name="learch",
    title="LEARCH",
    moments="reward",
    solver="dual",
    needs=("demonstrations", "environment"),
    actions=("discrete",),
    collects="the best response to the positive cost, by dynamic programming, and its moments",
    reference="Ratliff et al. 2009",
)


def learch(
    mdp: FiniteMDP,
    features: Any,
    expert: Any,
    margin: float = 0.0,
    step: float = 0.01,
    tolerance: float = 1e-2,
    max_iterations: int = 100_000,
) -> Matched:
    """The mixture of responses, as one policy, and the weights of the cost exp(φ · weights). η is `step` / B²."""
    check(mdp, features, expert, tolerance, max_iterations)
    check_not_negative(margin=margin)
    check_positive(step=step)
    return _learch(mdp, features, expert, margin, step, tolerance, max_iterations)


@over_batches
def _learch(
    mdp: FiniteMDP,
    features: Float[Array, "... k"],
    expert: Table,
    margin: Float[Array, ""],
    step: Float[Array, ""],
    tolerance: Float[Array, ""],
    max_iterations: Int[Array, ""],
) -> Matched:
    of_expert = occupancy(mdp, expert)
    target, loss = moments(features, of_expert), margin * unvisited(of_expert)
    largest = jnp.sum(features**2, axis=-1).max()
    eta = step / jnp.where(largest > 0, largest, 1.0)

    def boost(carry: tuple[Array, Weights, Table, Array]) -> tuple[Array, Weights, Table, Array]:
        k, theta, average, _ = carry
        k = k + 1  # line 2
        h = linear(mdp, features, theta)
        # Divided by the largest cost: this changes no response and cannot overflow.
        visited = occupancy(mdp, best_response(mdp, jnp.exp(h - h.max()) - loss * jnp.exp(-h.max())))  # line 3
        theta = theta + eta * (moments(features, visited) - target)  # line 4
        average = average + (visited - average) / k  # line 5
        return k, theta, average, jnp.linalg.norm(moments(features, average) - target)

    def unmet(carry: tuple[Array, Weights, Table, Array]) -> Array:
        return (carry[3] > tolerance) & (carry[0] < max_iterations)

    start = (jnp.zeros((), int), jnp.zeros(features.shape[-1]), jnp.zeros(mdp.shape), jnp.full((), jnp.inf))  # line 1
    k, theta, average, _ = jax.lax.while_loop(unmet, boost, start)
    return matched(mdp, features, target, collapse(mdp, average), theta, k, tolerance)
