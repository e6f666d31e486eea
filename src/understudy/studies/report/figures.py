"""A study's curves for papers: one panel for each task, as PNG and SVG."""

import math
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import RunError
from understudy.core.statistics import Sample, interval
from understudy.evaluation import drawing as figures
from understudy.studies.report.lines import CURVES, Cell, Task, gather, labels

FORMATS = (".png", ".svg", ".pdf")
NAME = 40
"""Characters on a line of the legend, of which two are side by side."""
LINE = 0.14
"""Inches by which a figure grows with a line of its legend, so that the axes keep their size."""


def draw(cells: Sequence[Cell], path: str | os.PathLike[str]) -> list[Path]:
    """Write the figure and return its files: `path` itself if it ends in .png, .svg or .pdf, else both of the first.

    A task with curves shows them with bands of the 95% interval; one without, or with several numbers of trajectories,
    shows what the policies handed over return.
    """
    tasks = [task for task in gather(cells) if any(line.best_known is not None for line in task.lines)]
    if not tasks:
        raise RunError("no cell has been played, so there is nothing to draw: run the study first")
    path = Path(path)
    paths = [path] if path.suffix in FORMATS else [path.with_name(path.name + ending) for ending in FORMATS[:2]]
    colours = {label: figures.LINES[index % len(figures.LINES)] for index, label in enumerate(labels(tasks))}
    columns = min(len(tasks), 2)
    picture, axes = figures.figure(columns, width=5.6, height=4.2, rows=math.ceil(len(tasks) / columns))
    for axis, task in zip(axes, tasks, strict=False):
        _panel(axis, task, colours)
    for axis in axes[len(tasks) :]:
        axis.set_visible(False)
    lines = max(
        sum(label.get_text().count("\n") + 1 for label in axis.get_legend().texts) for axis in axes[: len(tasks)]
    )
    wide, high = picture.get_size_inches()
    picture.set_size_inches(wide, high + math.ceil(len(tasks) / columns) * LINE * max(lines - 8, 0) / 2)
    for file in paths:
        figures.save(picture, file)
    return paths


def _panel(axis: Any, task: Task, colours: dict[str, str]) -> None:
    kinds = {line.kind for line in task.lines if line.kind is not None}
    if kinds and not task.several_counts:
        _curves(axis, task, next(kind for kind in CURVES if kind in kinds), colours)
    else:
        _counts(axis, task, colours)
    if task.expert is not None:
        axis.axhline(task.expert, color=figures.EXPERT, linewidth=1.5, label="the expert")
    axis.set_title(_plain(task.name))
    axis.spines[["top", "right"]].set_visible(False)
    handles, names = axis.get_legend_handles_labels()
    wrapped = ["\n".join(textwrap.wrap(name, NAME)) for name in names]
    axis.legend(handles, wrapped, fontsize=7, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _curves(axis: Any, task: Task, kind: str, colours: dict[str, str]) -> None:
    drawn: set[str] = set()
    for line in task.lines:
        if line.kind != kind:
            continue
        color = colours[line.label]
        x = list(line.curve)
        ends = np.array([interval(sample) for sample in line.curve.values()])
        axis.plot(x, ends[:, 0], color=color, label=_plain(line.name), linewidth=1.8, marker="o", markersize=3)
        axis.fill_between(x, ends[:, 1], ends[:, 2], color=color, alpha=0.18, linewidth=0)
        theirs = line.published_curve
        if theirs and line.published_name not in drawn:
            drawn.add(line.published_name)
            means = [sample.mean for sample in theirs.values()]
            axis.plot(list(theirs), means, color=color, linestyle=":", label=f"{line.published_name}, published")
    axis.set(xlabel=CURVES[kind], ylabel="return (mean, 95% interval)")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if abs(x) >= 10_000 else f"{x:g}")
    lowest, highest = _range(task)
    margin = 0.06 * (highest - lowest) or 1.0
    axis.set_ylim(lowest - margin, highest + margin)


def _counts(axis: Any, task: Task, colours: dict[str, str]) -> None:
    by_label: dict[str, dict[int, Sample]] = {}
    for line in task.lines:
        if line.best_known is not None:
            by_label.setdefault(line.label, {})[line.trajectories] = line.best_known
    drawn: set[str] = set()
    for label, samples in by_label.items():
        figures.draw_points(axis, samples, colours[label], _plain(label))
        line = next(line for line in task.lines if line.label == label)
        if line.algorithm not in drawn:  # once, whatever its presets
            drawn.add(line.algorithm)
            name = f"{_plain(line.algorithm)}, published"
            figures.draw_points(axis, line.published_counts, colours[label], name, published=True)
    axis.set_xticks(sorted({count for samples in by_label.values() for count in samples}))
    axis.set(xlabel="demonstrated trajectories", ylabel="return handed over (mean ± standard error)")


def _range(task: Task) -> tuple[float, float]:
    """What the y axis shows: all seeds, published means and the expert; wide intervals may leave it."""
    values = [y for line in task.lines for points in line.traces.values() for y in points.values()]
    values += [sample.mean for line in task.lines for sample in line.published_curve.values()]
    values += [] if task.expert is None else [task.expert]
    return min(values), max(values)


def _plain(text: str) -> str:
    """Text that matplotlib does not take for mathematics, or for a label to leave out."""
    plain = text.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain
