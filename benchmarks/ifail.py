"""iFAIL, which sees no action of the expert, beside DAgger; and its exact game on the paper's example MDPs.

    python benchmarks/ifail.py returns       # CartPole and Pendulum (docs/results/ifail.csv)
    python benchmarks/ifail.py exact         # LOOP, CLIFF, UNICYCLE, TREE (docs/results/ifail-exact.csv)

returns: the default settings, with f of pairs of observations and, as in FAIL, of next observations alone; and with a
kernel five times as wide. 20 episodes of each policy. DAgger has as many rounds and gradient steps, and about as many
answers. The settings were chosen on MountainCar-v0, MountainCarContinuous-v0 and Acrobot-v1 with scripted experts. Rows
of other tasks and learners stay in the file. exact: the metric that Hedge leaves after some iterations, and the gap,
its two parts and its bound.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

import understudy as us
from understudy.game import Algorithm
from understudy.tabular import examples
from understudy.tabular.ifail import learn_forward, mismatch_cost
from understudy.train.tables import provenance, result_rows, write_csv

TASKS = {"Pendulum": "scripted", "CartPole-v1": "bundled"}
LEARNERS: dict[str, Algorithm] = {
    "dagger": us.dagger(rounds=11, gradient_steps=500, lr=1e-3, episodes_per_round=1),
    "ifail, pairs": us.ifail(),
    "ifail, next": us.ifail(sees="next"),
    "ifail, wide kernel": us.ifail(bandwidth=1.0),
}
EXACT = ("mdp", "moments", "iterations", "largest_metric", "gap", "matched", "unseen", "bound")


@dataclass(frozen=True)
class Options:
    part: tyro.conf.Positional[Literal["returns", "exact"]]
    """returns or exact."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """returns: tasks."""
    learners: tuple[str, ...] = tuple(LEARNERS)
    """returns: learners."""
    seeds: int = 3
    """Seeds of each learner."""
    out: str = "docs/results"
    """Directory of the CSV file."""


def returns(options: Options) -> None:
    path = Path(options.out) / "ifail.csv"
    stored = list(csv.reader(path.open(encoding="utf-8")))[1:] if path.exists() else []
    for task in options.tasks:
        for name in options.learners:
            learner = LEARNERS[name]
            result = us.imitate(learner, us.load(task), task, expert=TASKS[task], seeds=options.seeds, episodes=5)
            evaluation = result.evaluate(task, episodes=20)
            header, rows = result_rows(result, evaluation)
            answers = np.nanmax(result.metrics["queries"], axis=1).astype(int)
            rows = [[name, int(count), *row] for count, row in zip(answers, rows, strict=True)]
            print(task, name, evaluation.returns.mean(1).round(1), answers, f"{result.config['seconds']} s", flush=True)
            stored = [row for row in stored if [row[0], row[2]] != [name, task]] + rows
            write_csv(path, ["learner", "answers", *header], stored)


def exact(options: Options) -> None:
    rows: list[list[Any]] = []
    made = provenance()
    made["versions"] = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    for example, seen in games():
        for moments in ("box", "ball"):
            for iterations in (100, 1000):
                found = learn_forward(example.mdp, example.expert, moments, iterations)
                cost = mismatch_cost(example.mdp, example.reward, example.expert, found.policy, moments, seen)
                numbers = [float(found.metric.max()), *cost]
                rows.append([example.name, moments, iterations, *(f"{x:.3e}" for x in numbers), *made.values()])
                print(*rows[-1][:8], flush=True)
    write_csv(Path(options.out) / "ifail-exact.csv", [*EXACT, *made], rows)


def games() -> list[tuple[examples.Example, Any]]:
    """The paper's examples of ten steps (TREE: five), and their rewards for arriving in a state."""
    cliff, tree = examples.cliff(10), examples.tree(5, 3)
    fallen, path, node = np.zeros(cliff.mdp.states), np.zeros(tree.mdp.states), 3
    fallen[-1] = -1
    while node < tree.mdp.states:
        path[node], node = 1, 3 * node + 3
    return [(examples.loop(10), None), (examples.unicycle(10), None), (cliff, fallen), (tree, path)]


if __name__ == "__main__":
    options = tyro.cli(Options, description=__doc__)
    (returns if options.part == "returns" else exact)(options)
