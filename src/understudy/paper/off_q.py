"""The paper's offline figure: return against the number of demonstrated trajectories (`studies/off-q.toml`).

Each learner is trained on 5 to 25 trajectories with five seeds, all in one program. Every final policy is evaluated in
ten episodes. `understudy reproduce off-q` runs it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from understudy.core import display
from understudy.core.errors import NeedsError
from understudy.core.options import Int_, Ints_, Names_, Path_, default
from understudy.core.statistics import Sample, holm, p_less
from understudy.evaluation import drawing
from understudy.paper import figure_studies, published
from understudy.paper.figure_studies import TASKS, TaskName
from understudy.paper.formatting import with_error
from understudy.studies.curves import Curve, read_curves
from understudy.studies.records import FINAL


def reproduce_off_q(
    task: TaskName,
    demos: Annotated[Path_, default("the bundled ones")] = None,
    learners: Annotated[Names_, default("the figure's")] = None,
    trajectories: Annotated[Ints_, default("5, 10, 15, 20 and 25")] = None,
    seeds: Annotated[Int_, default("5")] = None,
    eval_episodes: Annotated[Int_, default("10")] = None,
    workers: Annotated[int, default("one per core")] = 0,
    work: Annotated[Path_, default("runs/off-q-TASK")] = None,
    out: Annotated[Path_, default("docs/results/off-q-TASK.csv")] = None,
) -> None:
    """Return by the number of demonstrations for BC, ValueDICE and AdVIL, next to the paper's numbers.

    Args:
        task: Task of the paper.
        demos: File of demonstrations (.npz).
        learners: Learners to train instead of the figure's: an algorithm with an optional preset and settings, such as
            advil:paper or bc,lr=0.001. Without a name: train nothing, and draw the rows in the file. Rows of other
            learners stay in the file.
        trajectories: Numbers of demonstrated trajectories.
        seeds: Seeds per learner and number of trajectories.
        eval_episodes: Episodes per evaluated policy.
        workers: Processes for the evaluation.
        work: Directory of the finished cells; rerun the command to resume.
        out: CSV file of the returns; the figure is written next to it.
    """
    env = TASKS[task]
    path = Path(out or f"docs/results/off-q-{task}.csv")
    figure_studies.check_out(path)
    rows = figure_studies.read_rows(path)
    figure = figure_studies.load_study("off-q")
    entries = figure_studies.parse_learners(learners or (), trajectories=())
    if learners is None or entries:
        study = figure_studies.adapt_study(
            figure,
            *(env, demos, seeds, workers or os.cpu_count() or 1, entries),
            trajectories=trajectories,
            eval_episodes=eval_episodes,
        )
        rows = figure_studies.run_study(study, work or f"runs/off-q-{task}", path, display.progress_bar)
    if not rows:
        raise NeedsError(f"'{path}' has no returns to draw: name the learners to train with --learners")
    curves = read(rows)
    order = {(entry.name, entry.preset): index for index, entry in enumerate(figure.algorithms)}
    curves.sort(key=lambda curve: order.get((curve.algorithm, curve.preset), len(order)))
    figures = draw(env, curves, path.with_suffix(".png"))
    _print(env, curves)
    print(f"\nReturns: {path}. Figure: {', '.join(map(str, figures))}")


def read(rows: Sequence[Mapping[str, str]]) -> list[Curve]:
    """One curve by trajectories per learner: the returns of its final policies."""
    return read_curves(rows, FINAL, x="trajectories")


def published_points(curve: Curve, env: str) -> dict[int, Sample]:
    """The paper's numbers for a curve's algorithm; none if the curve's demonstrations are another expert's."""
    expert = published.EXPERT.get(env)
    other_expert = curve.expert is not None and expert is not None and round(curve.expert) != expert
    return {} if curve.bundled or other_expert else published.off_q(env, curve.algorithm)


@dataclass(frozen=True)
class PublishedComparison:
    """A curve and the published one: means over the data sizes of both."""

    ours: float
    theirs: float
    below: list[int]
    """Data sizes where ours is below the published at the 5% level (Welch, one-sided, Holm-corrected)."""


def compare(curve: Curve, env: str) -> PublishedComparison | None:
    """None if nothing was published, or if a single seed allows no test."""
    theirs = published_points(curve, env)
    shared = [count for count, sample in curve.samples.items() if count in theirs and sample.size > 1]
    if not shared:
        return None
    p_values = holm([p_less(curve.samples[count], theirs[count]) for count in shared])
    return PublishedComparison(
        float(np.mean([curve.samples[count].mean for count in shared])),
        float(np.mean([theirs[count].mean for count in shared])),
        [count for count, p_value in zip(shared, p_values, strict=True) if p_value < 0.05],
    )


def draw(env: str, curves: Sequence[Curve], path: Path) -> list[Path]:
    """Draw our curves as lines and the published ones dotted in the same colors, with standard errors.

    Curves of the bundled demonstrations go to a figure whose name ends in -bundled.
    """
    paths = []
    for bundled, name in ((False, path), (True, path.with_stem(f"{path.stem}-bundled"))):
        selected = [curve for curve in curves if curve.bundled == bundled]
        if selected:
            _draw_one(f"{env}, bundled demonstrations" if bundled else env, env, selected, name)
            paths.append(name)
    return paths


def _draw_one(title: str, env: str, curves: Sequence[Curve], path: Path) -> None:
    figure, (axis,) = drawing.figure(1, width=6.4, height=4.2)
    drawn: set[str] = set()
    for index, curve in enumerate(curves):
        color = drawing.LINES[index % len(drawing.LINES)]
        drawing.draw_points(axis, curve.samples, color, curve.name)
        theirs = published_points(curve, env)
        if theirs and curve.algorithm not in drawn:  # once for all presets of an algorithm
            drawn.add(curve.algorithm)
            drawing.draw_points(axis, theirs, color, f"{curve.algorithm}, published", published=True)
    expert = next((curve.expert for curve in curves if curve.expert is not None), None)
    if expert is not None:
        axis.axhline(expert, color=drawing.EXPERT, linewidth=1.5)
        where = (axis.get_xlim()[1], expert)
        axis.annotate("the expert", where, xytext=(-2, 4), textcoords="offset points", ha="right", color=drawing.EXPERT)
    counts = sorted({count for curve in curves for count in curve.returns})
    axis.set(
        xticks=counts,
        title=title,
        xlabel="demonstrated trajectories",
        ylabel="return (mean ± standard error over seeds)",
    )
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7, ncols=2, frameon=False)
    drawing.save(figure, path)


def _print(env: str, curves: Sequence[Curve]) -> None:
    """Print the table by trajectories, ours and published, and how each curve compares."""
    counts = sorted({count for curve in curves for count in curve.returns})
    rows: list[list[object]] = []
    for curve in curves:
        theirs = published_points(curve, env)
        source = "bundled" if curve.bundled else "ours"
        rows.append([curve.name, source, *(with_error(curve.samples.get(count)) for count in counts)])
        if theirs:
            rows.append(["", "published", *(with_error(theirs.get(count)) for count in counts)])
    title = f"{env}{experts(curves)}: return, mean ± standard error over seeds, by demonstrated trajectories"
    display.show(("learner", "", *(f">{count}" for count in counts)), rows, title)
    print()
    for curve in curves:
        comparison = compare(curve, env)
        if comparison is not None:
            below = f"at {', '.join(map(str, comparison.below))} trajectories" if comparison.below else "at no size"
            print(
                f"{curve.name}: mean {comparison.ours:.0f} over the published sizes, published "
                f"{comparison.theirs:.0f}. Significantly below the published: {below} (5% level, Holm)."
            )


def experts(curves: Sequence[Curve]) -> str:
    """The experts' returns for a table's title."""
    returns = sorted({round(curve.expert) for curve in curves if curve.expert is not None})
    return f" (expert: {' or '.join(map(str, returns))})" if returns else ""
