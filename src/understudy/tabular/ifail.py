"""iFAIL on a finite MDP: one policy after the other, forward in time, each by a game on next states.

With π_0, ..., π_{t−1} fixed, ρ_t is the learner's distribution of s_t. P_t(π_t) is the distribution of s_{t+1} if the
learner acts there, P_t(π_E) if the expert acts for this one step:

    P_t(π)(s') = Σ_{s, a} ρ_t(s) π(a | s) P(s' | s, a)                                                              (1)
    ε_t = max_{f ∈ F} Σ_{s'} (P_t(π_t) − P_t(π_E))(s') f(s')                                                        (2)
    π_t ← argmin over π of ε_t, by Hedge in each state against f_n ← argmax_{f ∈ F} of (2) at the n-th π            (3)

(3) is a primal solver: the policy runs no-regret, f best-responds in closed form, and π_t is the mean of the iterates.
It reads P_t(π_E), never π_E. F is a box |f| ≤ 1 (ε_t is the L1 distance) or a ball ‖f‖₂ ≤ 1 (the Euclidean one). The
value of the game is 0, since π_t = π_E attains it, so ε_t itself certifies π_t.

What it costs. With Q^{π_E}_t(s, a) = r_t(s, a) + E V_{t+1}(s') and V = V^{π_E}, the performance difference lemma gives

    J(π_E) − J(π) = Σ_t Σ_{s'} (P_t(π_E) − P_t(π_t))(s') V_{t+1}(s') + Σ_t E_{s ~ ρ_t} (π_E − π_t)(a | s) r_t(s, a)  (4)
                  ≤ Σ_t ε_t H_t + the last sum,       H_t = min_c max_{s'} |V_{t+1}(s') − c| for the box            (5)

A constant c changes nothing, since both sides of (2) are distributions; for the ball H_t is ‖V_{t+1} − mean‖₂. If
rewards depend on the state alone, the last sum is 0, and ε per step costs at most ε Σ_t H_t: on-Q's O(εHT), where H_t
is half of the most that a next state can change of the expert's return. If the reward of an action is a function u(s')
of where it leads, it moves into V: `seen` passes u. A reward for an action that shows in no next state cannot be
imitated from observations, and the last sum is its cost. TREE's last action is one: the leaves lead to themselves.

Reference: Sun, Vemula, Boots and Bagnell, "Provably Efficient Imitation Learning from Observation Alone" (2019), in the
interactive form that "Of Moments and Matching" names iFAIL.

Deviations: FAIL's P_t(π_E) are demonstrations, so its errors add up along the expert's and the learner's states. Here
both sides of (1) start from ρ_t, and (4) is an identity. Expectations are exact, in float64.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array
from understudy.core.errors import SpecError, check_choice, check_whole
from understudy.tabular.compiling import exact
from understudy.tabular.mdp import FiniteMDP, Table, check_policy, check_single, check_table
from understudy.tabular.planning import values

Ball = Literal["box", "ball"]


class Forward(NamedTuple):
    """The learned policies, and the metric that is left at each time step."""

    policy: Table
    metric: Float[Array, " t"]
    """ε_t, of (2)."""


class Cost(NamedTuple):
    """(4) and (5): what a policy's mismatch costs."""

    gap: float
    """J(π_E) − J(π)."""
    matched: float
    """The first sum of (4): the part that next states show."""
    unseen: float
    """The second sum of (4): rewards of actions that no next state shows."""
    bound: float
    """Σ_t ε_t H_t + the second sum."""


def learn_forward(mdp: FiniteMDP, expert: Any, moments: Ball = "box", iterations: int = 4000) -> Forward:
    """(3) for t = 0, 1, ..., T − 1. ε_t falls with 1/√iterations."""
    check_single(mdp)
    check_policy(mdp, expert, "the expert")
    check_choice(("box", "ball"), moments=moments)
    check_whole(1, iterations=iterations)
    return Forward(*_LEARN[moments](mdp, expert, iterations))


def next_states(mdp: FiniteMDP, state: Any, policy: Any) -> Float[Array, " s"]:
    """(1), for one time step: P_t(π) from the distribution of states and π[s, a]."""
    return _next_states(mdp, state, policy)


def best_moment(difference: Float[Array, " s"], moments: Ball) -> Float[Array, " s"]:
    """The f of (2). `difference` is P_t(π_t) − P_t(π_E)."""
    if moments == "box":
        return jnp.sign(difference)
    norm = jnp.sqrt(jnp.sum(jnp.square(difference)))
    return difference / jnp.where(norm > 0, norm, 1.0)


def mismatch_cost(
    mdp: FiniteMDP, reward: Any, expert: Any, policy: Any, moments: Ball = "box", seen: Any = None
) -> Cost:
    """(4) and (5) for any policy. `seen` is u[s'], a reward for arriving in s' that `reward` contains.

    u must be such that r_t(s, a) = E u(s') + r'_t(s, a); what is left, r', counts as unseen where policies differ.
    """
    check_single(mdp)
    check_table(mdp, reward)
    for name, table in (("the expert", expert), ("the policy", policy)):
        check_policy(mdp, table, name)
    check_choice(("box", "ball"), moments=moments)
    arrived = np.zeros(mdp.states) if seen is None else np.asarray(seen, np.float64)
    if arrived.shape != (mdp.states,):
        raise SpecError(f"seen has shape {arrived.shape}: one number for each of {mdp.states} states is needed")
    value = np.append(values(mdp, np.asarray(reward), np.asarray(expert))[1:], np.zeros((1, mdp.states)), axis=0)
    return Cost(*(float(x) for x in _COST[moments](mdp, reward, expert, policy, value, arrived)))


@exact
def _next_states(mdp: FiniteMDP, state: Array, policy: Array) -> Array:
    return _pushed(mdp, jnp.asarray(state), jnp.asarray(policy))


def _pushed(mdp: FiniteMDP, state: Array, policy: Array) -> Array:
    return mdp.dynamics.push(state[:, None] * policy)


def _size(difference: Array, moments: Ball) -> Array:
    return jnp.sum(difference * best_moment(difference, moments))


def _learner(moments: Ball) -> Any:
    def learn(mdp: FiniteMDP, expert: Array, iterations: Array) -> tuple[Array, Array]:
        uniform = mdp.available / mdp.available.sum(-1, keepdims=True)

        def step(state: Array, expert_t: Array) -> tuple[Array, tuple[Array, Array]]:
            wanted = _pushed(mdp, state, expert_t)
            reached = state > 0

            def play(i: Array, game: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                total, squares, mean = game
                rate = jnp.sqrt(2 * jnp.log(max(mdp.actions, 2)) / jnp.maximum(squares, 1e-300))
                logits = jnp.where(mdp.available, -rate * total, -jnp.inf)
                policy = jax.nn.softmax(logits, axis=-1)
                f = best_moment(_pushed(mdp, state, policy) - wanted, moments)
                cost = jnp.where(reached[:, None], mdp.dynamics.expect(f), 0)
                largest = jnp.square(jnp.abs(cost).max())
                return total + cost, squares + largest, mean + (policy - mean) / (i + 1)

            start = (jnp.zeros_like(uniform), jnp.zeros(()), uniform)
            _, _, policy = jax.lax.fori_loop(0, iterations, play, start)
            policy = jnp.where(reached[:, None], policy, uniform)
            reachable = _pushed(mdp, state, policy)
            return reachable, (policy, _size(reachable - wanted, moments))

        _, (policy, metric) = jax.lax.scan(step, jnp.asarray(mdp.initial), jnp.asarray(expert))
        return policy, metric

    return exact(learn)


def _coster(moments: Ball) -> Any:
    def cost(mdp: FiniteMDP, reward: Array, expert: Array, policy: Array, value: Array, seen: Array) -> Any:
        rest = jnp.asarray(reward) - mdp.dynamics.expect(seen)

        def step(state: Array, at: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array, Array]]:
            expert_t, policy_t, rest_t, value_t = at
            own = _pushed(mdp, state, policy_t)
            difference = own - _pushed(mdp, state, expert_t)
            worth = value_t + seen
            unseen = jnp.sum(state[:, None] * (expert_t - policy_t) * rest_t)
            if moments == "box":
                height = (worth.max() - worth.min()) / 2
            else:
                height = jnp.sqrt(jnp.sum(jnp.square(worth - worth.mean())))
            return own, (-difference @ worth, unseen, _size(difference, moments) * height)

        columns = tuple(jnp.asarray(x) for x in (expert, policy, rest, value))
        _, (matched, unseen, bound) = jax.lax.scan(step, jnp.asarray(mdp.initial), columns)
        gap = matched.sum() + unseen.sum()
        return gap, matched.sum(), unseen.sum(), bound.sum() + unseen.sum()

    return exact(cost)


_LEARN = {"box": _learner("box"), "ball": _learner("ball")}
_COST = {"box": _coster("box"), "ball": _coster("ball")}
