"""The paper's example MDPs as graphs."""

from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import SettingError
from understudy.evaluation import drawing
from understudy.tabular.examples import Example, reachable, successor_table

DRAWN_NODES, DRAWN_CHAIN = 40, 4
"""The most nodes of a tree that is drawn, and the states of CLIFF's chain that are drawn."""


def draw_example(example: Example, path: Path) -> None:
    """Draw an MDP as a graph: the expert's actions, the errors, and nonzero rewards.

    States that the expert visits are green, the others red. A long chain is cut short; a large tree is an error.
    """
    positions = _positions(example)
    across, down = (np.ptp([position[axis] for position in positions.values()]) for axis in (0, 1))
    made, (axis,) = drawing.figure(1, 1.4 * across + 3.6, 1.4 * down + 2.4)
    middle = np.mean(list(positions.values()), axis=0)
    edges = _edges(example, positions)
    for (start, end, color), label in edges.items():
        if start == end:
            _draw_loop(axis, positions[start], positions[start] - middle, color, label)
        else:
            bent = any((end, start) == edge[:2] for edge in edges)
            _draw_edge(axis, positions[start], positions[end], color, label, 0.3 if bent else 0.0)
    visited = _visited(example)
    for state, position in positions.items():
        if state == len(example.states):
            axis.text(*position, "…", fontsize=20, ha="center", va="center")
            continue
        color = "black" if state == 0 else drawing.EXPERT if state in visited else drawing.CRASH
        style = {"boxstyle": "circle,pad=0.35", "facecolor": "white", "edgecolor": color, "linewidth": 2}
        axis.text(
            *position, f"${example.states[state]}$", color=color, fontsize=13, ha="center", va="center", bbox=style
        )
    low, high = np.min(list(positions.values()), axis=0), np.max(list(positions.values()), axis=0)
    axis.set(xlim=(low[0] - 1.3, high[0] + 1.3), ylim=(low[1] - 0.9, high[1] + 0.8), aspect="equal")
    axis.set_title(f"{example.name}, the expert's actions in green, errors in red", fontsize=10)
    axis.set_axis_off()
    drawing.save(made, Path(path))


def _positions(example: Example) -> dict[int, np.ndarray]:
    """The position of each state. States that are left out share the one of an index beyond the last."""
    horizon, states, actions = example.mdp.shape
    if example.name == "TREE":
        if states > DRAWN_NODES:
            raise SettingError(f"the tree has {states} nodes: draw one with at most {DRAWN_NODES}")
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


def _edges(example: Example, positions: dict[int, np.ndarray]) -> dict[tuple[int, int, str], str]:
    """(from, to, color) of every arrow → its label. The self-loops at a tree's leaves are left out."""
    successors, available = successor_table(example), np.asarray(example.mdp.available)
    edges: dict[tuple[int, int, str], str] = {}
    for state in positions.keys() - {len(example.states)}:
        for action in np.flatnonzero(available[state]):
            to = int(successors[state, action])
            if example.name == "TREE" and to == state:
                continue
            right = drawing.EXPERT if example.expert[0, state, action] else drawing.CRASH
            color = right if available[state].sum() > 1 else drawing.LINES[-1]
            reward = example.reward[0, state, action]
            label = f"${example.actions[action]}$" + (f": {reward:+g}".replace("-", "−") if reward else "")
            edge = (state, to if to in positions else len(example.states), color)
            edges[edge] = f"{edges[edge]}, {label}" if edge in edges else label
    return edges


def _visited(example: Example) -> set[int]:
    return {int(state) for states in reachable(example, example.expert[0] > 0) for state in states}


def _draw_edge(axis: Any, start: np.ndarray, end: np.ndarray, color: str, label: str, bend: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    ends: Any = (start, end)
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 14, "linewidth": 2, "color": color}
    axis.add_patch(FancyArrowPatch(*ends, connectionstyle=f"arc3,rad={bend}", shrinkA=18, shrinkB=18, **style))
    aside = np.array([end[1] - start[1], start[0] - end[0]])
    middle = (start + end) / 2 + 0.5 * bend * aside
    halo = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    axis.text(*middle, label, color=color, fontsize=11, ha="center", va="center", bbox=halo)


def _draw_loop(axis: Any, position: np.ndarray, outward: np.ndarray, color: str, label: str) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    angle = np.arctan2(outward[1], outward[0])
    away = [np.array([np.cos(angle + turn), np.sin(angle + turn)]) for turn in (0.6, 0.7, -0.7, -0.6)]
    points = [position + size * way for size, way in zip((0.3, 0.85, 0.85, 0.3), away, strict=True)]
    curve = Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
    axis.add_patch(FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=14, linewidth=2, color=color))
    halo = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    middle = position + np.array([0.95, 0.72]) * np.array([np.cos(angle), np.sin(angle)])
    axis.text(*middle, label, color=color, fontsize=11, ha="center", va="center", bbox=halo)
