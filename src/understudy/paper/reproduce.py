"""`understudy reproduce FIGURE`: the paper's figures as commands, over `experiments`."""

import itertools
import os
from pathlib import Path
from typing import Literal

from understudy.core import display
from understudy.core.errors import NeedsError, SettingError
from understudy.core.options import Path_
from understudy.core.statistics import Sample
from understudy.core.storage import check_place
from understudy.paper import figure_studies, off_q, published
from understudy.studies.cells import FINAL
from understudy.studies.plan import BUNDLED


def reproduce_off_q(
    task: Literal["halfcheetah", "ant"],
    demos: Path_ = None,
    learners: tuple[str, ...] | None = None,
    trajectories: tuple[int, ...] | None = None,
    seeds: int | None = None,
    episodes: int | None = None,
    workers: int = 0,
    work: Path_ = None,
    out: Path_ = None,
) -> None:
    """Return against the number of demonstrations for BC, ValueDICE and AdVIL, with the paper's points beside ours.

    Args:
        task: The paper's task.
        demos: An npz file of demonstrations. Default: the bundled ones.
        learners: Others than the figure's: each an algorithm, with a preset and settings that differ, as in advil:paper
            or bc,lr=0.001. None: draw what the file has. Lines of learners that are not named stay.
        trajectories: Numbers of demonstrated trajectories. Default: 5, 10, 15, 20 and 25.
        seeds: Seeds for each. Default: 5.
        episodes: Episodes that each policy plays. Default: 10.
        workers: Processes for playing. Default: one for each core.
        work: Where cells are kept as they finish; the same command goes on from there. Default: runs/off-q-TASK.
        out: The CSV file of returns; the figure goes beside it. Default: docs/results/off-q-TASK.csv.
    """
    env = off_q.TASKS[task]
    path = Path(out or f"docs/results/off-q-{task}.csv")
    lines = figure_studies.lines(path)
    check_place(path)
    figure = figure_studies.paper("off-q")
    entries = figure_studies.entries(learners or (), trajectories=())
    if learners is None or entries:
        study = figure_studies.adapted(
            figure,
            *(env, demos, seeds, workers or os.cpu_count() or 1, entries),
            trajectories=trajectories,
            episodes=episodes,
        )
        lines = figure_studies.measured(study, work or f"runs/off-q-{task}", path, display.progress_bar)
    if not lines:
        raise NeedsError(f"'{path}' has no returns to draw: name learners")
    found = off_q.curves([line for line in lines if line["x_kind"] == FINAL], "trajectories")
    order = {(entry.name, entry.preset): index for index, entry in enumerate(figure.algorithms)}
    found.sort(key=lambda curve: order.get((curve.algorithm, curve.preset), len(order)))
    pictures = off_q.draw(env, found, path.with_suffix(".png"))
    _tell_off_q(env, found)
    print(f"\nThe returns: {path}. The figure: {', '.join(map(str, pictures))}")


def _tell_off_q(env: str, found: list[off_q.Curve]) -> None:
    """The table by trajectories, ours and published, and each curve's verdict."""
    counts = sorted({count for curve in found for count in curve.returns})
    rows: list[list[object]] = []
    for curve in found:
        points = off_q.theirs(curve, env)
        source = "bundled" if curve.bundled else "ours"
        rows.append([curve.name, source, *(with_error(curve.samples.get(count)) for count in counts)])
        if points:
            rows.append(["", "published", *(with_error(points.get(count)) for count in counts)])
    experts = sorted({round(curve.expert) for curve in found if curve.expert is not None})
    known = f" (the expert: {' or '.join(map(str, experts))})" if experts else ""
    title = f"{env}{known}: return, mean ± standard error over seeds, by demonstrated trajectories"
    display.show(("learner", "", *(f">{count}" for count in counts)), rows, title)
    print()
    for curve in found:
        verdict = off_q.compare(curve, env)
        if verdict is not None:
            below = f"at {', '.join(map(str, verdict.below))} trajectories" if verdict.below else "nowhere"
            print(
                f"{curve.name}: {verdict.ours:.0f} over the published sizes, published {verdict.theirs:.0f}; "
                f"significantly below the published {below} (95%, Holm)."
            )


def reproduce_bc_table(
    task: Literal["both", "halfcheetah", "ant"] = "both",
    demos: Path_ = None,
    seeds: int | None = None,
    episodes: int | None = None,
    workers: int = 0,
    work: Path_ = None,
    out: Path_ = None,
) -> None:
    """The expert and behavioural cloning on 25 trajectories, beside the paper's table.

    Args:
        task: The paper's task, or both.
        demos: An npz file of demonstrations of one task. Default: the bundled ones.
        seeds: Seeds. Default: 5.
        episodes: Episodes that each policy plays. Default: 10.
        workers: Processes for playing. Default: one for each core.
        work: Where cells are kept as they finish; the same command goes on from there. Default: runs/bc-table.
        out: The CSV file of returns. Default: docs/results/bc-table.csv.
    """
    if demos is not None and task == "both":
        raise SettingError(f"demos is '{demos}', which is of one task: pass --task halfcheetah or --task ant")
    path = Path(out or "docs/results/bc-table.csv")
    check_place(path)
    study, lines = figure_studies.paper("bc-table"), []
    for name, env in off_q.TASKS.items():
        if task in ("both", name):
            one = figure_studies.adapted(study, env, demos, seeds, workers or os.cpu_count() or 1, episodes=episodes)
            lines = figure_studies.measured(one, work or "runs/bc-table", path, display.progress_bar)
    rows: list[list[object]] = []
    for (env, source), found in itertools.groupby(lines, lambda line: (line["env"], line["demonstrations"])):
        cells = list(found)
        clone = Sample.of([float(line["mean_return"]) for line in cells])
        ours, own = source.partition("@")[0], float(cells[0]["expert_return"])
        rows.append([env, ours, f"{own:.0f}", with_error(clone), f"{own - clone.mean:.0f}"])
        if ours != BUNDLED and round(own) == published.EXPERT[env]:
            table = published.EXPERT[env], published.BC_TABLE[env]
            rows.append(["", "published", f"{table[0]:.0f}", f"{table[1]:.0f}", f"{table[0] - table[1]:.0f}"])
    title = "Behavioural cloning on 25 trajectories: return, mean ± standard error over seeds"
    display.show(("task", "demonstrations", ">expert", ">BC", ">gap"), rows, title)
    print(f"\nThe returns: {path}")


def with_error(sample: Sample | None, digits: int = 0) -> str:
    """Mean ± standard error, with so many decimals; nothing where there is no sample."""
    if sample is None:
        return ""
    mean, error = (f"{value:.{digits}f}" for value in (sample.mean, sample.standard_error))
    return mean if sample.size < 2 else f"{mean} ± {error}"
