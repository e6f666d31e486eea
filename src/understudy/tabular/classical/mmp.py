"""Maximum margin planning: a cost under which the expert beats every policy by a margin that grows with their loss.

It matches reward moments and is a dual algorithm: the cost takes subgradient steps, and the policy best-responds. Let
ℓ_t(s, a) = m where the expert never goes and 0 elsewhere, and L(π) = (1/T) Σ_t E_π ℓ_t. It minimises

    c(θ) = λ/2 ‖θ‖² + max_π [ L(π) − θ · (μ(π) − μ_E) ]

The second term is the slack ξ: the largest violation of θ · (μ(π) − μ_E) ≥ L(π) by any policy.

    Input: expert's moments μ_E, features φ, margin m, regularisation λ
    1. θ ← 0
    2. for k = 1, 2, ...:
    3.     π ← argmin_π E_π Σ_t φ_t · θ − ℓ_t                       the loss-augmented best response
    4.     θ ← θ − (λ θ + μ_E − μ(π)) / (λ k)                       a subgradient of c, with step 1 / λk
    5.     d̄ ← d̄ + (d^π − d̄) / k;  stop if ‖μ̄ − μ_E‖ ≤ tolerance

The returned policy has the occupancy d̄.

What it matches: by line 4, λ θ is the mean over rounds of μ(π) − μ_E, so the mixture of responses has the error λ ‖θ‖,
exactly. The same lines are the Frank-Wolfe method with step sizes 1/k on ½ ‖μ̄ − μ_E‖² − λ L. After k rounds

    error² ≤ 2 λ m + D² (1 + ln k) / k,       D the largest distance between two policies' moments

so the default λ = tolerance² / 4m is small enough for any tolerance.

The meaning of its cost: a policy π costs θ · (μ(π) − μ_E) ≥ L(π) − ξ more than the expert. Let the expert be
deterministic. If ξ is below the smallest L of any deterministic policy that differs from the expert on its path, the
best response to the cost, without loss, is the expert. Such weights exist if the expert is the only best response to
some θ, and minimising c with a small enough λ finds them. But line 5 may stop long before, at the error of the mixture.
`slack` computes ξ.

Reference: Ratliff, Bagnell and Zinkevich, "Maximum Margin Planning" (2006).

Deviations: there is one MDP with one expert, who may be stochastic; the loss is zero on all its actions. The cost need
not be positive, because the horizon is fixed. The paper returns θ and plans with it, which reproduces the expert's
moments only if the expert is a best response. The mixture matches the moments of any expert.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from understudy.core.arrays import Array
from understudy.core.errors import SpecError, check_positive
from understudy.game import Card
from understudy.tabular.classical.matching import (
    Matched,
    Weights,
    check,
    check_features,
    linear,
    matched,
    moments,
    numbers,
    unvisited,
)
from understudy.tabular.compiling import over_batches
from understudy.tabular.mdp import FiniteMDP, Table, check_policy
from understudy.tabular.planning import best_response, collapse, occupancy

CARD = Card(
    name="mmp",
    title="Maximum margin planning",
    moments="reward",
    solver="dual",
    needs=("demonstrations", "environment"),
    actions=("discrete",),
    collects="the loss-augmented best response to the cost, by dynamic programming, and its moments",
    reference="Ratliff et al. 2006",
)


def mmp(
    mdp: FiniteMDP,
    features: Any,
    expert: Any,
    margin: float = 1.0,
    regularisation: float | None = None,
    tolerance: float = 1e-2,
    max_iterations: int = 100_000,
) -> Matched:
    """The mixture of loss-augmented responses, as one policy, and the weights of the cost."""
    check(mdp, features, expert, tolerance, max_iterations)
    check_positive(margin=margin)
    regularisation = tolerance**2 / (4 * margin) if regularisation is None else regularisation
    check_positive(regularisation=regularisation)
    return _mmp(mdp, features, expert, margin, regularisation, tolerance, max_iterations)


@over_batches
def _mmp(
    mdp: FiniteMDP,
    features: Float[Array, "... k"],
    expert: Table,
    margin: Float[Array, ""],
    regularisation: Float[Array, ""],
    tolerance: Float[Array, ""],
    max_iterations: Int[Array, ""],
) -> Matched:
    of_expert = occupancy(mdp, expert)
    target, loss = moments(features, of_expert), margin * unvisited(of_expert)

    def descend(carry: tuple[Array, Weights, Table, Array]) -> tuple[Array, Weights, Table, Array]:
        k, theta, average, _ = carry
        k = k + 1  # line 2
        visited = occupancy(mdp, best_response(mdp, linear(mdp, features, theta) - loss))  # line 3
        subgradient = regularisation * theta + target - moments(features, visited)
        theta = theta - subgradient / (regularisation * k)  # line 4
        average = average + (visited - average) / k  # line 5
        return k, theta, average, jnp.linalg.norm(moments(features, average) - target)

    def unmet(carry: tuple[Array, Weights, Table, Array]) -> Array:
        return (carry[3] > tolerance) & (carry[0] < max_iterations)

    start = (jnp.zeros((), int), jnp.zeros(features.shape[-1]), jnp.zeros(mdp.shape), jnp.full((), jnp.inf))  # line 1
    k, theta, average, _ = jax.lax.while_loop(unmet, descend, start)
    return matched(mdp, features, target, collapse(mdp, average), theta, k, tolerance)


def slack(mdp: FiniteMDP, features: Any, expert: Any, weights: Any, margin: float = 1.0) -> Float[Array, "*batch"]:
    """ξ = max_π L(π) − θ · (μ(π) − μ_E): the largest violation of the margin by a policy. Never negative."""
    check_policy(mdp, expert, "the expert")
    check_features(mdp, features)
    check_positive(margin=margin)
    count = (*mdp.initial.shape[:-1], np.shape(features)[-1])
    if numbers(weights, "the weights").shape != count:
        raise SpecError(f"the weights have shape {np.shape(weights)}: {count} is needed, one weight per feature")
    return _slack(mdp, features, expert, weights, margin)


@over_batches
def _slack(
    mdp: FiniteMDP, features: Float[Array, "... k"], expert: Table, weights: Weights, margin: Float[Array, ""]
) -> Float[Array, ""]:
    of_expert = occupancy(mdp, expert)
    loss = margin * unvisited(of_expert)
    visited = occupancy(mdp, best_response(mdp, linear(mdp, features, weights) - loss))
    ahead = weights @ (moments(features, visited) - moments(features, of_expert))
    return jnp.sum(visited * loss) / mdp.horizon - ahead
