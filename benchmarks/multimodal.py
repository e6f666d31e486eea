"""An expert that dodges left or right: cloning with a mean and with a mixture of Gaussians, and DAgger with both.

    python benchmarks/multimodal.py       # docs/results/multimodal.csv

Forest: distance flown in the paper's forest, or in planted ones, three seeds of each learner. By its mode a policy
flies one path, so one flight shows all of it; a sampled policy has 50 flights. Pendulum, whose expert is unimodal,
shows what a mixture costs: three seeds, 20 episodes.

The number of components was chosen in other forests (keys 11 to 13). The floor of σ and the weight decay were chosen
in forest 11 and on Pendulum, with two seeds, so that the cost on Pendulum is optimistic.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro

import understudy as us
from understudy.collect.rollouts import rollout
from understudy.envs.forest import Forest
from understudy.game import Algorithm
from understudy.paper.on_q_trials import PROVENANCE, provenance_columns
from understudy.train.tables import write_csv

COLUMNS = ["env", "learner", "actions", "episodes", "answers", "seed", "mean_return", *PROVENANCE]
SIZES: dict[str, Any] = {"rounds": 10, "batch_size": 64, "hidden": (64, 64), "lr": 1e-3}
"""5,000 gradient steps of a small network."""
CLONES: dict[str, Algorithm] = {
    "bc, mean": us.bc(**SIZES),
    "bc, one Gaussian": us.bc(loss="likelihood", **SIZES),
    "bc, mixture": us.bc.preset("mixture", **SIZES),
}
ON_Q: dict[str, Algorithm] = {
    "dagger, mean": us.dagger.preset("forest", gradient_steps=1000),
    "dagger, mixture": us.dagger.preset("forest", gradient_steps=1000, components=10),
}

LEARNERS = {**CLONES, **ON_Q}


@dataclass(frozen=True)
class Options:
    tasks: tuple[Literal["forest", "pendulum"], ...] = ("forest", "pendulum")
    """Tasks. Other rows stay in the file."""
    learners: tuple[str, ...] = tuple(LEARNERS)
    """Learners."""
    forests: tuple[int, ...] = (0,)
    """Keys of planted forests; 0 is the paper's forest."""
    flights: int = 25
    """Demonstrated flights."""
    seeds: int = 3
    """Seeds of each learner."""
    out: str = "docs/results/multimodal.csv"
    """The file."""


def fly(forest: Forest, name: str, learner: Algorithm, flights: int, seeds: int, key: int) -> list[list[Any]]:
    """Rows of one learner in one forest: distances of its mode and of its samples."""
    demonstrations = us.record(forest, None, flights, seed=flights)
    expert = us.Expert(forest.expert()) if "expert" in learner.card.needs else None
    result = us.imitate(learner, demonstrations, forest, expert, seeds=seeds, holdout=0.0)
    rows: list[list[Any]] = []
    for seed, actor in enumerate(result.policies):
        answers = int(np.nanmax(result.metrics["queries"][seed])) if "queries" in result.metrics else 0
        for actions, count in (("mode", 1), ("sample", 50)):
            returns = rollout(forest, actor.policy, count, 1, deterministic=actions == "mode").returns
            rows.append([f"Forest {key}", name, actions, flights, answers, seed, round(float(returns.mean()), 2)])
    return rows


def forests(options: Options) -> Iterator[list[list[Any]]]:
    for key in options.forests:
        forest = Forest.plant(jax.random.key(key)) if key else Forest()
        returns = rollout(forest, forest.expert(), 200, 1, deterministic=False).returns
        yield [[f"Forest {key}", "expert", "sample", 0, 0, 0, round(float(returns.mean()), 2)]]
        for name in options.learners:
            yield fly(forest, name, LEARNERS[name], options.flights, options.seeds, key)


def pendulum(options: Options) -> Iterator[list[list[Any]]]:
    sizes = [10, 25]
    for name in (name for name in options.learners if name in CLONES):
        result = us.imitate(CLONES[name], us.load("Pendulum"), seeds=options.seeds, episodes=sizes)
        means = result.evaluate("Pendulum", episodes=20).returns.mean(1).reshape(len(sizes), options.seeds)
        yield [
            ["Pendulum", name, "mode", sizes[size], 0, seed, round(float(value), 2)]
            for (size, seed), value in np.ndenumerate(means)
        ]


def main(options: Options) -> None:
    path, made = Path(options.out), provenance_columns()
    stored = list(csv.reader(path.open(encoding="utf-8")))[1:] if path.exists() else []
    for task in options.tasks:
        for rows in forests(options) if task == "forest" else pendulum(options):
            print(*rows[0][:2], *(f"{row[2]} {row[-1]}" for row in rows), flush=True)
            stored = [row for row in stored if row[:2] != rows[0][:2]] + [[*map(str, row), *made] for row in rows]
            write_csv(path, COLUMNS, stored)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
