"""`understudy reproduce FIGURE`: the paper's figures as commands, over `experiments`."""

import itertools
import os
from pathlib import Path
from typing import Literal

from understudy import display
from understudy.commands import Path_
from understudy.data import load
from understudy.errors import SettingError
from understudy.experiments import figure_studies, off_q, published
from understudy.results import write_csv
from understudy.statistics import Sample
from understudy.storage import check_place
from understudy.studies.plan import BUNDLED


def reproduce_off_q(
    task: Literal["halfcheetah", "ant"],
    demos: Path_ = None,
    learners: tuple[str, ...] = off_q.LEARNERS,
    trajectories: tuple[int, ...] = published.TRAJECTORIES,
    seeds: int = published.SEEDS,
    episodes: int = 10,
    workers: int = 0,
    work: Path_ = None,
    out: Path_ = None,
) -> None:
    """Return against the number of demonstrations for BC, ValueDICE and AdVIL, with the paper's points beside ours.

    Args:
        task: The paper's task.
        demos: An npz file of demonstrations. Default: the bundled ones.
        learners: Algorithms, each with a preset if it is not the default, such as advil:paper.
        trajectories: Numbers of demonstrated trajectories.
        seeds: Seeds for each.
        episodes: Episodes that each policy plays.
        workers: Processes for playing. Default: one for each core.
        work: Where runs are kept as they finish; the same command goes on from there. Default: runs/off-q-TASK.
        out: The CSV file of returns; the figure goes beside it. Default: docs/results/off-q-TASK.csv.
    """
    env = off_q.TASKS[task]
    path = Path(out or f"docs/results/off-q-{task}.csv")
    if path.suffix != ".csv":
        raise SettingError(f"out is '{path}': a .csv file is needed (the figure goes beside it, as .png)")
    check_place(path)
    for name in learners:
        off_q.learner(name)
    demonstrations = load(demos or env)
    header, rows = off_q.run(
        demonstrations,
        env,
        learners,
        trajectories,
        seeds,
        episodes,
        work or f"runs/off-q-{task}",
        workers or os.cpu_count() or 1,
        display.progress_bar,
    )
    write_csv(path, header, rows)
    found = off_q.curves(header, rows)
    expert = demonstrations.expert_return.mean if demonstrations.expert_return is not None else None
    off_q.draw(env, found, expert, path.with_suffix(".png"))
    counts = sorted(trajectories)
    lines: list[list[object]] = []
    for curve in found:
        theirs = published.off_q(env, curve.algorithm)
        lines.append([curve.name, "ours", *(with_error(curve.samples.get(count)) for count in counts)])
        lines.append(["", "published", *(with_error(theirs.get(count)) for count in counts)])
    known = "" if expert is None else f" (the expert: {expert:.0f})"
    title = f"{env}{known}: return, mean ± standard error over seeds, by demonstrated trajectories"
    display.show(("learner", "", *(f">{count}" for count in counts)), lines, title)
    print()
    for curve in found:
        verdict = off_q.compare(curve, env)
        if verdict is not None:
            below = f"at {', '.join(map(str, verdict.below))} trajectories" if verdict.below else "nowhere"
            print(
                f"{curve.name}: {verdict.ours:.0f} over the published sizes, published {verdict.theirs:.0f}; "
                f"significantly below the published {below} (95%, Holm)."
            )
    print(f"\nThe returns: {path}. The figure: {path.with_suffix('.png')}")


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


def with_error(sample: Sample | None) -> str:
    """Mean ± standard error; nothing where there is no sample."""
    if sample is None:
        return ""
    return f"{sample.mean:.0f}" if sample.size < 2 else f"{sample.mean:.0f} ± {sample.standard_error:.0f}"
