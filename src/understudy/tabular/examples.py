"""The paper's example MDPs, each with its expert and its reward, learners that err in them, and a drawing.

    example     what an error costs                            reward                       closed form of the gap
    LOOP        one step in s_2, then the expert is back       1 in s_1                     p (T − 1)
    CLIFF       the rest of the episode, in s_x                −1 in s_x, −1 for a_2        p T, erring in s_0 alone
    UNICYCLE    the rest of the episode, in s_2                −1 in s_2                    Σ_t p (1 − p)^{t−1} (T − t)
    TREE        another branch, for good                       1 for the expert's actions   (not stated)

The closed forms are those of a learner that errs with probability p, in every state where none is named. Dynamics are
deterministic and indexed. Two deviations: s_x has the single action a_1, as it is drawn, so that its reward is −1 and
not −2; and the paper gives TREE no reward, so it has 1 here for the last action at the nodes of the expert's path.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from understudy import figures
from understudy.errors import SettingError, check_whole
from understudy.tabular.mdp import FiniteMDP, Successors

MOST_NODES = 2**20
"""Of a tree."""
DRAWN_NODES, DRAWN_CHAIN = 40, 4
"""The largest tree that can be drawn, and how many states of CLIFF's chain are."""


class Example(NamedTuple):
    """An MDP, the expert in it and the reward that both are judged by."""

    name: str
    mdp: FiniteMDP
    expert: np.ndarray
    """π_E[t, s, a]; the same at all times, and deterministic."""
    reward: np.ndarray
    """r[t, s, a]; the same at all times."""
    states: tuple[str, ...]
    actions: tuple[str, ...]


def loop(horizon: int) -> Example:
    """LOOP: in s_1 the expert stays, from s_2 it comes back; the wrong action leads to s_2 from everywhere."""
    reward = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    return _example("LOOP", horizon, [[1, 2], [2, 1], [1, 2]], [0, 1, 0], reward, ("s_0", "s_1", "s_2"))


def cliff(horizon: int) -> Example:
    """CLIFF: a_1 goes on along s_0, s_1, ..., s_{T−1}, a_2 falls into s_x, the last state, for good."""
    check_whole(1, horizon=horizon)
    chain = np.arange(horizon)
    onward = np.append(np.minimum(chain + 1, horizon - 1), horizon)
    reward = np.zeros((horizon + 1, 2))
    reward[:, 1] = reward[horizon] = -1
    available = np.ones((horizon + 1, 2), bool)
    available[horizon, 1] = False
    states = (*(f"s_{{{i}}}" for i in chain), "s_x")
    transitions = np.stack([onward, np.full(horizon + 1, horizon)], axis=1)
    return _example("CLIFF", horizon, transitions, np.zeros(horizon + 1, int), reward, states, available)


def unicycle(horizon: int) -> Example:
    """UNICYCLE: in s_1, index 0, the expert stays; a_2 leads to s_2 for good."""
    reward = np.array([[0.0, 0.0], [-1.0, -1.0]])
    available = [[True, True], [True, False]]
    return _example("UNICYCLE", horizon, [[0, 1], [1, 1]], [0, 0], reward, ("s_1", "s_2"), available)


def tree(horizon: int, actions: int) -> Example:
    """TREE: a node for each sequence of fewer than T actions, the children of node i being |A| i + 1, ..., |A| i + |A|.

    The expert takes the last action everywhere. Leaves lead to themselves, after the last step.
    """
    check_whole(1, horizon=horizon, actions=actions)
    magnitude = max((horizon - 1) * math.log10(actions), math.log10(horizon))
    nodes = (horizon if actions == 1 else (actions**horizon - 1) // (actions - 1)) if magnitude < 15 else MOST_NODES + 1
    if nodes > MOST_NODES:
        count = f"{nodes:,}" if magnitude < 15 else f"about 10^{magnitude:.0f}"
        raise SettingError(
            f"a tree of horizon {horizon} and {actions} actions has {count} nodes: at most {MOST_NODES:,} are possible"
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
    """An example that starts in its first state, with an expert that takes `acts`."""
    check_whole(1, horizon=horizon)
    count, actions = reward.shape
    mdp = FiniteMDP(np.asarray(transitions), np.eye(1, count)[0], horizon, available)
    expert = np.eye(actions)[np.asarray(acts)]
    names = tuple(f"a_{{{i + 1}}}" if i > 8 else f"a_{i + 1}" for i in range(actions))
    # Views: a large tree would not fit in memory T times.
    return Example(name, mdp, np.broadcast_to(expert, mdp.shape), np.broadcast_to(reward, mdp.shape), states, names)


def erring(example: Example, p: float, where: str | int = "all") -> np.ndarray:
    """The learner that takes a wrong action with probability p, each alike, and else acts as the expert.

    It errs in every state that has a wrong action, or in the one whose index is `where`.
    """
    if isinstance(p, bool) or not 0 <= p <= 1:
        raise SettingError(f"p is {p!r}: a probability, from 0 to 1, is needed")
    wrong = np.asarray(example.mdp.available) & (example.expert[0] == 0)
    count = wrong.sum(-1, keepdims=True)
    errs = count > 0
    if where != "all":
        if isinstance(where, bool | str) or not 0 <= where < len(example.states):
            raise SettingError(f"where is {where!r}: 'all' or a state from 0 to {len(example.states) - 1} is needed")
        if not errs[where]:
            raise SettingError(f"where is {where}: {example.name} has no wrong action in {example.states[where]}")
        errs = errs & (np.arange(len(errs)) == where)[:, None]
    learner = np.where(errs, (1 - p) * example.expert[0] + p * wrong / np.maximum(count, 1), example.expert[0])
    return np.broadcast_to(learner, example.expert.shape)


def reachable(example: Example, acts: Any = None) -> list[np.ndarray]:
    """The states that can be reached at each time, by any available actions or by those of `acts`[s, a] alone."""
    following = _following(example)
    acts = np.asarray(example.mdp.available if acts is None else acts, bool)
    states = [np.flatnonzero(example.mdp.initial)]
    while len(states) < example.mdp.horizon:
        states.append(np.unique(following[states[-1]][acts[states[-1]]]))
    return states


def loop_gap(p: float, horizon: int) -> float:
    """p (T − 1): whatever came before, an error costs the next step in s_1."""
    return p * (horizon - 1)


def cliff_gap(p: float, horizon: int) -> float:
    """p T for an error in s_0 alone: −1 for a_2, then −1 in s_x, T − 1 times."""
    return p * horizon


def unicycle_gap(p: float, horizon: int) -> float:
    """Σ_{t=1}^T p (1 − p)^{t−1} (T − t): the first error is at t, and T − t steps in s_2 follow it."""
    t = np.arange(1, horizon + 1)
    return float(np.sum(p * (1 - p) ** (t - 1) * (horizon - t)))


def draw(example: Example, path: Path) -> None:
    """The MDP as a graph: the expert's actions, the errors, and the reward of an action where it is not zero.

    Green states are those that the expert visits, red the others. A long chain is cut short, a large tree refused.
    """
    places = _places(example)
    across, down = (np.ptp([place[axis] for place in places.values()]) for axis in (0, 1))
    made, (axis,) = figures.figure(1, 1.4 * across + 3.6, 1.4 * down + 2.4)
    middle = np.mean(list(places.values()), axis=0)
    edges = _edges(example, places)
    for (start, end, color), label in edges.items():
        if start == end:
            _draw_loop(axis, places[start], places[start] - middle, color, label)
        else:
            bent = any((end, start) == edge[:2] for edge in edges)
            _draw_edge(axis, places[start], places[end], color, label, 0.3 if bent else 0.0)
    visited = _visited(example)
    for state, place in places.items():
        if state == len(example.states):
            axis.text(*place, "…", fontsize=20, ha="center", va="center")
            continue
        color = "black" if state == 0 else figures.EXPERT if state in visited else figures.CRASH
        style = {"boxstyle": "circle,pad=0.35", "facecolor": "white", "edgecolor": color, "linewidth": 2}
        axis.text(*place, f"${example.states[state]}$", color=color, fontsize=13, ha="center", va="center", bbox=style)
    low, high = np.min(list(places.values()), axis=0), np.max(list(places.values()), axis=0)
    axis.set(xlim=(low[0] - 1.3, high[0] + 1.3), ylim=(low[1] - 0.9, high[1] + 0.8), aspect="equal")
    axis.set_title(f"{example.name}, the expert's actions in green, errors in red", fontsize=10)
    axis.set_axis_off()
    figures.save(made, Path(path))


def _places(example: Example) -> dict[int, np.ndarray]:
    """Where each state is drawn; those left out share a place, that of an index beyond the last."""
    horizon, states, actions = example.mdp.shape
    if example.name == "TREE":
        if states > DRAWN_NODES:
            raise SettingError(f"the tree has {states} nodes: at most {DRAWN_NODES} can be drawn")
        leaves = actions ** (horizon - 1)
        levels = [(depth, i) for depth in range(horizon) for i in range(actions**depth)]
        return {n: np.array([(i + 0.5) * leaves / actions**d, -1.3 * d]) for n, (d, i) in enumerate(levels)}
    if example.name == "CLIFF":
        shown = min(horizon, DRAWN_CHAIN)
        chain = {i: np.array([1.5 * i, 0.0]) for i in range(shown)}
        more = {states: np.array([1.5 * shown, 0.0])} if horizon > shown else {}
        return chain | more | {horizon: np.array([0.75 * (shown - 1), -1.8])}
    corners = [[0.0, 0.0], [1.8, 1.0], [1.8, -1.0]] if example.name == "LOOP" else [[0.0, 0.0], [2.0, 0.0]]
    return dict(enumerate(map(np.array, corners)))


def _edges(example: Example, places: dict[int, np.ndarray]) -> dict[tuple[int, int, str], str]:
    """(from, to, colour) of every arrow, and what is written beside it. The loops at a tree's leaves are left out."""
    following, available = _following(example), np.asarray(example.mdp.available)
    edges: dict[tuple[int, int, str], str] = {}
    for state in places.keys() - {len(example.states)}:
        for action in np.flatnonzero(available[state]):
            to = int(following[state, action])
            if example.name == "TREE" and to == state:
                continue
            right = figures.EXPERT if example.expert[0, state, action] else figures.CRASH
            color = right if available[state].sum() > 1 else figures.LINES[-1]
            reward = example.reward[0, state, action]
            label = f"${example.actions[action]}$" + (f": {reward:+g}".replace("-", "−") if reward else "")
            edge = (state, to if to in places else len(example.states), color)
            edges[edge] = f"{edges[edge]}, {label}" if edge in edges else label
    return edges


def _following(example: Example) -> np.ndarray:
    return np.asarray(cast(Successors, example.mdp.dynamics).index)


def _visited(example: Example) -> set[int]:
    return {int(state) for states in reachable(example, example.expert[0] > 0) for state in states}


def _draw_edge(axis: Any, start: np.ndarray, end: np.ndarray, color: str, label: str, bend: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    ends: Any = (start, end)
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 14, "linewidth": 2, "color": color}
    axis.add_patch(FancyArrowPatch(*ends, connectionstyle=f"arc3,rad={bend}", shrinkA=18, shrinkB=18, **style))
    aside = np.array([end[1] - start[1], start[0] - end[0]])
    place = (start + end) / 2 + 0.5 * bend * aside
    halo = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    axis.text(*place, label, color=color, fontsize=11, ha="center", va="center", bbox=halo)


def _draw_loop(axis: Any, place: np.ndarray, outward: np.ndarray, color: str, label: str) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    angle = np.arctan2(outward[1], outward[0])
    away = [np.array([np.cos(angle + turn), np.sin(angle + turn)]) for turn in (0.6, 0.7, -0.7, -0.6)]
    points = [place + size * way for size, way in zip((0.3, 0.85, 0.85, 0.3), away, strict=True)]
    curve = Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
    axis.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=14, linewidth=2, color=color))
    halo = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    place = place + np.array([0.95, 0.72]) * np.array([np.cos(angle), np.sin(angle)])
    axis.text(*place, label, color=color, fontsize=11, ha="center", va="center", bbox=halo)
