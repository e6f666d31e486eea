"""Replay estimation on finite MDPs: three estimates of the expert's moments from the same demonstrations.

Moment matching compares a learner with an estimate d̂_t(s, a) of the expert's occupancy. The worst error over moments
with |f| ≤ 1 is (1/T) Σ_t Σ_{s,a} |d̂_t − d_t| (`moment_error`). It bounds the gap that exact matching can leave.

    empirical   the share of demonstrations D that are in s and take a at time t
    clone       the occupancy of a clone of D, as if it were rolled out infinitely often
    replay      1. train a clone π on one half D_1, with membership M_t(s) = 1 if D_1 visits s at time t, else 0
                2. roll π out infinitely often, and count a step as long as all states up to it are members:
                       E_π [ 1{s_t = s, a_t = a} Π_{k ≤ t} M_k(s_k) ]
                3. add the steps of the other half D_2 that this leaves out:
                       E_{D_2} [ 1{s_t = s, a_t = a} (1 − Π_{k ≤ t} M_k(s_k)) ]

If the expert is deterministic, the clone acts as the expert in every member state. So line 2 is the expert's occupancy
along paths of members, without any noise, and line 3 is unbiased for the rest: replay estimation is unbiased, and only
the rest has variance. Without M the estimate matches the clone, with its errors.

`ledge` is an MDP where a clone's mistake lasts. Where mistakes are forgotten, the clone alone may be the better
estimate.

Reference: Swamy, Rajaraman, Peng, Choudhury, Bagnell, Wu, Jiao and Ramchandran, "Minimax Optimal Online Imitation
Learning via Replay Estimation" (2022).
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from understudy.core.arrays import Array
from understudy.core.errors import SettingError, check_seed, check_whole
from understudy.tabular.compiling import over_batches
from understudy.tabular.mdp import Dense, FiniteMDP, Successors, Table, check_policy, check_single, check_table
from understudy.tabular.planning import collapse, occupancy


class Paths(NamedTuple):
    """Episodes on a finite MDP, all of T steps."""

    states: Int[np.ndarray, "n t"]
    actions: Int[np.ndarray, "n t"]


class Ledge(NamedTuple):
    """An MDP and its expert."""

    mdp: FiniteMDP
    expert: Table


def ledge(states: int = 20, actions: int = 4, horizon: int = 50) -> Ledge:
    """The expert's action leads to state s with probability ∝ 1 / (s + 1)², whatever the state. All others lead to a
    trap, the last state, for the rest of the episode."""
    check_whole(2, states=states, actions=actions)
    chances = 1 / np.arange(1, states + 1) ** 2
    transitions = np.zeros((states + 1, actions, states + 1))
    transitions[:states, 0, :states] = chances / chances.sum()
    transitions[:states, 1:, states] = transitions[states, :, states] = 1
    expert = np.zeros((horizon, states + 1, actions))
    expert[..., 0] = 1
    return Ledge(FiniteMDP(transitions, transitions[0, 0], horizon), expert)


def draw_paths(mdp: FiniteMDP, policy: Table, count: int, seed: int) -> Paths:
    """Episodes of a policy."""
    check_single(mdp)
    check_policy(mdp, policy)
    check_whole(1, count=count)
    check_seed(seed)
    rng, policy = np.random.default_rng(seed), np.asarray(policy, np.float64)
    states, actions = np.zeros((2, count, mdp.horizon), np.int64)
    state = _draw(rng, np.tile(np.asarray(mdp.initial), (count, 1)))
    for t in range(mdp.horizon):
        states[:, t], actions[:, t] = state, _draw(rng, policy[t, state])
        if isinstance(mdp.dynamics, Successors):
            state = np.asarray(mdp.dynamics.index)[state, actions[:, t]]
        else:
            assert isinstance(mdp.dynamics, Dense)
            state = _draw(rng, np.asarray(mdp.dynamics.probabilities)[state, actions[:, t]])
    return Paths(states, actions)


def empirical(mdp: FiniteMDP, paths: Paths, weights: Float[np.ndarray, "n t"] | None = None) -> Table:
    """The mean over episodes of 1{s_t = s, a_t = a}, times the weight of the step."""
    table = np.zeros(mdp.shape)
    times = np.broadcast_to(np.arange(mdp.horizon), paths.states.shape)
    np.add.at(table, (times, paths.states, paths.actions), 1.0 if weights is None else weights)
    return table / len(paths.states)


def cloned(mdp: FiniteMDP, paths: Paths) -> Table:
    """The clone: the share of each action at (t, s); uniform in states without data."""
    return collapse(mdp, empirical(mdp, paths))


def replay_estimate(mdp: FiniteMDP, paths: Paths, folds: int | None = None) -> Table:
    """Replay estimation from two halves: D_1 has every other episode, from the first on.

    With `folds`, each fold of episodes is D_2 once and the others are D_1, and the estimates are averaged.
    """
    count = len(paths.states)
    check_whole(2, folds=2 if folds is None else folds)
    parts = min(2 if folds is None else folds, count)
    if parts < 2:
        raise SettingError(
            f"replay estimation splits the demonstrations, and there is {count} episode: give two or more"
        )
    fold = np.arange(count) % parts
    held = [parts - 1] if folds is None else range(parts)
    return np.mean([_estimate(mdp, _chosen(paths, fold != k), _chosen(paths, fold == k)) for k in held], axis=0)


def _estimate(mdp: FiniteMDP, first: Paths, second: Paths) -> Table:
    member = (empirical(mdp, first).sum(-1) > 0).astype(np.float64)  # line 1
    inside = np.cumprod(member[np.arange(mdp.horizon), second.states], axis=1)
    return occupancy_of_members(mdp, cloned(mdp, first), member) + empirical(mdp, second, 1 - inside)  # lines 2 and 3


def _chosen(paths: Paths, episodes: Bool[np.ndarray, " n"]) -> Paths:
    return Paths(paths.states[episodes], paths.actions[episodes])


@over_batches
def occupancy_of_members(mdp: FiniteMDP, policy: Table, member: Float[Array, "t s"]) -> Table:
    """E_π [ 1{s_t = s, a_t = a} Π_{k ≤ t} M_k(s_k) ]."""

    def forward(state: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        policy_t, member_t = at
        visited = (state * member_t)[:, None] * policy_t
        return mdp.dynamics.push(visited), visited

    return jax.lax.scan(forward, mdp.initial, (policy, member))[1]


def moment_error(mdp: FiniteMDP, estimate: Table, expert: Table) -> float:
    """(1/T) sup_{|f| ≤ 1} Σ_t (E_{d̂_t} f_t − E_{d_t} f_t) for the occupancy d of the expert."""
    check_table(mdp, estimate, "the estimate")
    return float(np.abs(estimate - np.asarray(occupancy(mdp, expert))).sum() / mdp.horizon)


def _draw(rng: np.random.Generator, rows: Float[np.ndarray, "n k"]) -> Int[np.ndarray, " n"]:
    """An index from each row of probabilities."""
    below = rng.random((len(rows), 1)) >= np.cumsum(rows, axis=1) / rows.sum(1, keepdims=True)
    return below.sum(1)
