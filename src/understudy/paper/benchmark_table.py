"""The benchmark's table, from its CSV files alone (`benchmark`).

A run's score is the mean return of its returned policy divided by the mean return of the demonstrations, which counts
as exact. A task's cell is the mean over seeds with its 95% interval (Student's t over seeds). The IQM is the mean of
the middle half of all runs of all tasks, with a stratified bootstrap over runs (`evaluation.intervals`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np

from understudy.core import display
from understudy.core.errors import NeedsError
from understudy.core.options import Directory, Path_, default
from understudy.core.paths import check_file_path
from understudy.core.statistics import Sample, interval
from understudy.evaluation.intervals import Estimate, iqm
from understudy.evaluation.scores import Array, expert_normalised
from understudy.game import DEFAULT
from understudy.paper import figure_studies
from understudy.paper.benchmark import OUT, benchmark_study, benchmark_tasks, results_file
from understudy.paper.benchmark_published import PUBLISHED, SOURCES
from understudy.studies.curves import LAST, Curve, learner_name, read_curves, read_levels
from understudy.studies.records import ENV_STEPS

CAPTION = (
    "Return of the returned policy over the expert's return: mean ± 95% interval (Student's t over seeds). Worst seed: "
    "the lowest of any task. IQM: over the runs of all tasks, [95% interval] (bootstrap over runs). Minutes: training "
    "of the programs that the runs belong to, summed over tasks; a program has all seeds and numbers of demonstrations"
)
TRAINING = (
    f"During training: mean return over the expert's return of the last {LAST} evaluations, over seeds; in brackets "
    "the lowest of these evaluations of any seed; and the environment steps so far"
)
THEIRS = "Published results of others, with other experts and other protocols"
NOTHING = "not measured yet"


@dataclass(frozen=True)
class Learner:
    """One learner with one number of demonstrations."""

    name: str
    count: int
    curves: dict[str, Curve]
    """Task → its curve."""

    @cached_property
    def scores(self) -> dict[str, Array]:
        """Task → return over expert of the returned policies, a number for each seed."""
        returns, experts = {}, {}
        for task, curve in self.curves.items():
            if curve.final and curve.expert is not None:
                returns[task], experts[task] = [curve.final[seed] for seed in sorted(curve.final)], curve.expert
        scaled = expert_normalised(returns, experts) if returns else {}
        return dict(scaled) if isinstance(scaled, dict) else {}

    @property
    def trained(self) -> list[str]:
        """The tasks with evaluations during training."""
        return [task for task, curve in self.curves.items() if curve.seeds and curve.expert]

    @property
    def iqm(self) -> Estimate | None:
        """The interquartile mean over the tasks that have scores."""
        return iqm(self.scores) if self.scores else None

    @property
    def worst(self) -> tuple[float, str]:
        """The lowest score of any seed, and its task."""
        return min((float(scores.min()), task) for task, scores in self.scores.items())

    @property
    def minutes(self) -> float:
        return sum(self.curves[task].seconds for task in self.scores) / 60


def read_learners(folder: str | Path) -> list[Learner]:
    """The learners of a folder's CSV files, in the order of the study, then others by name.

    Runs on other recordings of the same expert count as the same learner.
    """
    found: dict[tuple[str, int], dict[str, Curve]] = {}
    for name, task in benchmark_tasks().items():
        rows = [{**row, "demonstrations": ""} for row in figure_studies.read_rows(results_file(folder, task))]
        for curve in [*read_curves(rows, ENV_STEPS), *read_levels(rows)]:
            key = learner_name(curve.algorithm, curve.preset, curve.settings), curve.trajectories or 0
            found.setdefault(key, {})[name] = curve
    order = _study_names()
    rank = {name: index for index, name in enumerate(order)}
    keys = sorted(found, key=lambda key: (rank.get(key[0], len(rank)), key))
    return [Learner(*key, found[key]) for key in keys]


def header() -> list[str]:
    """The columns of the table."""
    return ["learner", "demonstrations", *benchmark_tasks(), "worst seed", "IQM", "minutes"]


def table_rows(learners: Sequence[Learner]) -> list[list[str]]:
    """A row for each learner and number of demonstrations that has returned policies."""
    rows = []
    for learner in learners:
        if learner.scores:
            cells = [_cell(learner.scores.get(task)) for task in benchmark_tasks()]
            value, task = learner.worst
            worst = f"{_number(value)} ({task})"
            had, all_tasks = len(learner.scores), len(benchmark_tasks())
            iqm_cell = f"{_estimate(learner.iqm)}{f' ({had} of {all_tasks} tasks)' if had < all_tasks else ''}"
            rows.append([learner.name, str(learner.count), *cells, worst, iqm_cell, f"{learner.minutes:.1f}"])
    return rows


def training_rows(learners: Sequence[Learner]) -> list[list[str]]:
    """A row for each learner that was evaluated during training: how it ended there, finished or not."""
    return [
        [
            learner.name,
            str(learner.count),
            *(_ending(learner.curves[task]) if task in learner.trained else "" for task in benchmark_tasks()),
        ]
        for learner in learners
        if learner.trained
    ]


def _ending(curve: Curve) -> str:
    """The last evaluations over the expert's return: mean over seeds, lowest of a seed, and the steps so far."""
    assert curve.expert is not None
    last = list(curve.returns.values())[-LAST:]
    lowest = min(float(values.min()) for values in last)
    mean = float(np.mean([values.mean() for values in last]))
    return f"{_number(mean / curve.expert)} ({_number(lowest / curve.expert)}) at {max(curve.returns) / 1000:.0f}k"


def missing(learners: Sequence[Learner]) -> list[str]:
    """What is missing of the full benchmark, a line for each learner: tasks and numbers of demonstrations."""
    study, tasks = benchmark_study(), benchmark_tasks()
    seeds, counts = len(study.protocol.seeds), study.tasks[0].trajectories
    scores = {(one.name, one.count): one.scores for one in learners}
    lines = []
    for name in dict.fromkeys([*_study_names(), *(one.name for one in learners)]):
        parts = []
        for task in tasks:
            sizes = {count: len(scores.get((name, count), {}).get(task, ())) for count in counts}
            if not any(sizes.values()):
                parts.append(task)
            else:
                few = [f"{size} of {seeds} seeds with {count}" for count, size in sizes.items() if size < seeds]
                parts += [f"{task} ({', '.join(few)})"] if few else []
        if len(parts) == len(tasks) and not any("(" in part for part in parts):
            parts = ["all tasks"]
        if parts:
            lines.append(f"{name}: {', '.join(parts)}")
    return lines


def published_table(full: bool = True) -> tuple[list[str], list[list[str]]]:
    """Results of others: header and rows. `full`: also the returns, and not only those over the expert's."""
    tasks = [task for task in benchmark_tasks() if any(task in one.returns for one in PUBLISHED)]
    rows = []
    for one in PUBLISHED:
        experts, cells = SOURCES[one.source].experts, []
        for task in tasks:
            value, spread = one.returns.get(task, (None, None))
            share = "" if value is None else f"{value / experts[task]:.2f}"
            around = "" if spread is None else f" ± {spread:g}"
            cells.append(f"{share} ({value:g}{around} of {experts[task]:g})" if full and value is not None else share)
        rows.append([one.learner, one.source, str(one.demonstrations), *cells, one.iqm])
    return ["learner", "source", "demonstrations", *tasks, "IQM"], rows


def report_command(results: Directory = OUT, out: Annotated[Path_, default("RESULTS/benchmark.png")] = None) -> None:
    """Print the benchmark's table and draw its figure, from the CSV files alone.

    Args:
        results: Directory of the CSV files.
        out: File of the figure (.png).
    """
    from understudy.paper.benchmark_figure import draw

    learners = read_learners(results)
    if not any(learner.scores or learner.trained for learner in learners):
        raise NeedsError(f"'{results}' has no file benchmark-ENV.csv with returns: `understudy benchmark run`")
    path = Path(out or Path(results) / "benchmark.png")
    check_file_path(path)
    display.show(_aligned(header()), table_rows(learners))
    print(f"\n{CAPTION}.")
    trained = training_rows(learners)
    if trained:
        print(f"\n{TRAINING}")
        display.show(_aligned(["learner", "demonstrations", *benchmark_tasks()]), trained)
    headers, rows = published_table(full=False)
    print(f"\n{THEIRS}: return over that of their expert")
    display.show(_aligned(headers), rows)
    for name, source in SOURCES.items():
        print(f"{name}: {source.citation}. {source.protocol}.")
    lines = missing(learners)
    if lines:
        print("\nMissing: " + "; ".join(lines) + ".")
    draw(learners, path)
    print(f"\nFigure: {path}")


def _study_names() -> list[str]:
    return [learner_name(e.name, e.preset or DEFAULT, e.plain_settings()) for e in benchmark_study().algorithms]


def _cell(scores: Array | None) -> str:
    if scores is None:
        return ""
    mean, low, high = interval(Sample.of(scores))
    return _number(mean) if len(scores) < 2 else f"{_number(mean)} ± {_number((high - low) / 2)}"


def _estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    if estimate.interval is None:
        return _number(estimate.value)
    return f"{_number(estimate.value)} [{', '.join(map(_number, estimate.interval))}]"


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def _aligned(names: Sequence[str]) -> list[str]:
    left = ("learner", "source")
    return [name if name in left else f">{name}" for name in names]
