"""AdRIL and GAIL with and without the expert's actions, on bundled demonstrations and the CPU.

    python benchmarks/observations.py [--tasks Pendulum CartPole-v1] [--learners ...] [--seeds 3]

Ten demonstrations, 64 x 64 networks, 512 random features, and 32 gradient steps every 64 environment steps. "obs" and
"obs-next" train on demonstrations without actions. "obs-act" is the preset "observations" with the actions, which for
GAIL is its preset "sac". "default" is AdRIL's, with the actions. Rows of other tasks and learners stay in the file.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

import understudy as us
from understudy.game import Algorithm
from understudy.train.tables import result_rows, write_csv

EPISODES = 10
ROUNDS = {"Pendulum": 16, "CartPole-v1": 12}
"""Rounds of 1,250 environment steps."""
MATCHES = ("obs-next", "obs", "obs-act")
LEARNERS = (*(f"{name} {match}" for match in MATCHES for name in ("gail", "adril")), "adril default")


@dataclass(frozen=True)
class Options:
    tasks: tuple[str, ...] = tuple(ROUNDS)
    """Tasks."""
    learners: tuple[str, ...] = LEARNERS
    """Learners: the algorithm and what it compares."""
    seeds: int = 3
    """Seeds of each learner."""
    out: str = "docs/results/observations.csv"
    """CSV file."""


def algorithm_of(learner: str, task: str) -> Algorithm:
    """A learner by its name, with small networks."""
    name, match = learner.split(" ", 1)
    make = us.adril if name == "adril" else us.gail
    small: dict[str, Any] = {"rounds": ROUNDS[task], "sac": {"hidden": (64, 64), "gradient_steps": 32}}
    small["soft_q"] = small["sac"]
    small |= {"discriminator_hidden": (64, 64)} if name == "gail" else {"features": 512}
    if match == "default":
        return make.preset(match, **small)
    return make.preset("observations", **small, match=match)


def main(options: Options) -> None:
    path = Path(options.out)
    stored = list(csv.reader(path.open(encoding="utf-8"))) if path.exists() else [[]]
    for task in options.tasks:
        whole = us.load(task)
        for learner in options.learners:
            algorithm = algorithm_of(learner, task)
            demonstrations = whole if algorithm.needs_actions else whole.without_actions()
            result = us.imitate(algorithm, demonstrations, task, seeds=options.seeds, episodes=EPISODES)
            evaluation = result.evaluate(task, episodes=20)
            header, rows = result_rows(result, evaluation)
            print(task, learner, evaluation.returns.mean(1).round(1), f"{result.config['seconds']:.0f} s", flush=True)
            kept = [row for row in stored[1:] if row[:2] != [task, learner]]
            stored = [["env", "learner", *header[1:]], *kept, *([task, learner, *row[1:]] for row in rows)]
            write_csv(path, stored[0], stored[1:])


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
