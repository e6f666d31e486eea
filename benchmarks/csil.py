"""CSIL beside cloning: returns by environment steps and demonstrations, on bundled demonstrations and the CPU.

    python benchmarks/csil.py             # docs/results/csil.csv

Small networks, 10 episodes for each policy. `bc` has the same demonstrations and a network of the same size.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import understudy as us
from understudy.paper.on_q_trials import PROVENANCE, provenance_columns
from understudy.train.tables import write_csv

COLUMNS = ["env", "learner", "trajectories", "seed", "steps", "mean_return", *PROVENANCE]
PLAYER = {"hidden": (64, 64), "gradient_steps": 32}


@dataclass(frozen=True)
class Options:
    tasks: tuple[str, ...] = ("Pendulum",)
    """Tasks. The rows of others stay in the file."""
    episodes: tuple[int, ...] = (2, 5)
    """Numbers of demonstrated episodes."""
    rounds: int = 5
    """Rounds of 1,280 environment steps."""
    seeds: int = 2
    """Seeds."""
    out: str = "docs/results/csil.csv"
    """The file."""


def main(options: Options) -> None:
    path, made = Path(options.out), provenance_columns()
    stored = list(csv.reader(path.open(encoding="utf-8")))[1:] if path.exists() else []
    learners = {
        "bc": us.bc(rounds=10, batch_size=64, hidden=(64, 64), lr=1e-3),
        "csil": us.csil.preset("quick", rounds=options.rounds, points=256, sac=PLAYER, soft_q=PLAYER),
    }
    for task in options.tasks:
        for name, learner in learners.items():
            given: dict[str, Any] = {"env": task} if name == "csil" else {}
            episodes = list(options.episodes)
            result = us.imitate(learner, us.load(task), **given, episodes=episodes, seeds=options.seeds)
            means = result.evaluate(task, episodes=10).returns.mean(1).reshape(len(episodes), options.seeds)
            print(task, name, means.round(1).tolist(), flush=True)
            steps = int(result.metrics["env_steps"].max()) if given else 0
            rows: list[list[Any]] = [
                [task, name, episodes[size], seed, steps, round(float(value), 2), *made]
                for (size, seed), value in np.ndenumerate(means)
            ]
            stored = [row for row in stored if row[:2] != [task, name]] + rows
            write_csv(path, COLUMNS, stored)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
