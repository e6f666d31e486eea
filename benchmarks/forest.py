"""DAgger and DAeQuIL at the paper's settings in the forest, 10 trials each: docs/results/forest.csv.

python benchmarks/forest.py
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import understudy as us
from understudy import display
from understudy.envs.forest import Forest
from understudy.experiments.forest import LEARNERS, rows, trials
from understudy.results import provenance, write_csv

COLUMNS = ["env", "algorithm", "preset", "seed", "x_kind", "x", "mean_return", "std_return", "queries"]


@dataclass(frozen=True)
class Options:
    seeds: int = 10
    """Trials."""
    out: str = "docs/results/forest.csv"
    """Where the scores go."""


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    made = provenance()
    about = [made["command"], " ".join(f"{k}={v}" for k, v in made["versions"].items()), made["date"]]
    table: list[list[Any]] = []
    forest = us.make("Forest")
    assert isinstance(forest, Forest)
    for name, algorithm in LEARNERS.items():
        began = time.perf_counter()
        with display.progress_bar(name) as report:
            scores, result = trials(algorithm, forest, options.seeds, progress=report)
        last, means = scores[-3:].mean(0), np.round(scores.mean(1)).astype(int).tolist()
        print(
            f"{name:<20} {time.perf_counter() - began:4.0f} s  by round {means}  "
            f"last three rounds {last.mean():.1f}, trials {last.min():.0f} to {last.max():.0f}",
            flush=True,
        )
        table += [[*row, *about] for row in rows(name, scores, result.history["queries"])]
    write_csv(Path(options.out), [*COLUMNS, "command", "versions", "date"], table)


if __name__ == "__main__":
    main()
