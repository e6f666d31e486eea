"""The paper's example MDPs with their experts and rewards, and learners that make errors in them.

    example     cost of an error                               reward                       closed form of the gap
    LOOP        one step in s_2, then the expert returns       1 in s_1                     p (T − 1)
    CLIFF       the rest of the episode, in s_x                −1 in s_x, −1 for a_2        p T, erring in s_0 alone
    UNICYCLE    the rest of the episode, in s_2                −1 in s_2                    Σ_t p (1 − p)^{t−1} (T − t)
    TREE        the rest of the episode, in another branch     1 for the expert's actions   (not given)

The closed forms are for a learner that errs with probability p, in every state unless one is named. Dynamics are
deterministic and stored as indices. LOOP can have a longer way back than the paper's one step: an error then costs
that many steps. Two deviations: s_x has the single action a_1, as in the paper's drawing, so its
reward is −1 and not −2. The paper gives TREE no reward; here the last action has reward 1 on the expert's path.
"""

import math
from typing import Any, NamedTuple, cast

import numpy as np

from understudy.core.errors import SettingError, check_whole
from understudy.tabular.mdp import FiniteMDP, Successors

MOST_NODES = 2**20
"""The maximal size of a tree."""


class Example(NamedTuple):
    """An MDP with its expert and its reward."""

    name: str
    mdp: FiniteMDP
    expert: np.ndarray
    """π_E[t, s, a], stationary and deterministic."""
    reward: np.ndarray
    """r[t, s, a], stationary."""
    states: tuple[str, ...]
    actions: tuple[str, ...]


def loop(horizon: int, way_back: int = 1) -> Example:
    """LOOP: the expert stays in s_1 and returns to it from s_2. The wrong action leads to s_2 from every state.

    The expert needs `way_back` steps to return, through s_2, s_3, ... (one in the paper). Each costs the reward 1.
    """
    check_whole(1, way_back=way_back)
    count = way_back + 2
    ahead = [1, 2, *range(3, count), 1]
    aside = [2, 1, *[2] * way_back]
    reward = np.zeros((count, 2))
    reward[1] = 1
    states = tuple(f"s_{{{i}}}" if i > 9 else f"s_{i}" for i in range(count))
    transitions = np.stack([ahead, aside], axis=1)
    return _example("LOOP", horizon, transitions, [0, 1, *[0] * way_back], reward, states)


def cliff(horizon: int) -> Example:
    """CLIFF: a_1 moves along s_0, s_1, ..., s_{T−1}. a_2 leads to s_x, the last state, which is absorbing."""
    check_whole(1, horizon=horizon)
    chain = np.arange(horizon)
    ahead = np.append(np.minimum(chain + 1, horizon - 1), horizon)
    reward = np.zeros((horizon + 1, 2))
    reward[:, 1] = reward[horizon] = -1
    available = np.ones((horizon + 1, 2), bool)
    available[horizon, 1] = False
    states = (*(f"s_{{{i}}}" for i in chain), "s_x")
    transitions = np.stack([ahead, np.full(horizon + 1, horizon)], axis=1)
    return _example("CLIFF", horizon, transitions, np.zeros(horizon + 1, int), reward, states, available)


def unicycle(horizon: int) -> Example:
    """UNICYCLE: the expert stays in s_1, whose index is 0. a_2 leads to s_2, which is absorbing."""
    reward = np.array([[0.0, 0.0], [-1.0, -1.0]])
    available = [[True, True], [True, False]]
    return _example("UNICYCLE", horizon, [[0, 1], [1, 1]], [0, 0], reward, ("s_1", "s_2"), available)


def tree(horizon: int, actions: int) -> Example:
    """TREE: one node for each sequence of fewer than T actions. Node i has the children |A| i + 1, ..., |A| i + |A|.

    The expert always takes the last action. Leaves lead to themselves after the last step.
    """
    check_whole(1, horizon=horizon, actions=actions)
    magnitude = max((horizon - 1) * math.log10(actions), math.log10(horizon))
    nodes = (horizon if actions == 1 else (actions**horizon - 1) // (actions - 1)) if magnitude < 15 else MOST_NODES + 1
    if nodes > MOST_NODES:
        count = f"{nodes:,}" if magnitude < 15 else f"about 10^{magnitude:.0f}"
        raise SettingError(
            f"a tree of horizon {horizon} and {actions} actions has {count} nodes: at most {MOST_NODES:,} are allowed"
        )
    node = np.arange(nodes)[:, None]
    child = actions * node + 1 + np.arange(actions)
    reward = np.zeros((nodes, actions))
    on_path = 0
    while on_path < nodes:
        reward[on_path, -1] = 1
        on_path = actions * on_path + actions
    states = tuple(f"s_{{{i}}}" for i in range(nodes))
    return _example("TREE", horizon, np.where(child < nodes, child, node), np.full(nodes, actions - 1), reward, states)


def _example(
    name: str,
    horizon: int,
    transitions: Any,
    acts: Any,
    reward: np.ndarray,
    states: tuple[str, ...],
    available: Any = None,
) -> Example:
    """An example with the first state as initial state and an expert that takes `acts`."""
    check_whole(1, horizon=horizon)
    count, actions = reward.shape
    mdp = FiniteMDP(np.asarray(transitions), np.eye(1, count)[0], horizon, available)
    expert = np.eye(actions)[np.asarray(acts)]
    names = tuple(f"a_{{{i + 1}}}" if i > 8 else f"a_{i + 1}" for i in range(actions))
    # Broadcast views, because T copies of a large tree would not fit in memory.
    return Example(name, mdp, np.broadcast_to(expert, mdp.shape), np.broadcast_to(reward, mdp.shape), states, names)


def erring(example: Example, p: float, where: str | int = "all") -> np.ndarray:
    """A learner that takes a uniformly random wrong action with probability p, and else acts as the expert.

    It errs in every state with a wrong action, or only in the state with index `where`.
    """
    if isinstance(p, bool) or not 0 <= p <= 1:
        raise SettingError(f"p is {p!r}: a probability from 0 to 1 is needed")
    wrong = np.asarray(example.mdp.available) & (example.expert[0] == 0)
    count = wrong.sum(-1, keepdims=True)
    errs = count > 0
    if where != "all":
        if isinstance(where, bool | str) or not 0 <= where < len(example.states):
            raise SettingError(f"where is {where!r}: 'all' or a state from 0 to {len(example.states) - 1} is needed")
        if not errs[where]:
            raise SettingError(
                f"where is {where}: {example.name} has no wrong action in {example.states[where]}: choose another state"
            )
        errs = errs & (np.arange(len(errs)) == where)[:, None]
    learner = np.where(errs, (1 - p) * example.expert[0] + p * wrong / np.maximum(count, 1), example.expert[0])
    return np.broadcast_to(learner, example.expert.shape)


def reachable(example: Example, acts: Any = None) -> list[np.ndarray]:
    """The states that are reachable at each time, by all available actions or only by those of `acts`[s, a]."""
    successors = successor_table(example)
    acts = np.asarray(example.mdp.available if acts is None else acts, bool)
    states = [np.flatnonzero(example.mdp.initial)]
    while len(states) < example.mdp.horizon:
        states.append(np.unique(successors[states[-1]][acts[states[-1]]]))
    return states


def loop_gap(p: float, horizon: int) -> float:
    """p (T − 1): every error costs one step in s_1."""
    return p * (horizon - 1)


def cliff_gap(p: float, horizon: int) -> float:
    """p T for errors only in s_0: −1 for a_2, then −1 for each of T − 1 steps in s_x."""
    return p * horizon


def unicycle_gap(p: float, horizon: int) -> float:
    """Σ_{t=1}^T p (1 − p)^{t−1} (T − t): the first error is at t, and T − t steps in s_2 follow."""
    t = np.arange(1, horizon + 1)
    return float(np.sum(p * (1 - p) ** (t - 1) * (horizon - t)))


def successor_table(example: Example) -> np.ndarray:
    """The index of the next state for each (s, a)."""
    return np.asarray(cast(Successors, example.mdp.dynamics).index)
