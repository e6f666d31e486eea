"""The two duals beside their primals, on bundled demonstrations and the CPU.

    python benchmarks/duals.py off-q      # advil_dual, bc and advil by demonstrations (docs/results/advil-dual.csv)
    python benchmarks/duals.py on-q       # daequil_dual, dagger and daequil in Forest (docs/results/daequil-dual.csv)

off-q: 5,000 gradient steps each, five seeds, 20 episodes of each policy. Other rows than
those of the chosen tasks and learners stay in the file. on-q: ten rounds of one flight after ten demonstrations. A
trial's score after a round is the distance that this round's policy flies.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

import understudy as us
from understudy.core import display
from understudy.envs.forest import Forest
from understudy.game import Algorithm
from understudy.paper.forest_trials import run_trials
from understudy.paper.on_q_trials import COLUMNS
from understudy.train.tables import result_rows, write_csv

TASKS = {"Pendulum": [1, 2, 5, 10], "CartPole-v1": [1, 2, 5]}
SIZES = {"rounds": 10, "batch_size": 64, "ema_decay": 0.99, "hidden": (64, 64)}
"""5,000 gradient steps of a small network: a CPU trains 20 runs in a minute or two."""
OFF_Q: dict[str, Algorithm] = {
    "bc": us.bc(**SIZES, lr=1e-3),
    "advil_dual": us.advil_dual(**SIZES, lr=1e-3),
    "advil": us.advil(**SIZES, policy_lr=1e-3, ensemble_size=1),
}
ONE_FLIGHT = {"episodes_per_round": 1}


def on_q_learners() -> dict[str, Algorithm]:
    """The same numbers of flights and gradient steps; the paper's settings of Forest otherwise."""
    return {
        "dagger, forest": us.dagger.preset("forest", **ONE_FLIGHT),
        "daequil, state and action": us.daequil.preset("forest", **ONE_FLIGHT),
        "daequil_dual, forest": us.daequil_dual.preset("forest", **ONE_FLIGHT),
        "daequil_dual, default": us.daequil_dual(**ONE_FLIGHT),
    }


@dataclass(frozen=True)
class Options:
    part: tyro.conf.Positional[Literal["off-q", "on-q"]]
    """off-q or on-q."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """off-q: tasks."""
    learners: tuple[str, ...] = tuple(OFF_Q)
    """off-q: learners."""
    seeds: int = 5
    """Seeds of each learner."""
    out: str = "docs/results"
    """Directory of the CSV file."""


def off_q(options: Options) -> None:
    path = Path(options.out) / "advil-dual.csv"
    stored = list(csv.reader(path.open(encoding="utf-8"))) if path.exists() else []
    for task in options.tasks:
        episodes, demonstrations = TASKS[task], us.load(task)
        for name in options.learners:
            result = us.imitate(OFF_Q[name], demonstrations, seeds=options.seeds, episodes=episodes)
            evaluation = result.evaluate(task, episodes=20)
            header, rows = result_rows(result, evaluation)
            means = evaluation.returns.mean(1).reshape(len(episodes), options.seeds)
            print(task, name, *means.mean(1).round(1), "mean", means.mean().round(1), flush=True)
            stored = [row for row in stored[1:] if row[:2] != [task, name]] + rows
            write_csv(path, header, stored)
            stored = [header, *stored]


def on_q(options: Options) -> None:
    table: list[list[Any]] = []
    for name, algorithm in on_q_learners().items():
        with display.progress_bar(name) as report:
            trials, _ = run_trials(name, algorithm, Forest(), options.seeds, progress=report)
        last = trials.last_three
        print(name, trials.returns.mean((1, 2)).round(0), f"last three {last.mean():.1f}, {last.min():.0f} to", end=" ")
        print(f"{last.max():.0f}; {trials.queries[-1].mean():.0f} answers", flush=True)
        table += trials.rows("Forest")
        write_csv(Path(options.out) / "daequil-dual.csv", COLUMNS, table)


if __name__ == "__main__":
    options = tyro.cli(Options, description=__doc__)
    (off_q if options.part == "off-q" else on_q)(options)
