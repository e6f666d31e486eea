"""Dynamic programming on finite-horizon MDPs: values, occupancies and responses of time-dependent policies.

Every function computes in float64, takes NumPy or JAX arrays, and takes one MDP or a batch. `samples` returns an
occupancy as weighted (t, s, a) for the functions in `payoffs`, so that exact and sampled games share that code.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array
from understudy.core.errors import SpecError
from understudy.core.types import Samples
from understudy.tabular.compiling import over_batches
from understudy.tabular.mdp import FiniteMDP, Table, check_distribution, check_policy, check_single


@over_batches
def q_values(mdp: FiniteMDP, reward: Table, policy: Table) -> Table:
    """Q^π_t(s, a) = r_t(s, a) + E_{s'} E_{a' ~ π_{t+1}} Q^π_{t+1}(s', a')."""

    def backward(value: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        reward_t, policy_t = at
        q = reward_t + mdp.dynamics.expect(value)
        return jnp.sum(policy_t * q, axis=-1), q

    return jax.lax.scan(backward, jnp.zeros_like(mdp.initial), (reward, policy), reverse=True)[1]


@over_batches
def values(mdp: FiniteMDP, reward: Table, policy: Table) -> Float[Array, "t s"]:
    """V^π_t(s) = E_{a ~ π_t(s)} Q^π_t(s, a)."""
    return jnp.sum(policy * q_values(mdp, reward, policy), axis=-1)


@over_batches
def advantages(mdp: FiniteMDP, reward: Table, policy: Table) -> Table:
    """A^π_t(s, a) = Q^π_t(s, a) − V^π_t(s)."""
    q = q_values(mdp, reward, policy)
    return q - jnp.sum(policy * q, axis=-1, keepdims=True)


@over_batches
def occupancy(mdp: FiniteMDP, policy: Table) -> Table:
    """d_t(s, a): the probability of being in s and taking a at time t."""

    def forward(state: Array, policy_t: Array) -> tuple[Array, Array]:
        visited = state[:, None] * policy_t
        return mdp.dynamics.push(visited), visited

    return jax.lax.scan(forward, mdp.initial, policy)[1]


@over_batches
def performance(mdp: FiniteMDP, reward: Table, policy: Table) -> Float[Array, ""]:
    """J(π) = E Σ_t r_t(s_t, a_t)."""
    return jnp.sum(occupancy(mdp, policy) * reward)


@over_batches
def imitation_gap(mdp: FiniteMDP, reward: Table, expert: Table, policy: Table) -> Float[Array, ""]:
    """J(π_E) − J(π), as Σ_t E_{s ~ π} Σ_a (π_E − π)(a | s) A^{π_E}_t(s, a), which is more exact than subtracting."""
    visited = occupancy(mdp, policy).sum(-1, keepdims=True)
    return jnp.sum(visited * (expert - policy) * advantages(mdp, reward, expert))


@over_batches
def samples(mdp: FiniteMDP, policy: Table) -> Samples:
    """Every (t, s, a), weighted by d_t(s, a) / T: an exact expectation (1/T) Σ_t E f_t(s_t, a_t)."""
    visited = occupancy(mdp, policy)
    t, s, a = (index.ravel() for index in jnp.indices(visited.shape))
    return Samples(t, s, a, visited.ravel() / mdp.horizon)


@over_batches
def causal_entropy(mdp: FiniteMDP, policy: Table) -> Float[Array, ""]:
    """H(π) = −E_π Σ_t log π_t(a_t | s_t)."""
    visited = occupancy(mdp, policy)
    return -jnp.sum(jnp.where(policy > 0, visited * jnp.log(jnp.where(policy > 0, policy, 1.0)), 0.0))


@over_batches
def uniform(mdp: FiniteMDP) -> Table:
    """The policy that takes each available action with equal probability."""
    return jnp.broadcast_to(mdp.available / mdp.available.sum(-1, keepdims=True), mdp.shape)


@over_batches
def best_response(mdp: FiniteMDP, cost: Table) -> Table:
    """argmin_π E_π Σ_t cost_t(s_t, a_t), by backward induction. Ties go to the first action."""

    def backward(value: Array, cost_t: Array) -> tuple[Array, Array]:
        q = jnp.where(mdp.available, cost_t + mdp.dynamics.expect(value), jnp.inf)
        return q.min(-1), jax.nn.one_hot(q.argmin(-1), mdp.actions, dtype=q.dtype)

    return jax.lax.scan(backward, jnp.zeros_like(mdp.initial), cost, reverse=True)[1]


@over_batches
def soft_response(mdp: FiniteMDP, cost: Table, temperature: Float[Array, ""]) -> Table:
    """argmin_π E_π Σ_t cost_t(s_t, a_t) − α H(π), with temperature α and causal entropy H: a soft backward pass,

    π_t(a | s) ∝ exp(−Q_t(s, a) / α),   Q_t = cost_t + E V_{t+1},   V_t = −α log Σ_a exp(−Q_t / α)
    """

    def backward(value: Array, cost_t: Array) -> tuple[Array, Array]:
        q = cost_t + mdp.dynamics.expect(value)
        logits = jnp.where(mdp.available, -q / temperature, -jnp.inf)
        return -temperature * jax.nn.logsumexp(logits, axis=-1), jax.nn.softmax(logits, axis=-1)

    return jax.lax.scan(backward, jnp.zeros_like(mdp.initial), cost, reverse=True)[1]


@over_batches
def collapse(mdp: FiniteMDP, visited: Table) -> Table:
    """The policy with the occupancy `visited`, such as that of a mixture: π_t(a | s) = d_t(s, a) / d_t(s).

    It is uniform where d_t(s) is zero. (Syed, Bowling and Schapire, 2008.)
    """
    total = visited.sum(-1, keepdims=True)
    return jnp.where(total > 0, visited / jnp.where(total > 0, total, 1.0), uniform(mdp))


def mixture(mdp: FiniteMDP, policies: Any, weights: Any) -> Table:
    """The policy with the occupancy of a mixture that draws one policy per episode, with probabilities `weights`."""
    check_single(mdp)
    for index, policy in enumerate(policies):
        check_policy(mdp, policy, f"policy {index}")
    check_distribution("weights", weights)
    if np.shape(weights) != (len(policies),):
        raise SpecError(
            f"weights have shape {np.shape(weights)}: one weight for each of {len(policies)} policies is needed"
        )
    visited = np.stack([occupancy(mdp, policy) for policy in policies])
    return collapse(mdp, np.tensordot(np.asarray(weights, np.float64), visited, axes=1))
