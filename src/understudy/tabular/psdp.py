"""Reward moments for T' steps followed by a Q-moment, and their limit, PSDP: the second half of the supplement.

A Q-function is the sum of T' rewards along a rollout plus the Q-function after them. For costs f and g, along π from
(s, a), with 0 after the horizon:

    C_t(s, a) = E[ f_t + ... + f_{t+T'−1} + g_{t+T'} | s_t = s, a_t = a, then π ]                                    (1)

    off-Q    U(π, (f, g)) = (1/T) Σ_t E_{s ~ d^E_t} [E_{a ~ π_t} − E_{a ~ π_E}] C_t(s, a),   C along π               (2)
    on-Q     U(π, (f, g)) = (1/T) Σ_t E_{s ~ d^π_t} [E_{a ~ π_t} − E_{a ~ π_E}] C_t(s, a),   C along π_E             (3)

At f = −r and g = −Q^π (−Q^{π_E} for on-Q), C is −Q for every T', and U is (J(π_E) − J(π)) / T. The sums telescope. Let
ρ^j_t be the distribution of (s_t, a_t) if π_E acts before t − j and π from then on, with ρ^{−1} = d^E. Let σ^j be the
same with the two policies exchanged. Then

    off-Q    U = (1/T) Σ_t [ρ^{T'−1}_t − ρ^{−1}_t] · f_t + [ρ^{T'}_t − ρ^{T'−1}_t] · g_t                             (4)
    on-Q     U = (1/T) Σ_t [σ^{−1}_t − σ^{T'−1}_t] · f_t + [σ^{T'−1}_t − σ^{T'}_t] · g_t                             (5)

So T' = 0 is U2 (U3) at g, and T' ≥ T is U1 at f. In between, f and g share the gap (with F_QE for F_Q in on-Q):

    J(π_E) − J(π) ≤ 2T · sup_{f ∈ F_r/2} U + 2T² · sup_{g ∈ F_Q/2T} U ≤ 2T² · sup_{(f, g)} U                         (6)

PSDP uses T' ≥ T with a separate f for every t. It goes backwards from the last step. With π_{t+1}, ..., π_{T−1} fixed
it chooses

    π_t ∈ argmin over Π of ε_t = sup_{f ∈ F_r} E_{s ~ d^E_t} [E_{a ~ π_t} − E_{a ~ π_E}] C_t(s, a)                   (7)
    J(π_E) − J(π) ≤ Σ_t ε_t                                                                                          (8)

C_t follows the learner's own later steps, so (7) needs the dynamics, or a simulator that can be reset to demonstrated
states. Off-Q moments need neither. For on-Q moments there is no such order, because d^π_t depends on the earlier steps.

Reference: Swamy et al. (2021), supplement, "Combining Reward and Value Moments"; Bagnell et al. (2003) for PSDP.

Deviations from the two equations in the supplement: they have the learner's Q minus the expert's, which is minus the
gap, and a factor 1/T that belongs to U and not to the gap. They put the rewards on the states of one policy with the
actions of the other; the rewards belong to one policy's rollout from (s_t, a), the learner's for off-Q and the
expert's for on-Q. Their T' is one fixed time for all t, whose reward counts twice, alone and in Q_{T'}. Here T' counts
steps from t, as in (1).
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linprog

from understudy.core.arrays import Array
from understudy.core.errors import SpecError, check_choice, check_whole
from understudy.tabular.classical.matching import check_features
from understudy.tabular.compiling import exact, over_batches
from understudy.tabular.mdp import FiniteMDP, Table, check_policy, check_single
from understudy.tabular.moments import q_box, reward_box
from understudy.tabular.planning import occupancy, q_values

QMoments = Literal["off-Q", "on-Q"]
FEASIBILITY = 1e-10
"""The tolerance of the linear program's constraints. The policy is normalized afterwards."""


def expansion(mdp: FiniteMDP, f: Any, g: Any, policy: Any, cut: int) -> Table:
    """(1): C_t(s, a), `cut` = T' steps of the cost f and then g, along the policy. T' = 0 gives g, T' ≥ T sums of f.

    This is T' Bellman backups of g: C ← f_t + E_{s'} E_{a' ~ π_{t+1}} C_{t+1}(s', a').
    """
    return _expansion(mdp, f, g, policy, _each(mdp, cut))


def combined_payoff(
    mdp: FiniteMDP, f: Any, g: Any, expert: Any, policy: Any, cut: int, moments: QMoments
) -> Float[Array, "*batch"]:
    """U(π, (f, g)) of (2) or (3), by the expansion: U2 at C along π, or U3 at C along π_E.

    At f = −r and g = −Q^π (off-Q) or −Q^{π_E} (on-Q) it is (J(π_E) − J(π)) / T for every `cut`.
    """
    check_choice(("off-Q", "on-Q"), moments=moments)
    visiting, rolled = (expert, policy) if moments == "off-Q" else (policy, expert)
    return _combined_payoff(mdp, f, g, expert, policy, visiting, rolled, _each(mdp, cut))


def combined_difference(mdp: FiniteMDP, expert: Any, policy: Any, cut: int, moments: QMoments) -> tuple[Table, Table]:
    """(w, v) of (4) or (5): U(π, (f, g)) = Σ w·f + Σ v·g."""
    check_choice(("off-Q", "on-Q"), moments=moments)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((mdp, expert, policy))):
        check_policy(mdp, expert, "the expert")
        check_policy(mdp, policy)
    first, then, sign = (expert, policy, 1.0) if moments == "off-Q" else (policy, expert, -1.0)
    return _combined_difference(mdp, first, then, _each(mdp, cut), np.broadcast_to(sign, mdp.initial.shape[:-1]))


def combined_suprema(
    mdp: FiniteMDP, expert: Any, policy: Any, cut: int, moments: QMoments
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """sup of U(π, (f, 0)) over the box F_r/2, and of U(π, (0, g)) over the box of F_Q/2T."""
    return _suprema(mdp, *combined_difference(mdp, expert, policy, cut, moments))


def combined_bound(mdp: FiniteMDP, expert: Any, policy: Any, cut: int, moments: QMoments) -> Float[Array, "*batch"]:
    """2T · sup_f U + 2T² · sup_g U of (6), an upper bound on J(π_E) − J(π) for all |r_t(s, a)| ≤ 1.

    This is the off-Q (on-Q) bound at T' = 0 and the reward bound at T' ≥ T. The supplement has the looser form of (6).
    """
    return _bound(mdp, *combined_difference(mdp, expert, policy, cut, moments))


def _each(mdp: FiniteMDP, cut: int) -> Any:
    """`cut` for each MDP of a batch, at most the horizon."""
    check_whole(0, cut=cut)
    return np.broadcast_to(min(cut, mdp.horizon), mdp.initial.shape[:-1])


@over_batches
def _expansion(mdp: FiniteMDP, f: Table, g: Table, policy: Table, cut: Int[Array, ""]) -> Table:
    def backup(_: Array, c: Table) -> Table:
        later = jax.vmap(mdp.dynamics.expect)(jnp.sum(policy * c, axis=-1)[1:])
        return f + jnp.concatenate([later, jnp.zeros_like(f[:1])])

    return jax.lax.fori_loop(0, cut, backup, g)


@over_batches
def _combined_payoff(
    mdp: FiniteMDP, f: Table, g: Table, expert: Table, policy: Table, visiting: Table, rolled: Table, cut: Array
) -> Float[Array, ""]:
    states = occupancy(mdp, visiting).sum(-1, keepdims=True)
    return jnp.sum(states * (policy - expert) * _expansion(mdp, f, g, rolled, cut)) / mdp.horizon  # (2), (3)


@over_batches
def _combined_difference(
    mdp: FiniteMDP, first: Table, then: Table, cut: Array, sign: Float[Array, ""]
) -> tuple[Table, Table]:
    visited = occupancy(mdp, first)

    def earlier(_: Array, states: Array) -> Array:
        """The distribution of s_t if `then` starts one step earlier."""
        return jnp.concatenate([mdp.initial[None], jax.vmap(mdp.dynamics.push)((states[..., None] * then)[:-1])])

    before = jax.lax.fori_loop(0, cut - 1, earlier, visited.sum(-1))  # for T' ≤ 1 `first` acts until t
    after = jnp.where(cut > 0, earlier(cut, before), before)
    last = jnp.where(cut > 0, before[..., None] * then, visited)  # ρ^{T'−1}
    return sign * (last - visited) / mdp.horizon, sign * (after[..., None] * then - last) / mdp.horizon  # (4), (5)


@over_batches
def _suprema(mdp: FiniteMDP, w: Table, v: Table) -> tuple[Float[Array, ""], Float[Array, ""]]:
    return reward_box(mdp).sup(w), q_box(mdp).sup(v)


@over_batches
def _bound(mdp: FiniteMDP, w: Table, v: Table) -> Float[Array, ""]:
    of_f, of_g = _suprema(mdp, w, v)
    return 2 * mdp.horizon * of_f + 2 * mdp.horizon**2 * of_g


class PSDPResult(NamedTuple):
    """The policy of `psdp` and its errors."""

    policy: Float[np.ndarray, "t s a"]
    errors: Float[np.ndarray, " t"]
    """ε_t of (7). Their sum bounds the gap for every reward of the class (8)."""


def psdp(mdp: FiniteMDP, expert: Any, features: Any = None, observed: Any = None) -> PSDPResult:
    """(7), backwards from t = T − 1: a policy for each time that matches the expert's future reward moments.

    F_r is {φ·θ : |θ_k| ≤ 1} for `features` φ[s, a, k] or φ[t, s, a, k], by default all |r_t(s, a)| ≤ 1. Π contains the
    policies with equal π(· | s) where `observed[s]` is equal, by default all policies. M_t(s, a) ∈ R^k is the sum of φ
    from (s, a) along π_{t+1}, ... Then

        ε_t = ‖Σ_s d^E_t(s) Σ_a (π_t − π_E)(a | s) M_t(s, a)‖₁

    is minimised by a linear program in π_t, one for each t. The supplement describes the procedure in words and starts
    at its step T − 1. Here it starts at the last step, which is T − 1 if times are counted from 0.
    """
    check_single(mdp)
    check_policy(mdp, expert, "the expert")
    phi, label = _features(mdp, features), _labels(mdp, observed)
    expert = np.asarray(expert, np.float64)
    visited = np.asarray(occupancy(mdp, expert))
    groups = np.eye(label.max() + 1)[label]  # [s, o]
    allowed = groups.T @ ~np.asarray(mdp.available) == 0
    if not allowed.any(-1).all():
        raise SpecError(
            f"the states observed as {int(np.argmin(allowed.any(-1)))} have no common action: every group needs one"
        )
    policy, moments = np.zeros(mdp.shape), np.zeros(phi.shape[1:])
    for t in reversed(range(mdp.horizon)):
        then = policy[t + 1] if t + 1 < mdp.horizon else policy[t]  # unused in the last step
        moments = np.asarray(_earlier(mdp, phi[t], then, moments))
        target = np.tensordot(visited[t], moments, axes=2)
        reached = np.einsum("so,s,sak->oak", groups, visited[t].sum(-1), moments)
        policy[t] = groups @ _closest(reached, target, allowed)
    return PSDPResult(policy, np.asarray(moment_errors(mdp, expert, policy, phi)))


def moment_errors(mdp: FiniteMDP, expert: Any, policy: Any, features: Any = None) -> Float[Array, " t"]:
    """ε_t of (7) for any policy: the distance of its future reward moments from the expert's at each step."""
    check_single(mdp)
    check_policy(mdp, expert, "the expert")
    check_policy(mdp, policy)
    return _moment_errors(mdp, np.asarray(expert), np.asarray(policy), _features(mdp, features))


@exact
def _moment_errors(mdp: FiniteMDP, expert: Any, policy: Any, features: Any) -> Float[Array, " t"]:
    moments = jax.vmap(lambda phi: q_values(mdp, phi, policy), -1, -1)(features)
    states = occupancy(mdp, expert).sum(-1, keepdims=True)
    return jnp.abs(jnp.einsum("tsa,tsak->tk", states * (policy - expert), moments)).sum(-1)


@exact
def _earlier(mdp: FiniteMDP, phi: Any, then: Any, moments: Any) -> Float[Array, "s a k"]:
    """M_t = φ_t + E_{s'} E_{a' ~ π_{t+1}} M_{t+1}."""
    return phi + jax.vmap(mdp.dynamics.expect, -1, -1)(jnp.einsum("sa,sak->sk", then, moments))


def _closest(reached: np.ndarray, target: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """argmin over π(a | o) of ‖Σ_{o, a} π(a | o) reached[o, a] − target‖₁, as a linear program with slacks."""
    views, actions, count = reached.shape
    slope, slack = reached.reshape(-1, count).T, np.eye(count)
    solved = linprog(
        np.concatenate([np.zeros(views * actions), np.ones(count)]),
        A_ub=np.block([[slope, -slack], [-slope, -slack]]),
        b_ub=np.concatenate([target, -target]),
        A_eq=np.hstack([np.kron(np.eye(views), np.ones(actions)), np.zeros((views, count))]),
        b_eq=np.ones(views),
        bounds=[(0, 1 if possible else 0) for possible in allowed.ravel()] + [(0, None)] * count,
        options={"primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY},
    )
    if solved.status != 0:
        raise SpecError(f"the linear program failed ({solved.message}): scale the features to a common range")
    found = np.where(allowed, np.maximum(solved.x[: views * actions].reshape(views, actions), 0), 0)
    return found / found.sum(-1, keepdims=True)


def _features(mdp: FiniteMDP, features: Any) -> np.ndarray:
    if features is None:
        return np.eye(int(np.prod(mdp.shape))).reshape(*mdp.shape, -1)
    check_features(mdp, features)
    table = np.asarray(features, np.float64)
    return np.broadcast_to(table, (*mdp.shape, table.shape[-1]))


def _labels(mdp: FiniteMDP, observed: Any) -> np.ndarray:
    label = np.arange(mdp.states) if observed is None else np.asarray(observed)
    if label.shape != (mdp.states,) or label.dtype.kind not in "iu" or (label < 0).any():
        raise SpecError(
            f"observed is {label.tolist()}: a whole number of at least 0 is needed for each of {mdp.states} states"
        )
    return np.unique(label, return_inverse=True)[1]
