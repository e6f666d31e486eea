"""A study's curves as figures for papers: one panel per task, as PNG and SVG."""

import math
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import RunError
from understudy.core.statistics import Interval, Sample, interval
from understudy.evaluation import drawing
from understudy.studies.published import FindPublished, nothing_published
from understudy.studies.report.learners import X_TITLES, LearnerResults, Record, TaskResults, group_by_task, labels

FORMATS = (".png", ".svg", ".pdf")
LEGEND_WIDTH = 40
"""Characters in a line of a legend, which has two columns."""
LEGEND_LINE = 0.14
"""Inches by which a figure grows with each line of its legend, so that the axes keep their size."""


def draw(
    records: Sequence[Record], path: str | os.PathLike[str], find_published: FindPublished = nothing_published
) -> list[Path]:
    """Write the figure and return its files: `path` if it ends in .png, .svg or .pdf, else `path`.png and `path`.svg.

    A task shows learning curves with 95% intervals; an algorithm without environment steps is a horizontal line. If it
    has no curves, or several numbers of trajectories, it shows the returns of the final policies.
    """
    tasks = [
        task
        for task in group_by_task(records, find_published)
        if any(learner.score is not None for learner in task.learners)
    ]
    if not tasks:
        raise RunError("there is nothing to draw, because no policy has been evaluated: run the study first")
    path = Path(path)
    paths = [path] if path.suffix in FORMATS else [path.with_name(path.name + suffix) for suffix in FORMATS[:2]]
    colours = {label: drawing.LINES[index % len(drawing.LINES)] for index, label in enumerate(labels(tasks))}
    columns = min(len(tasks), 2)
    rows = math.ceil(len(tasks) / columns)
    figure, axes = drawing.figure(columns, width=5.6, height=4.2, rows=rows)
    for axis, task in zip(axes, tasks, strict=False):
        _draw_panel(axis, task, colours)
    for axis in axes[len(tasks) :]:
        axis.set_visible(False)
    legends = [axis.get_legend().texts for axis in axes[: len(tasks)]]
    lines = max(sum(label.get_text().count("\n") + 1 for label in legend) for legend in legends)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + rows * LEGEND_LINE * max(lines - 8, 0) / 2)
    for file in paths:
        drawing.save(figure, file)
    return paths


def _draw_panel(axis: Any, task: TaskResults, colours: dict[str, str]) -> None:
    kinds = {learner.x_kind for learner in task.learners if learner.x_kind is not None}
    if kinds and not task.several_counts:
        _draw_curves(axis, task, next(kind for kind in X_TITLES if kind in kinds), colours)
    else:
        _draw_final_returns(axis, task, colours)
    if task.expert is not None:
        axis.axhline(task.expert, color=drawing.EXPERT, linewidth=1.5, label="the expert")
    axis.set_title(_plain(task.name))
    axis.spines[["top", "right"]].set_visible(False)
    handles, names = axis.get_legend_handles_labels()
    wrapped = ["\n".join(textwrap.wrap(name, LEGEND_WIDTH)) for name in names]
    axis.legend(handles, wrapped, fontsize=7, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def _draw_curves(axis: Any, task: TaskResults, kind: str, colours: dict[str, str]) -> None:
    drawn: set[str] = set()
    for learner in task.learners:
        if learner.x_kind != kind:
            continue
        color, samples = colours[learner.label], learner.curve.samples
        ends = np.array([interval(sample) for sample in samples.values()])
        x = list(samples)
        axis.plot(x, ends[:, 0], color=color, label=_plain(learner.name), linewidth=1.8, marker="o", markersize=3)
        axis.fill_between(x, ends[:, 1], ends[:, 2], color=color, alpha=0.18, linewidth=0)
        published, name = learner.published_curve, learner.published.name
        if published and name not in drawn:
            drawn.add(name)
            means = [sample.mean for sample in published.values()]
            axis.plot(list(published), means, color=color, linestyle=":", label=_published_name(learner))
    for learner in task.learners:
        level = learner.curve.final_sample
        if learner.offline and level is not None:
            draw_level(axis, interval(level), colours[learner.label], _plain(learner.name))
    axis.set(xlabel=X_TITLES[kind], ylabel="return (mean over seeds, 95% t interval)")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if abs(x) >= 10_000 else f"{x:g}")
    lowest, highest = _y_range(task)
    margin = 0.06 * (highest - lowest) or 1.0
    axis.set_ylim(lowest - margin, highest + margin)


def draw_level(axis: Any, level: Interval, color: str, label: str) -> None:
    """Draw the final policies of a learner without environment steps: a dashed line with a light band."""
    axis.axhline(level.mean, color=color, label=label, linewidth=1.8, linestyle=(0, (6, 3)))
    if math.isfinite(level.low):
        axis.axhspan(level.low, level.high, color=color, alpha=0.08, linewidth=0)


def _draw_final_returns(axis: Any, task: TaskResults, colours: dict[str, str]) -> None:
    by_label: dict[str, dict[int, Sample]] = {}
    for learner in task.learners:
        if learner.score is not None:
            by_label.setdefault(learner.label, {})[learner.trajectories] = learner.score
    drawn: set[str] = set()
    for label, samples in by_label.items():
        drawing.draw_points(axis, samples, colours[label], _plain(label))
        learner = next(learner for learner in task.learners if learner.label == label)
        if learner.algorithm not in drawn:  # once for all presets of an algorithm
            drawn.add(learner.algorithm)
            known = dict(learner.published.by_trajectories)
            drawing.draw_points(axis, known, colours[label], _published_name(learner), published=True)
    axis.set_xticks(sorted({count for samples in by_label.values() for count in samples}))
    axis.set(
        xlabel="demonstrated trajectories", ylabel="return of the final policy\n(mean ± standard error over seeds)"
    )


def _y_range(task: TaskResults) -> tuple[float, float]:
    """Range of the y axis: all seeds, published means and the expert. Wide intervals may exceed it."""
    values = [y for learner in task.learners for points in learner.curve.seeds.values() for y in points.values()]
    values += [y for learner in task.learners if learner.offline for y in learner.curve.final.values()]
    values += [sample.mean for learner in task.learners for sample in learner.published_curve.values()]
    values += [] if task.expert is None else [task.expert]
    return min(values), max(values)


def _published_name(learner: LearnerResults) -> str:
    published = learner.published
    return _plain(f"{published.name}, published" + (f" ({published.source})" if published.source else ""))


def _plain(text: str) -> str:
    """Text that matplotlib neither typesets as mathematics nor leaves out of the legend."""
    plain = text.replace("$", r"\$")
    return f" {plain}" if plain.startswith("_") else plain
