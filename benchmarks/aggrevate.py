"""AggreVaTe in the forest: ten trials, ten rounds of ten episodes each (docs/results/aggrevate-forest.csv).

    python benchmarks/aggrevate.py

A trial's score after a round is the distance that this round's policy flies. The learners are the default, the default
without the cloning loss, and the default with random actions only.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import understudy as us
from understudy.core import display
from understudy.envs.forest import Forest
from understudy.game import Algorithm
from understudy.paper.forest_trials import run_trials
from understudy.paper.on_q_trials import COLUMNS
from understudy.train.tables import write_csv

LEARNERS: dict[str, Algorithm] = {
    "aggrevate, default": us.aggrevate(),
    "aggrevate, w = 0": us.aggrevate(cloning_weight=0.0),
    "aggrevate, exploring = 1": us.aggrevate(exploring=1.0),
}


@dataclass(frozen=True)
class Options:
    seeds: int = 10
    """Trials per learner."""
    out: str = "docs/results/aggrevate-forest.csv"
    """CSV file of the scores."""


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    table: list[list[Any]] = []
    for name, algorithm in LEARNERS.items():
        start = time.perf_counter()
        with display.progress_bar(name) as report:
            trials, _ = run_trials(name, algorithm, Forest(), options.seeds, progress=report)
        means = np.round(trials.returns.mean((1, 2))).astype(int).tolist()
        last = trials.last_three
        print(
            f"{name:<26} {time.perf_counter() - start:4.0f} s  by round {means}  last three rounds "
            f"{last.mean():.1f}, trials {last.min():.0f} to {last.max():.0f}  {trials.queries[-1].mean():.0f} queries",
            flush=True,
        )
        table += trials.rows("Forest")
        write_csv(Path(options.out), COLUMNS, table)


if __name__ == "__main__":
    main()
