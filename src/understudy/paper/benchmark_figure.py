"""The benchmark's figure: a row of panels for each number of demonstrations.

A task's panel has the return of the current policies by environment steps (mean ± standard error over seeds); learners
that take no environment steps are horizontal lines. Then the performance profile, the share of runs whose returned
policy reaches at least a score (every task has the same weight), and the interquartile means with 95% intervals.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.evaluation import drawing
from understudy.paper.benchmark import benchmark_tasks
from understudy.paper.benchmark_table import Learner
from understudy.paper.reward import draw_band, draw_level, label_thousands

WIDTH = 3.3
"""Inches of a panel."""
LONGEST = 24
"""Characters of a name."""
LEVELS = np.linspace(0.0, 1.2, 121)


def draw(learners: Sequence[Learner], path: Path) -> None:
    """Draw the learners that have returned policies or evaluations during training."""
    shown = [learner for learner in learners if learner.scores or learner.trained]
    counts = sorted({learner.count for learner in shown})
    tasks = [
        name for name in benchmark_tasks() if any(name in {*learner.scores, *learner.trained} for learner in shown)
    ]
    shown = [replace(learner, name=label) for learner, label in zip(shown, _labels(shown), strict=True)]
    names = list(dict.fromkeys(learner.name for learner in shown))
    scored = list(dict.fromkeys(learner.name for learner in shown if learner.iqm)) or names
    colors = {name: drawing.LINES[index % len(drawing.LINES)] for index, name in enumerate(names)}
    figure, axes = drawing.figure(len(tasks) + 2, width=WIDTH, height=2.9, rows=len(counts))
    rows = axes.reshape(len(counts), -1)
    for count, row in zip(counts, rows, strict=True):
        own = [learner for learner in shown if learner.count == count]
        for task, axis in zip(tasks, row, strict=False):
            _draw_task(axis, task, own, colors)
            axis.set(title=f"{task}, {count} demonstration{'s' if count > 1 else ''}")
        _draw_profile(row[-2], own, colors)
        _draw_iqm(row[-1], [learner for learner in own if learner.iqm], scored, colors)
    handles: dict[str, Any] = {}
    for axis in axes:
        found, labels = axis.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    fitting = int(11 * WIDTH * (len(tasks) + 2)) // (max(map(len, handles)) + 5)  # 11 characters of the legend an inch
    columns = max(1, min(len(handles), fitting))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, frameon=False)
    drawing.save(figure, path)


def _labels(learners: Sequence[Learner]) -> list[str]:
    """Names that fit into the figure. A long one, with many settings, gets a number."""
    names = list(dict.fromkeys(learner.name for learner in learners))
    short = {name: name if len(name) <= LONGEST else f"{name[:LONGEST]}… ({i})" for i, name in enumerate(names, 1)}
    return [short[learner.name] for learner in learners]


def _draw_task(axis: Any, task: str, learners: Sequence[Learner], colors: dict[str, str]) -> None:
    for learner in learners:
        curve = learner.curves.get(task)
        if curve is None:
            continue
        if curve.seeds:
            draw_band(axis, curve.samples, colors[learner.name], learner.name)
        elif curve.final_sample is not None:
            draw_level(axis, curve.final_sample, colors[learner.name], learner.name)
        if curve.expert is not None:
            axis.axhline(curve.expert, color=drawing.EXPERT, linewidth=1.2, linestyle="--", label="the expert")
    axis.set(xlabel="environment steps", ylabel="return")
    label_thousands(axis)
    if not any(task in learner.trained for learner in learners):
        axis.set_xticks([])


def profile(learner: Learner) -> np.ndarray:
    """The share of runs with a score of at least each of LEVELS, with the same weight for every task."""
    shares = [(scores[:, None] >= LEVELS).mean(axis=0) for scores in learner.scores.values()]
    return np.asarray(np.mean(shares, axis=0))


def _draw_profile(axis: Any, learners: Sequence[Learner], colors: dict[str, str]) -> None:
    for learner in (learner for learner in learners if learner.scores):
        axis.plot(LEVELS, profile(learner), color=colors[learner.name], label=learner.name, linewidth=1.8)
    axis.set(title="performance profile", xlabel="return over expert", ylabel="share of runs", ylim=(-0.02, 1.02))
    axis.spines[["top", "right"]].set_visible(False)


def _draw_iqm(axis: Any, learners: Sequence[Learner], names: list[str], colors: dict[str, str]) -> None:
    """Draw the interquartile mean of each learner in the row of its name."""
    for learner in learners:
        estimate, y = learner.iqm, -names.index(learner.name)
        assert estimate is not None
        axis.plot(estimate.value, y, "o", color=colors[learner.name])
        if estimate.interval is not None:
            axis.plot(estimate.interval, (y, y), color=colors[learner.name], linewidth=2)
    axis.axvline(1, color=drawing.EXPERT, linewidth=1.2, linestyle="--")
    axis.set(title="IQM over tasks, 95% interval", xlabel="return over expert", ylim=(-len(names) + 0.5, 0.5))
    axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
    axis.set_yticks([-index for index in range(len(names))], names)
    axis.spines[["top", "right"]].set_visible(False)
