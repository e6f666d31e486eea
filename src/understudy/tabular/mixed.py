"""Mixed moments and imitation from observations: the first half of the supplement.

Mixed moments use Q and V of a policy μ as moment functions in the reward payoff U1:

    J(π_E) − J(π) = T · [U1(π, −Q^μ) + U1(π, V^μ)]                                                                   (1)
                  ≤ 2T² · [sup_{F_Q/2T} U1(π, ·) + sup_{F_V/2T} U1(π, ·)] ≤ 4T² · sup_{F_Q/2T ∪ F_V/2T} U1(π, ·)     (2)

(1) is the performance difference lemma applied twice: its right side is Σ_t E_{π_E} A^μ_t − E_π A^μ_t. So it holds for
every μ. The supplement uses μ = π and μ = π_E.

V is a function of the state. U1 over such f needs only the states that the expert visited, not its actions:

    sup over |f_t(s)| ≤ (T − t)/2T of U1(π, f) = (1/T) Σ_t (T − t)/2T · ‖d^π_t(s) − d^E_t(s)‖₁                       (3)
    J(π_E) − J(π) ≤ 2T² · (3)   for rewards |r_t(s)| ≤ 1 that depend on the state only                               (4)

Two policies with different actions can both make (3) zero, so rewards on actions are not imitated. `match_states`
solves the game of (3). Both sides follow the optimistic regularised leader, with causal entropy and ‖f‖₂² as
regularisers:

    π_i = argmin_π Σ_t E_π F_t(s_t) − α H(π),        F = f_1 + ... + f_{i−1} + f_{i−1}                               (5)
    f_i = clip(η W, ±(T − t)/2T),                    W = w_1 + ... + w_{i−1} + w_{i−1},   w_j = d^{π_j} − d^E        (6)

It stops by the certificate of the averages d̄ (collapsed to π̂) and f̄: sup_f U1(π̂, f) − min_π U1(π, f̄).

Reference: Swamy et al. (2021), supplement, "A Fourth Moment Class: Mixed-Moment Value". Imitation from observations:
Sun et al. (2019), whose algorithm goes forward in time instead.

Deviations: in one line of the paper's proof of (2) the factor 2 is only before the learner's term, and it says "scaling
down by T" where the classes are divided by 2T. (2) has 2 before both terms, and 2T. The paper's lower bound, Ω(εT) on
CLIFF, is not the largest: a learner that errs only in the last step has the gap 2T²ε, half of (2).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array
from understudy.core.errors import SpecError, check_positive, check_whole
from understudy.tabular.classical.matching import numbers
from understudy.tabular.compiling import exact, over_batches
from understudy.tabular.mdp import FiniteMDP, Table, check_distribution, check_single
from understudy.tabular.moments import Box, Embedding, Parameter, q_box
from understudy.tabular.planning import best_response, collapse, occupancy, performance, q_values, soft_response

States = Float[Array, "t s"]
CHECK_EVERY = 50
"""Iterations between two certificates."""


class OfState(Embedding):
    """f_t(s, a) = θ_t(s)."""

    actions: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, theta: Parameter) -> Table:
        return jnp.broadcast_to(theta[..., None], (*self.shape, self.actions))


def state_box(mdp: FiniteMDP) -> Box:
    """The box |f_t(s)| ≤ (T − t) / 2T of functions of the state, t from 0. It contains F_V / 2T.

    The maximum of Σ w·f is Σ_t (T − t)/2T · Σ_s |Σ_a w_t(s, a)|: only the state marginals of w matter.
    """
    left = (mdp.horizon - np.arange(mdp.horizon)) / (2 * mdp.horizon)
    embed = OfState(actions=mdp.actions, shape=mdp.shape[:2])
    with jax.enable_x64(True):
        bound = jnp.asarray(np.broadcast_to(left[:, None], mdp.shape[:2]))
        return Box("F_V/2T: functions of state, |f_t| ≤ (T−t)/2T", embed, bound)


@over_batches
def mixed_payoffs(
    mdp: FiniteMDP, reward: Table, expert: Table, policy: Table, valued: Table
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """U1(π, −Q^μ) and U1(π, V^μ), the two terms of (1), for μ = `valued`:

        J(π_E) − J(π) = Σ_t [E_{π_E} Q^μ_t − E_π Q^μ_t] + [E_π V^μ_t − E_{π_E} V^μ_t]

    The cost is −Q in the first and +V in the second. The supplement writes this equation for μ = π, with V^π as
    E_{a ~ π} Q^π. For μ = π_E replace them by Q^{π_E} and V^{π_E}.
    """
    q = q_values(mdp, reward, valued)
    w = (occupancy(mdp, policy) - occupancy(mdp, expert)) / mdp.horizon
    return -jnp.sum(w * q), jnp.sum(w * jnp.sum(valued * q, axis=-1, keepdims=True))


@over_batches
def mixed_suprema(mdp: FiniteMDP, expert: Table, policy: Table) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """sup of U1(π, ·) over the boxes of F_Q/2T and F_V/2T. The first box contains the second."""
    w = (occupancy(mdp, policy) - occupancy(mdp, expert)) / mdp.horizon
    return q_box(mdp).sup(w), state_box(mdp).sup(w)


@over_batches
def mixed_bound(mdp: FiniteMDP, expert: Table, policy: Table) -> Float[Array, ""]:
    """(2): 4T² · sup over F_Q/2T ∪ F_V/2T of U1(π, ·), an upper bound on J(π_E) − J(π) for all |r_t(s, a)| ≤ 1."""
    return 4 * mdp.horizon**2 * jnp.maximum(*mixed_suprema(mdp, expert, policy))


@over_batches
def observation_bound(mdp: FiniteMDP, expert: Table, policy: Table) -> Float[Array, ""]:
    """(4): 2T² · sup over F_V/2T of U1(π, ·), an upper bound on J(π_E) − J(π) for all |r_t(s)| ≤ 1.

    It holds because −r is in the box of F_V (T − t ≥ 1). The supplement names the setting but states no bound.
    """
    return 2 * mdp.horizon**2 * mixed_suprema(mdp, expert, policy)[1]


@over_batches
def observations(mdp: FiniteMDP, policy: Table) -> States:
    """d_t(s): the state distributions of a policy, without its actions."""
    return occupancy(mdp, policy).sum(-1)


class StateMatch(NamedTuple):
    """The result of `match_states`."""

    policy: Table
    critic: States
    """f̄, the average of the moment functions."""
    payoff: float
    """sup_f U1(π̂, f) of (3): the weighted distance from the observed state distributions."""
    certificate: float
    """The distance of (π̂, f̄) from an equilibrium. Above the tolerance if the iterations ran out."""
    iterations: int


def match_states(mdp: FiniteMDP, observed: Any, tolerance: float, max_iterations: int = 100_000) -> StateMatch:
    """Find a policy with the `observed` state distributions d_t(s), by (5) and (6).

    It needs the dynamics and the expert's state distributions, but no actions. It checks the certificate every 50
    iterations and stops when it is within `tolerance`. If some policy has the observed distributions, the game's value
    is 0 and `payoff` is at most the certificate.
    """
    check_positive(tolerance=tolerance)
    check_whole(1, max_iterations=max_iterations)
    check_single(mdp)
    table = numbers(observed, "the observed states")
    if table.shape != mdp.shape[:2]:
        raise SpecError(f"the observed states have shape {table.shape}: (steps, states) = {mdp.shape[:2]} is needed")
    check_distribution("the observed states", table)
    policy, critic, payoff, certificate, count = _match_states(mdp, table, tolerance, max_iterations)
    return StateMatch(policy, critic, float(payoff), float(certificate), int(count))


@exact
def _match_states(mdp: FiniteMDP, observed: Any, tolerance: Array, max_iterations: Array) -> tuple[Array, ...]:
    box, horizon = state_box(mdp), mdp.horizon
    # The KL divergence of trajectories is at least half of each ‖Δd_t‖₁², so the leaders are stable at η = α/4T. This α
    # balances the costs of the two regularisers.
    alpha = jnp.sqrt(mdp.states * horizon / (6 * np.log(max(mdp.actions, 2))))
    eta = alpha / (4 * horizon)

    def iterate(_: Array, now: tuple[Array, ...]) -> tuple[Array, ...]:
        visited, cost, weight, last_f, last_w = now
        d = occupancy(mdp, soft_response(mdp, box.embed(cost + last_f), alpha))  # (5)
        f = box.project(eta * (weight + last_w))  # (6)
        w = d.sum(-1) - observed
        return visited + d, cost + f, weight + w, f, w

    def certify(visited: Table, cost: States, count: Array) -> tuple[Array, Array]:
        f = cost / count
        payoff = jnp.sum(box.bound * jnp.abs(visited.sum(-1) / count - observed)) / horizon
        best = performance(mdp, box.embed(f), best_response(mdp, box.embed(f)))
        return payoff, payoff - (best - jnp.sum(observed * f)) / horizon

    def block(now: tuple[Any, ...]) -> tuple[Any, ...]:
        count, state, _ = now
        then = jnp.minimum(count + CHECK_EVERY, max_iterations)
        state = jax.lax.fori_loop(count, then, iterate, state)
        return then, state, certify(state[0], state[1], then)

    zero = jnp.zeros(mdp.shape[:2])
    start: Any = (jnp.zeros((), int), (jnp.zeros(mdp.shape), zero, zero, zero, zero), (jnp.inf, jnp.inf))
    count, state, (payoff, certificate) = jax.lax.while_loop(
        lambda now: (now[2][1] > tolerance) & (now[0] < max_iterations), block, start
    )
    return collapse(mdp, state[0] / count), state[1] / count, payoff, certificate, count
