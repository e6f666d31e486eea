"""FILTER beside HyPE and GAIL: environment steps until 90% of the expert's return, on the CPU.

    python benchmarks/filter.py                            # docs/results/filter.csv
    python benchmarks/filter.py --tasks Pendulum --seeds 1

Each learner has its preset "quick" and 10 demonstrations. A policy is evaluated after each round of 1,280 steps, in 10
episodes that begin as the environment begins them. The score is 0 for uniformly random actions and 1 for the expert.
The expert of MountainCarContinuous pushes with full force in the direction of its speed. Finished runs are kept in
`work`; rows of other tasks stay in the file. What TREE costs: `understudy reproduce filter-tree`.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro

import understudy as us
from understudy.collect.rollouts import HostPolicy, rollout
from understudy.core.types import Continuous
from understudy.paper.on_q_trials import PROVENANCE, provenance_columns
from understudy.studies import Entry, Protocol, Store, Study, Task
from understudy.studies.groups import study_records
from understudy.studies.plan import BUNDLED
from understudy.studies.report import table
from understudy.studies.running import run
from understudy.train.tables import provenance, write_csv

CAR = "MountainCarContinuous-v0"
STEPS = {"Pendulum": 10_240, CAR: 20_480}
LEARNERS = {
    "filter": Entry("filter", "quick"),
    "filter, no-regret": Entry("filter", "quick", {"f_rounds": "all"}),
    "filter, start_share=0": Entry("filter", "quick", {"start_share": 0.0}),
    "hype": Entry("hype", "quick"),
    "gail, sac": Entry("gail", "quick"),
}
DEMONSTRATIONS, REACHED, EPISODES = 10, 0.9, 100
"""Demonstrated episodes; the score that counts as reached; episodes of random actions and of the expert."""


@dataclass(frozen=True)
class Options:
    tasks: tuple[str, ...] = tuple(STEPS)
    """Tasks."""
    learners: tuple[str, ...] = tuple(LEARNERS)
    """Learners."""
    seeds: int = 5
    """Seeds of each learner."""
    work: str = "runs/filter"
    """Directory of the finished runs."""
    out: str = "docs/results/filter.csv"
    """CSV file."""


def push(obs: np.ndarray) -> np.ndarray:
    """The expert of MountainCarContinuous."""
    return np.where(obs[:, 1:] >= 0, 1.0, -1.0).astype(np.float32)


def random_actions(task: str) -> HostPolicy:
    """Uniformly random actions."""
    space, random = us.make(task).spec.action, np.random.default_rng(0)
    assert isinstance(space, Continuous)
    return lambda obs: random.uniform(space.low, space.high, (len(obs), *space.shape)).astype(np.float32)


def demonstrations(task: str, folder: Path) -> str:
    """What `us.load` takes: the bundled demonstrations, or the file of recorded ones."""
    if task != CAR:
        return BUNDLED
    path = folder / "mountain-car-demos.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        us.record(CAR, push, episodes=DEMONSTRATIONS, seed=0, workers=0).save(path)
    return str(path)


def reference_row(task: str, name: str, returns: np.ndarray) -> dict[str, str]:
    """The returns of the expert, or of random actions, as a row of the results."""
    values = {
        "env": task,
        "algorithm": name,
        "x_kind": name,
        "episodes": len(returns),
        "device": provenance()["device"],
        "mean_return": round(float(returns.mean()), 3),
        "std_return": round(float(returns.std()), 3),
        **dict(zip(PROVENANCE, provenance_columns(), strict=True)),
    }
    return {column: str(values.get(column, "")) for column in table.COLUMNS}


def references(task: str, demos: str) -> list[dict[str, str]]:
    shown = us.load(task if demos == BUNDLED else demos).returns
    assert shown is not None
    return [
        reference_row(task, "expert", shown),
        reference_row(task, "random", rollout(task, random_actions(task), EPISODES, seed=1).returns),
    ]


def report(rows: Sequence[dict[str, str]], task: str) -> None:
    """Print each seed's first evaluation that reaches 90% of the expert, and the scores of the returned policies."""
    level = {row["algorithm"]: float(row["mean_return"]) for row in rows if row["x_kind"] in ("expert", "random")}

    def score(row: dict[str, str]) -> float:
        return (float(row["mean_return"]) - level["random"]) / (level["expert"] - level["random"])

    print(task, {name: round(value, 1) for name, value in level.items()})
    learners = {(row["algorithm"], row["settings"]): None for row in rows if row["x_kind"] == "env_steps"}
    for algorithm, settings in learners:
        own = [row for row in rows if (row["algorithm"], row["settings"]) == (algorithm, settings)]
        first, last, returned = [], [], []
        for seed in sorted({row["seed"] for row in own}):
            curve = [row for row in own if row["seed"] == seed and row["x_kind"] == "env_steps"]
            curve.sort(key=lambda row: int(row["x"]))
            first.append(next((int(row["x"]) for row in curve if score(row) >= REACHED), None))
            last.append(np.mean([score(row) for row in curve[-3:]]))
            returned += [float(row["mean_return"]) for row in own if row["seed"] == seed and row["x_kind"] == "final"]
        reached = sorted(float("inf") if x is None else x for x in first)
        print(
            f"  {algorithm} {settings}: first {first}, median {reached[len(reached) // 2]}; "
            f"score of the last three {np.round(np.mean(last), 2)}; returned {np.round(np.mean(returned), 1)} "
            f"({np.round(np.min(returned), 1)} to {np.round(np.max(returned), 1)})",
            flush=True,
        )


def main(options: Options) -> None:
    path = Path(options.out)
    stored = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    for task in options.tasks:
        folder = Path(options.work) / task
        demos = demonstrations(task, folder.parent)
        entries = tuple(replace(LEARNERS[name], label=name) for name in options.learners)
        protocol = Protocol(tuple(range(options.seeds)), 10, STEPS[task], 1280)
        tasks = (Task(task, demos, (DEMONSTRATIONS,)),)
        study = Study(f"filter-{task}", "FILTER, HyPE and GAIL", tasks, entries, protocol)
        summary = run(study, folder, jobs=1)
        if summary.failed:
            raise SystemExit(f"some learners failed: {summary.failed}")
        rows = references(task, demos) + table.csv_rows(study_records(study.groups(), Store(folder)))
        stored = [row for row in stored if row["env"] != task] + rows
        write_csv(path, table.COLUMNS, (list(row.values()) for row in stored))
        report(rows, task)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
