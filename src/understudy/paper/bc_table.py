"""The paper's table of the expert and behavioral cloning on 25 trajectories (`studies/bc-table.toml`)."""

import itertools
import os
from pathlib import Path
from typing import Annotated, Literal

from understudy.core import display
from understudy.core.errors import SettingError
from understudy.core.options import Int_, Path_, default
from understudy.core.statistics import Sample
from understudy.paper import figure_studies, published
from understudy.paper.figure_studies import TASKS
from understudy.paper.formatting import with_error
from understudy.studies.plan import BUNDLED


def reproduce_bc_table(
    task: Literal["both", "halfcheetah", "ant"] = "both",
    demos: Annotated[Path_, default("the bundled ones")] = None,
    seeds: Annotated[Int_, default("5")] = None,
    eval_episodes: Annotated[Int_, default("10")] = None,
    workers: Annotated[int, default("one per core")] = 0,
    work: Annotated[Path_, default("runs/bc-table")] = None,
    out: Annotated[Path_, default("docs/results/bc-table.csv")] = None,
) -> None:
    """Return of the expert and of behavioral cloning on 25 trajectories, next to the paper's table.

    Args:
        task: Task of the paper, or both.
        demos: File of demonstrations (.npz) of one task.
        seeds: Seeds.
        eval_episodes: Episodes per evaluated policy.
        workers: Processes for the evaluation.
        work: Directory of the finished cells; rerun the command to resume.
        out: CSV file of the returns.
    """
    if demos is not None and task == "both":
        raise SettingError(f"demos is '{demos}', a file of one task: pass --task halfcheetah or --task ant")
    path = Path(out or "docs/results/bc-table.csv")
    figure_studies.check_out(path)
    study, rows = figure_studies.load_study("bc-table"), []
    cpus = workers or os.cpu_count() or 1
    for name, env in TASKS.items():
        if task in ("both", name):
            one = figure_studies.adapt_study(study, env, demos, seeds, cpus, eval_episodes=eval_episodes)
            rows = figure_studies.run_study(one, work or "runs/bc-table", path, display.progress_bar)
    table: list[list[object]] = []
    for (env, demonstrations), group in itertools.groupby(rows, lambda row: (row["env"], row["demonstrations"])):
        own = list(group)
        cloning = Sample.of([float(row["mean_return"]) for row in own])
        source, expert = demonstrations.partition("@")[0], float(own[0]["expert_return"])
        table.append([env, source, f"{expert:.0f}", with_error(cloning), f"{expert - cloning.mean:.0f}"])
        if source != BUNDLED and round(expert) == published.EXPERT[env]:
            theirs = published.EXPERT[env], published.BC_TABLE[env]
            table.append(["", "published", f"{theirs[0]:.0f}", f"{theirs[1]:.0f}", f"{theirs[0] - theirs[1]:.0f}"])
    title = "Behavioral cloning on 25 trajectories: return, mean ± standard error over seeds"
    display.show(("task", "demonstrations", ">expert", ">BC", ">gap"), table, title)
    print(f"\nReturns: {path}")
