"""`understudy reproduce failures`: where AdRIL's episodes fail, what its critic believes there, what the payoff sees."""

import os
from dataclasses import asdict
from pathlib import Path

from understudy import display
from understudy.commands import Path_
from understudy.errors import NeedsError
from understudy.experiments import failures, figure_studies
from understudy.experiments.failure_summary import LEARNED, summed_up
from understudy.experiments.reward import TASKS
from understudy.experiments.rounds import MADE, made
from understudy.reproduce_reward import Task
from understudy.results import provenance
from understudy.storage import check_place
from understudy.studies.groups import Group, check_tasks, groups, load_demonstrations
from understudy.studies.report import table
from understudy.studies.training import called, remove

NONE = "resets=False,random_rounds=False,restart_schedule=False,timeouts_terminal=False"
LEARNERS = ("adril@20", "adril:paper@20", f"adril:paper@20,{NONE}")
"""The default, the released runs' recipe, and that recipe without the four things that its rounds began with."""
COLUMNS = [*figure_studies.IDENTITY, "expert_return", *failures.FIELDS, "device", *MADE]


def reproduce_failures(
    task: Task,
    demos: Path_ = None,
    learners: tuple[str, ...] = LEARNERS,
    steps: int = 300_000,
    every: int = 25_000,
    seeds: int = 5,
    episodes: int = 10,
    lag: int = 0,
    workers: int = 0,
    work: Path_ = None,
    out: Path_ = None,
) -> None:
    """Where episodes fail once a policy has learned, what the critic believes there, and what the payoff sees.

    Args:
        task: The paper's task.
        demos: An npz file of demonstrations. Default: the bundled ones.
        learners: Each an algorithm, with a preset, trajectories and settings that differ. None: tell what the file has.
        steps: Environment steps of each run.
        every: Steps from one look to the next.
        seeds: Seeds of each learner.
        episodes: Episodes that a policy plays in a look.
        lag: Updates that the policies that play are behind; 1 steps and learns at once, which is faster.
        workers: Processes for stepping and playing. Default: one for each core.
        work: Where training keeps its place; the same command goes on from there. Default: runs/failures.
        out: The CSV file, a line for each episode. Default: docs/results/adril-failures.csv.
    """
    path = Path(out or "docs/results/adril-failures.csv")
    check_place(path)
    before = figure_studies.lines(path, COLUMNS)
    if learners:
        study = figure_studies.adapted(
            figure_studies.paper(f"reward-{task}"),
            *(TASKS[task], demos, seeds, workers or os.cpu_count() or 1, figure_studies.entries(learners)),
            steps=steps,
            every=every,
            episodes=episodes,
            lag=lag,
        )
        shown, envs = load_demonstrations(study), check_tasks(study)
        for group in groups(study, shown):
            place = Path(work or "runs/failures") / group.key
            env = group.task.env
            with display.progress_bar(called(group)) as report:
                found = failures.watched(group, shown[env], envs[env], place, study.hardware.cpus, report)
            before = figure_studies.merged(before, _lines(group, found), path, COLUMNS)
            remove(place)
    if not before:
        raise NeedsError(f"'{path}' has no episodes: name learners")
    _tell(before)
    print(f"\nThe episodes: {path}")


def _lines(group: Group, found: list[failures.Episode]) -> list[dict[str, str]]:
    """Its episodes as lines of the file."""
    asked = group.cells[0].asked
    about = {
        **table.learner(asked, group.shown),
        "expert_return": group.expert_return,
        "device": provenance()["device"],
        **dict(zip(MADE, made(), strict=True)),
    }
    return [
        {name: "" if value is None else str(value) for name, value in {**about, **asdict(episode)}.items()}
        for episode in found
    ]


def _tell(lines: list[dict[str, str]]) -> None:
    """A row for each learner."""
    learners: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for line in lines:
        learners.setdefault(tuple(line[name] for name in figure_studies.IDENTITY), []).append(line)
    rows: list[list[object]] = []
    for (env, algorithm, preset, settings, count, _), own in learners.items():
        told = summed_up([failures.episode(line) for line in own], float(own[0]["expert_return"]))
        early = f"{told.early}" if told.failed else ""
        rows.append(
            [
                *(env, f"{algorithm} ({preset})", settings, count, f"{told.learned} of {told.seeds}"),
                *(told.episodes, told.failed, early, _number(told.lost_at, 0)),
                *(_number(told.belief_failed), _number(told.belief_good)),
                *(_number(told.payoff_failed), _number(told.payoff_good), _number(told.told_apart)),
            ]
        )
    title = f"Episodes of policies since they first returned {LEARNED:.0%} of what the expert does"
    header = (
        *("task", "learner", "settings", ">trajectories", ">seeds there", ">episodes", ">failed"),
        *(">in the first 50 steps", ">lost at (median)", ">belief there", ">belief elsewhere"),
        *(">payoff, failed", ">payoff, others", ">told apart"),
    )
    display.show(header, rows, title)


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
