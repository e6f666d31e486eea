"""Rewards for T' steps and a Q-function after them, and the limit of it, PSDP: the second half of the supplement.

A Q-function is T' rewards along its own policy's rollout and the Q-function after them. For costs f and g, one step
after the other under π from (s, a), times past the horizon counting nothing:

    C_t(s, a) = E[ f_t + ... + f_{t+T'−1} + g_{t+T'} | s_t = s, a_t = a, then π ]                                    (1)

    off-Q    U(π, (f, g)) = (1/T) Σ_t E_{s ~ d^E_t} [E_{a ~ π_t} − E_{a ~ π_E}] C_t(s, a),   C along π               (2)
    on-Q     U(π, (f, g)) = (1/T) Σ_t E_{s ~ d^π_t} [E_{a ~ π_t} − E_{a ~ π_E}] C_t(s, a),   C along π_E             (3)

At f = −r and g = −Q^π, or −Q^{π_E} for on-Q, C is −Q for every T', and U is (J(π_E) − J(π)) / T. The sums telescope:
with ρ^j_t the distribution of (s_t, a_t) when π_E acts before t − j and π from there on, ρ^{−1} = d^E, and σ^j the same
with the two exchanged,

    off-Q    U = (1/T) Σ_t [ρ^{T'−1}_t − ρ^{−1}_t] · f_t + [ρ^{T'}_t − ρ^{T'−1}_t] · g_t                             (4)
    on-Q     U = (1/T) Σ_t [σ^{−1}_t − σ^{T'−1}_t] · f_t + [σ^{T'−1}_t − σ^{T'}_t] · g_t                             (5)

so T' = 0 is U2 (U3) at g, T' ≥ T is U1 at f for both, and between them f and g share the gap (F_QE for F_Q in on-Q):

    J(π_E) − J(π) ≤ 2T · sup_{f ∈ F_r/2} U + 2T² · sup_{g ∈ F_Q/2T} U ≤ 2T² · sup_{(f, g)} U                         (6)

PSDP takes T' ≥ T with an f of its own for every t. Backwards from the last step, with π_{t+1}, ..., π_{T−1} fixed, it
picks

    π_t ∈ argmin over Π of ε_t = sup_{f ∈ F_r} E_{s ~ d^E_t} [E_{a ~ π_t} − E_{a ~ π_E}] C_t(s, a)                   (7)
    J(π_E) − J(π) ≤ Σ_t ε_t                                                                                          (8)

C_t is along the learner's own later steps, so (7) needs dynamics, or a simulator reset to the demonstrations' states;
off-Q moments need neither. For on-Q no such order exists: d^π_t waits for the earlier steps.

Reference: Swamy et al. (2021), supplement, "Combining Reward and Value Moments"; Bagnell et al. (2003) for PSDP.

Deviations: both printed displays have the learner's Q less the expert's, which is minus the gap, and a factor 1/T that
belongs to U and not to the gap; they put the rewards on the states of the one policy with the actions of the other,
where they fall on one policy's rollout from (s_t, a), the learner's for off-Q and the expert's for on-Q; and their T'
is one time for all t, whose reward is counted both alone and within Q_{T'}. Here T' counts steps from t, as in (1).
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.optimize import linprog

from understudy.core.errors import SpecError, check_choice, check_whole
from understudy.tabular.classical.matching import check_features
from understudy.tabular.mdp import (
    FiniteMDP,
    Table,
    check_policy,
    check_single,
    exact,
    occupancy,
    over_batches,
    q_values,
)
from understudy.tabular.moments import q_box, reward_box

QMoments = Literal["off-Q", "on-Q"]
FEASIBLE = 1e-10
"""By how much a linear program's solution may miss its constraints; the policy is put right after it."""


def expansion(mdp: FiniteMDP, f: Any, g: Any, policy: Any, cut: int) -> Table:
    """(1): C_t(s, a) for T' = `cut` steps of the cost f and then g, along the policy. T' = 0 is g, T' ≥ T sums of f.

    It is T' Bellman backups of g: C ← f_t + E_{s'} E_{a' ~ π_{t+1}} C_{t+1}(s', a').
    """
    return _expansion(mdp, f, g, policy, _each(mdp, cut))


def combined_payoff(
    mdp: FiniteMDP, f: Any, g: Any, expert: Any, policy: Any, cut: int, moments: QMoments
) -> Float[Array, ""]:
    """U(π, (f, g)) of (2) or (3), by the expansion: U2 at C along π, or U3 at C along π_E.

    (J(π_E) − J(π)) / T at f = −r, g = −Q^π or −Q^{π_E}, for every `cut`. The printed displays have the learner less the
    expert for r and Q as well, which is minus that, and the rewards off the rollout that Q is a sum along.
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
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """sup of U(π, (f, 0)) over f in F_r/2 and of U(π, (0, g)) over g in F_Q/2T, both boxes."""
    return _suprema(mdp, *combined_difference(mdp, expert, policy, cut, moments))


def combined_bound(mdp: FiniteMDP, expert: Any, policy: Any, cut: int, moments: QMoments) -> Float[Array, ""]:
    """2T · sup_f U + 2T² · sup_g U of (6), no less than J(π_E) − J(π) for any |r_t(s, a)| ≤ 1.

    The off-Q (on-Q) bound at T' = 0, the reward bound at T' ≥ T. The supplement means the looser form of (6).
    """
    return _bound(mdp, *combined_difference(mdp, expert, policy, cut, moments))


def _each(mdp: FiniteMDP, cut: int) -> Any:
    """The cut-off, for each MDP of a batch; beyond the horizon nothing changes."""
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
        """The distribution of s_t if `then` takes over one step earlier."""
        return jnp.concatenate([mdp.initial[None], jax.vmap(mdp.dynamics.push)((states[..., None] * then)[:-1])])

    before = jax.lax.fori_loop(0, cut - 1, earlier, visited.sum(-1))  # at T'−1 ≤ 0, `first` acts up to t
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


class Backward(NamedTuple):
    """What `psdp` found."""

    policy: Float[np.ndarray, "t s a"]
    errors: Float[np.ndarray, " t"]
    """ε_t of (7). Their sum bounds the gap for every reward of the class, (8)."""


def psdp(mdp: FiniteMDP, expert: Any, features: Any = None, seen: Any = None) -> Backward:
    """(7), backwards from t = T − 1: a policy for each time, whose future reward moments are the expert's.

    F_r is {φ·θ : |θ_k| ≤ 1} for `features` φ[s, a, k] or φ[t, s, a, k], by default all |r_t(s, a)| ≤ 1. Π is the
    policies that act alike in states with the same `seen[s]`, by default all. With M_t(s, a) ∈ R^k the sums of φ along
    π_{t+1}, ... from (s, a),

        ε_t = ‖Σ_s d^E_t(s) Σ_a (π_t − π_E)(a | s) M_t(s, a)‖₁

    is least at the solution of a linear program in π_t, one for each t. The supplement describes the procedure in words
    and starts at its T − 1; it starts here at the last step, which is T − 1 when times are counted from 0.
    """
    check_single(mdp)
    check_policy(mdp, expert, "the expert")
    phi, label = _features(mdp, features), _labels(mdp, seen)
    expert = np.asarray(expert, np.float64)
    visited = np.asarray(occupancy(mdp, expert))
    groups = np.eye(label.max() + 1)[label]  # [s, o]
    allowed = groups.T @ ~np.asarray(mdp.available) == 0
    if not allowed.any(-1).all():
        raise SpecError(f"the states seen as {int(np.argmin(allowed.any(-1)))} have no action in common")
    policy, moments = np.zeros(mdp.shape), np.zeros(phi.shape[1:])
    for t in reversed(range(mdp.horizon)):
        then = policy[t + 1] if t + 1 < mdp.horizon else policy[t]  # nothing follows the last step
        moments = np.asarray(_earlier(mdp, phi[t], then, moments))
        target = np.tensordot(visited[t], moments, axes=2)
        reached = np.einsum("so,s,sak->oak", groups, visited[t].sum(-1), moments)
        policy[t] = groups @ _closest(reached, target, allowed)
    return Backward(policy, np.asarray(moment_errors(mdp, expert, policy, phi)))


def moment_errors(mdp: FiniteMDP, expert: Any, policy: Any, features: Any = None) -> Float[Array, " t"]:
    """ε_t of (7) for any policy: how far its future reward moments are from the expert's at each step."""
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
    """argmin over π(a | o) of ‖Σ_{o, a} π(a | o) reached[o, a] − target‖₁, each entry of it below a slack."""
    views, actions, count = reached.shape
    slope, slack = reached.reshape(-1, count).T, np.eye(count)
    solved = linprog(
        np.concatenate([np.zeros(views * actions), np.ones(count)]),
        A_ub=np.block([[slope, -slack], [-slope, -slack]]),
        b_ub=np.concatenate([target, -target]),
        A_eq=np.hstack([np.kron(np.eye(views), np.ones(actions)), np.zeros((views, count))]),
        b_eq=np.ones(views),
        bounds=[(0, 1 if possible else 0) for possible in allowed.ravel()] + [(0, None)] * count,
        options={"primal_feasibility_tolerance": FEASIBLE, "dual_feasibility_tolerance": FEASIBLE},
    )
    if solved.status != 0:
        raise SpecError(f"no match was found: features of a common scale are needed ({solved.message})")
    found = np.where(allowed, np.maximum(solved.x[: views * actions].reshape(views, actions), 0), 0)
    return found / found.sum(-1, keepdims=True)


def _features(mdp: FiniteMDP, features: Any) -> np.ndarray:
    if features is None:
        return np.eye(int(np.prod(mdp.shape))).reshape(*mdp.shape, -1)
    check_features(mdp, features)
    table = np.asarray(features, np.float64)
    return np.broadcast_to(table, (*mdp.shape, table.shape[-1]))


def _labels(mdp: FiniteMDP, seen: Any) -> np.ndarray:
    label = np.arange(mdp.states) if seen is None else np.asarray(seen)
    if label.shape != (mdp.states,) or label.dtype.kind not in "iu" or (label < 0).any():
        raise SpecError(
            f"seen is {label.tolist()}: a whole number of at least 0 is needed for each of {mdp.states} states"
        )
    return np.unique(label, return_inverse=True)[1]
