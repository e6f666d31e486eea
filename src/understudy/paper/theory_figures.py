"""The theory's pictures, from what `experiments.theory` computed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from understudy.evaluation import drawing as figures
from understudy.paper.example_drawing import draw as draw_example
from understudy.paper.theory import EPSILON, GAMES, KAPPA, SIDES, Effort, Line, Map, Tree
from understudy.tabular import examples
from understudy.tabular.solvers import Solution


def draw(
    found: Sequence[Line], solved: Sequence[Solution], sweep: Sequence[Map], grown: Sequence[Tree], path: Path
) -> None:
    """Six panels: three of slopes, certificates against iterations, the map of random MDPs, and TREE."""
    picture, axes = figures.figure(3, width=4.6, height=3.9, rows=2)
    for axis, example, word, title in (
        (axes[0], "CLIFF", "ε", f"CLIFF: gap at a fixed payoff, ε = 1/{round(1 / EPSILON)}"),
        (axes[1], "LOOP", "ε", f"LOOP: gap at a fixed payoff, ε = 1/{round(1 / EPSILON)}"),
        (axes[2], "", "κ", f"gap at a fixed classification error, κ = {KAPPA:g}"),
    ):
        chosen = [one for one in found if one.fixed.startswith(word) and one.example.startswith(example)]
        for index, line in enumerate(chosen):
            label = f"{line.example}, {line.moments} ({line.fixed}): slope {line.slope:.2f}"
            # Lines that coincide stay visible.
            style: dict[str, Any] = {"linewidth": 5 - 1.8 * index, "markersize": 11 - 3 * index}
            axis.loglog(line.horizons, line.gaps, marker="o", color=figures.LINES[index], label=label, **style)
        axis.set(title=title, xlabel="horizon T", ylabel="imitation gap  J(π_E) − J(π)")
    for index, solution in enumerate(solved):
        moments, side = solution.label.split(" moments, ")[0], solution.label.split(", ")[1]
        style = {"color": figures.LINES[index // 2], "linestyle": "-" if side == "primal" else "--"}
        axes[3].loglog(solution.certificates[:, 0], solution.certificates[:, 1], label=f"{moments}, {side}", **style)
    axes[3].axhline(solved[0].delta, color=figures.EXPERT, linewidth=1)
    axes[3].set(title="certificates (boxes F_r/2, F_Q/2T)", xlabel="iterations", ylabel="certificate δ")
    for index, one in enumerate(sweep):
        few = slice(None, None, max(1, len(one.gaps) // 400))
        shown = (one.gaps > 1e-6) & (one.limits > 1e-6)
        label = f"{one.moments}: {one.label.split(':')[0]}"
        x, y = one.limits[shown][few], one.gaps[shown][few]
        axes[4].loglog(x, y, ".", markersize=3, color=figures.LINES[index], label=label, alpha=0.6)
    ends = np.array(axes[4].get_xlim())
    axes[4].loglog(ends, ends, color=figures.EXPERT, linewidth=1)
    axes[4].set(title="random MDPs: gap and bound", xlabel="upper bound", ylabel="imitation gap")
    for index, actions in enumerate(sorted({one.actions for one in grown})):
        chosen_trees = [one for one in grown if one.actions == actions]
        for counts, dashes, label in (
            ([one.planned for one in chosen_trees], "-", "all reachable: reward, on-Q (U3)"),
            ([one.edges for one in chosen_trees], "--", "one path's: off-Q, DAeQuIL's history loss"),
        ):
            style = {"color": figures.LINES[index], "linestyle": dashes, "label": f"|A| = {actions}, {label}"}
            axes[5].semilogy([one.horizon for one in chosen_trees], counts, marker="o", **style)
    top = 1000 * max(one.planned for one in grown)  # the legend needs the room
    axes[5].set(title="TREE: what a best response weighs", xlabel="horizon T", ylabel="(t, s, a)", ylim=(None, top))
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=6.5, frameon=False)
    figures.save(picture, path)


def draw_examples(place: Path) -> None:
    """The four example MDPs, a picture each."""
    for example in (examples.loop(8), examples.cliff(8), examples.unicycle(8), examples.tree(3, 3)):
        draw_example(example, place / f"{example.name.lower()}.png")


def draw_efforts(found: Sequence[Effort], path: Path) -> None:
    """Iterations against each dimension, a panel each; what the proofs ask for is off the scale."""
    names = list(dict.fromkeys(one.dimension for one in found))
    picture, axes = figures.figure(len(names), width=3.6, height=3.6)
    for axis, name in zip(axes, names, strict=True):
        for index, moments in enumerate(GAMES):
            for side in SIDES:
                chosen = [one for one in found if (one.dimension, one.moments, one.side) == (name, moments, side)]
                style = {"color": figures.LINES[index], "linestyle": "-" if side == "primal" else "--"}
                x, y = [one.value for one in chosen], [one.iterations for one in chosen]
                axis.loglog(x, y, marker="o", markersize=4, label=f"{moments}, {side}", **style)
        ticks = sorted({one.value for one in found if one.dimension == name})
        axis.set(xlabel=name, ylabel="iterations to the certificate", xticks=ticks)
        axis.set_xticks([], minor=True)
        axis.set_xticklabels([f"{tick:g}" for tick in ticks])
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=6.5, frameon=False)
    figures.save(picture, path)
