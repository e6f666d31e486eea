"""AggreVaTe in the forest, ten trials, ten rounds of ten flights: docs/results/aggrevate-forest.csv.

    python benchmarks/aggrevate.py

A trial's score after a round is how far its policy of that round flies. The default settings, and what becomes of them
without the cloning loss, and with actions that are tried only at random.
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
from understudy.paper.forest import trials
from understudy.paper.rounds import COLUMNS, MADE
from understudy.train.results import write_csv

LEARNERS: dict[str, Algorithm] = {
    "aggrevate, default": us.aggrevate(),
    "aggrevate, w = 0": us.aggrevate(cloning_weight=0.0),
    "aggrevate, exploring = 1": us.aggrevate(exploring=1.0),
}


@dataclass(frozen=True)
class Options:
    seeds: int = 10
    """Trials."""
    out: str = "docs/results/aggrevate-forest.csv"
    """Where the scores go."""


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    table: list[list[Any]] = []
    for name, algorithm in LEARNERS.items():
        began = time.perf_counter()
        with display.progress_bar(name) as report:
            found, _ = trials(name, algorithm, Forest(), options.seeds, progress=report)
        means = np.round(found.returns.mean((1, 2))).astype(int).tolist()
        print(
            f"{name:<26} {time.perf_counter() - began:4.0f} s  by round {means}  last three rounds "
            f"{found.last.mean():.1f}, trials {found.last.min():.0f} to {found.last.max():.0f}  "
            f"{found.queries[-1].mean():.0f} queries",
            flush=True,
        )
        table += found.rows("Forest")
        write_csv(Path(options.out), [*COLUMNS, *MADE], table)


if __name__ == "__main__":
    main()
