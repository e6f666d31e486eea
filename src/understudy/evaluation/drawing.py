"""Matplotlib helpers: figures without a display, flights through the forest, gaps, and curves with error bars."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from understudy.collect.recorder import Episodes
from understudy.core.statistics import Sample
from understudy.core.storage import atomic_file
from understudy.core.types import Transition
from understudy.envs.forest import SIZE, Forest
from understudy.evaluation.returns import Score

TREE, EXPERT, LEARNER, CRASH = "#7fa37f", "#008000", "#e8743b", "#c0392b"
LINES = ("#e8743b", "#4c72b0", "#8e44ad", "#b08d57", "#17a2a2", "#555555", "#d6337c", "#c9a800", "#1f3a5f", "#7a3b1d")
"""Colors of the learners in a figure."""


def figure(columns: int, width: float = 4.2, height: float = 4.4, rows: int = 1) -> tuple[Any, Any]:
    """A figure and its axes, row by row. It needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    new = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(new)
    return new, new.subplots(rows, columns, squeeze=False).ravel()


def save(figure: Any, path: Path) -> None:
    """Write a figure to a file, atomically."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=160, format=path.suffix[1:])


def draw_forest(axis: Any, forest: Forest, flights: Sequence[Episodes], color: str, title: str) -> None:
    """Draw the forest from above, each flight as a line, and a cross at each collision with a tree."""
    from matplotlib.patches import Circle

    for x, y, radius in np.asarray(forest.trees):
        axis.add_patch(Circle((x, y), radius, color=TREE, linewidth=0))
    for episodes in flights:
        for steps, length in zip(zip(*episodes.steps, strict=True), episodes.lengths, strict=True):
            flight = Transition(*(np.asarray(column)[:length] for column in steps))
            path = np.concatenate([flight.obs, flight.next_obs[-1:]])
            axis.plot(path[:, 1], path[:, 2], color=color, linewidth=1.2, alpha=0.7)
            x, y = path[-1, 1:3]
            if flight.terminal[-1] and 0 <= x <= SIZE and y < SIZE:
                axis.plot(x, y, marker="x", color=CRASH, markersize=7, markeredgewidth=2)
    axis.set(xlim=(0, SIZE), ylim=(-2, SIZE), aspect="equal", title=title, xlabel="x (m)", ylabel="y (m)")


def draw_gaps(axis: Any, scores: Sequence[Score], title: str) -> None:
    """Draw the imitation gap by the number of demonstrations, with 95% intervals (`Score.gap`)."""
    gaps = [(score.episodes or 0, score.gap) for score in scores if score.gap is not None]
    x = [episodes for episodes, _ in gaps]
    mean = np.array([gap.mean for _, gap in gaps])
    low, high = np.array([gap.low for _, gap in gaps]), np.array([gap.high for _, gap in gaps])
    axis.errorbar(x, mean, yerr=np.stack([mean - low, high - mean]), color=LEARNER, marker="o", capsize=4)
    axis.axhline(0, color=EXPERT, linewidth=1.5)
    clear = sum(sorted(x)[-2:]) / len(x[-2:])  # between two points, whose intervals may cross the line
    axis.annotate("the expert", (clear, 0), (0, -4), textcoords="offset points", ha="center", va="top", color=EXPERT)
    what = "imitation gap  J(π_E) − J(π)\n(mean, 95% t interval over seeds)"
    axis.set(xticks=x, title=title, xlabel="demonstrated episodes", ylabel=what)
    axis.spines[["top", "right"]].set_visible(False)


def draw_points(axis: Any, samples: dict[int, Sample], color: str, label: str, published: bool = False) -> None:
    """Draw means with standard errors as a line. Published numbers are dotted, with hollow markers."""
    if not samples:
        return
    x = sorted(samples)
    mean = [samples[count].mean for count in x]
    error = [samples[count].standard_error for count in x]
    style = {"linestyle": ":", "markerfacecolor": "white", "alpha": 0.7} if published else {"linestyle": "-"}
    axis.errorbar(x, mean, yerr=error, color=color, marker="o", markersize=5, capsize=3, label=label, **style)
