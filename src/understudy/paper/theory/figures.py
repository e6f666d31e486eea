"""The figures of `measurements`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from understudy.evaluation import drawing
from understudy.paper.theory.example_graphs import draw_example
from understudy.paper.theory.measurements import (
    EPSILON,
    GAMES,
    KAPPA,
    SIDES,
    BoundCheck,
    GapGrowth,
    SolverIterations,
    TreeCost,
)
from understudy.tabular import examples
from understudy.tabular.solvers import Solution

EXAMPLES = {
    "loop": examples.loop(8),
    "cliff": examples.cliff(8),
    "unicycle": examples.unicycle(8),
    "tree": examples.tree(3, 3),
}
"""The example MDPs that are drawn, by the names of their files."""


WIDTHS, SIZES = (6.0, 4.5, 1.6), (11, 8, 4)
"""Line widths and marker sizes of the first, second and third line of a panel. Wide ones are below narrow ones."""
SHAPES = ("o", "s", "D", "x", "+")
POINTS = 80
"""Points of one bound."""


def draw(
    growth: Sequence[GapGrowth],
    solved: Sequence[Solution],
    checks: Sequence[BoundCheck],
    trees: Sequence[TreeCost],
    path: Path,
) -> None:
    """Draw six panels: three of growth, certificates by iterations, bounds on random MDPs, and TREE."""
    figure, axes = drawing.figure(3, width=5.0, height=5.2, rows=2)
    for axis, example, letter, title in (
        (axes[0], "CLIFF", "ε", f"CLIFF: gap at a fixed payoff, ε = 1/{round(1 / EPSILON)}"),
        (axes[1], "LOOP", "ε", f"LOOP: gap at a fixed payoff, ε = 1/{round(1 / EPSILON)}"),
        (axes[2], "", "κ", f"gap at a classification error of κ = {KAPPA:g}"),
    ):
        selected = [one for one in growth if one.fixed.startswith(letter) and one.example.startswith(example)]
        _draw_growth(axis, selected, title)
    _draw_certificates(axes[3], solved)
    _draw_checks(axes[4], checks)
    _draw_trees(axes[5], trees)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        _legend_below(axis, columns=2 if axis in (axes[3], axes[4]) else 1)
    drawing.save(figure, path)


def _legend_below(axis: Any, columns: int = 1) -> None:
    """A legend under the axis, where it covers no line and has room for letters that can be read."""
    axis.legend(
        fontsize=9, frameon=False, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.15), handlelength=3.5
    )


def _draw_growth(axis: Any, growth: Sequence[GapGrowth], title: str) -> None:
    for index, one in enumerate(growth):
        label = f"{one.example}, {one.moments} ({one.fixed}): slope {one.slope:.2f}"
        below = [other.moments for other in growth[:index] if np.allclose(other.gaps, one.gaps, rtol=0.02)]
        label += f", on the line of {below[0]}" if below else ""
        style: dict[str, Any] = {"linewidth": WIDTHS[index], "markersize": SIZES[index], "marker": SHAPES[index]}
        style |= {"linestyle": (0, (4, 3))} if below else {"alpha": 0.75}
        axis.loglog(one.horizons, one.gaps, color=drawing.LINES[index], label=label, **style)
    axis.set(title=title, xlabel="horizon T", ylabel="imitation gap  J(π_E) − J(π)")


def _draw_certificates(axis: Any, solved: Sequence[Solution]) -> None:
    for index, solution in enumerate(solved):
        moments, side = solution.label.split(" moments, ")[0], solution.label.split(", ")[1]
        style: dict[str, Any] = {"color": drawing.LINES[index // 2], "linestyle": "-" if side == "primal" else "--"}
        style |= {"linewidth": 4.5, "alpha": 0.5} if moments == "off-Q" else {"linewidth": 1.8}  # on-Q's lies upon it
        axis.loglog(solution.certificates[:, 0], solution.certificates[:, 1], label=f"{moments}, {side}", **style)
    axis.axhline(solved[0].delta, color=drawing.EXPERT, linewidth=1, label=f"requested δ = {solved[0].delta:g}")
    axis.set(title="certificates (boxes F_r/2, F_Q/2T)", xlabel="iterations", ylabel="certificate δ")


def _draw_checks(axis: Any, checks: Sequence[BoundCheck]) -> None:
    for index, one in enumerate(checks):
        positive = (one.gaps > 1e-6) & (one.bounds > 1e-6)
        label = f"{one.moments}: {one.label.split(':')[0]}"
        thinned = slice(None, None, max(1, int(positive.sum()) // POINTS))
        x, y = one.bounds[positive][thinned], one.gaps[positive][thinned]
        # Hollow shapes of decreasing size: points of two bounds that coincide lie within each other.
        style: dict[str, Any] = {"marker": SHAPES[index], "markersize": 8.5 - 1.5 * index, "markerfacecolor": "none"}
        axis.loglog(x, y, linestyle="", color=drawing.LINES[index], label=label, alpha=0.75, **style)
    ends = np.array(axis.get_xlim())
    axis.loglog(ends, ends, color=drawing.EXPERT, linewidth=1, label="gap = bound")
    axis.set(title="random MDPs: gap and bound", xlabel="upper bound", ylabel="imitation gap")


def _draw_trees(axis: Any, trees: Sequence[TreeCost]) -> None:
    for index, actions in enumerate(sorted({one.actions for one in trees})):
        own = [one for one in trees if one.actions == actions]
        for counts, dashes, label in (
            ([one.planned for one in own], "-", "all reachable: reward, on-Q (U3)"),
            ([one.edges for one in own], "--", "one path's: off-Q, DAeQuIL's history loss"),
        ):
            style = {"color": drawing.LINES[index], "linestyle": dashes, "label": f"|A| = {actions}, {label}"}
            axis.semilogy([one.horizon for one in own], counts, marker="o", **style)
    axis.set(title="TREE: choices of a best response", xlabel="horizon T", ylabel="(t, s, a)")


def draw_examples(directory: Path) -> None:
    """Draw the four example MDPs, one file each."""
    for name, example in EXAMPLES.items():
        draw_example(example, directory / f"{name}.png")


def draw_iterations(rows: Sequence[SolverIterations], path: Path) -> None:
    """Draw iterations by each dimension, one panel each. The bounds in the proofs are far off the scale."""
    dimensions = list(dict.fromkeys(one.dimension for one in rows))
    figure, axes = drawing.figure(len(dimensions), width=3.6, height=3.6)
    for axis, dimension in zip(axes, dimensions, strict=True):
        for index, moments in enumerate(GAMES):
            for side in SIDES:
                own = [one for one in rows if (one.dimension, one.moments, one.side) == (dimension, moments, side)]
                style: dict[str, Any] = {"color": drawing.LINES[index], "linestyle": "-" if side == "primal" else "--"}
                style |= {"linewidth": WIDTHS[index], "alpha": 0.7}
                x, y = [one.value for one in own], [one.iterations for one in own]
                axis.loglog(x, y, marker="o", markersize=4, label=f"{moments}, {side}", **style)
        ticks = sorted({one.value for one in rows if one.dimension == dimension})
        axis.set(xlabel=dimension, ylabel="iterations to the certificate", xticks=ticks)
        axis.set_xticks([], minor=True)
        axis.set_xticklabels([f"{tick:g}" for tick in ticks])
        axis.spines[["top", "right"]].set_visible(False)
        _legend_below(axis, columns=2)
    drawing.save(figure, path)
