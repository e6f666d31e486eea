"""Held-out payoffs of what `understudy reproduce off-q` trained, which choose between settings without an environment.

    python benchmarks/off_q_payoffs.py --task halfcheetah --demos FILE

For each learner, size and seed: the Gaussian-kernel off-Q payoff (`understudy.train.selection`) on the demonstrated episodes
that the run did not learn from, and for a ensemble the mean payoff of its members alone. Rows go to
docs/results/off-q-payoffs-TASK.csv.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro

import understudy as us
from understudy.core.statistics import Sample
from understudy.core.types import Dataset
from understudy.paper import figure_studies
from understudy.paper.off_q import TASKS
from understudy.policies import Ensemble, Normalized
from understudy.policies.actor import Actor
from understudy.studies import Store
from understudy.train.results import provenance, write_csv
from understudy.train.selection import held_out, held_out_payoff


@dataclass(frozen=True)
class Options:
    task: Literal["halfcheetah", "ant"]
    """The paper's task."""
    demos: str
    """The npz file of demonstrations that the runs learned from."""
    work: str = "runs"
    """Where off-q-TASK is, the directory of the figure's study."""
    learners: tuple[str, ...] = ("bc", "advil")
    """Which learners."""
    out: str = "docs/results"
    """The directory of the CSV file."""


def alone(actor: Actor) -> list[Actor]:
    """The members of a ensemble, each as a policy; none of a policy that is one network."""
    framed = actor.policy
    if not isinstance(framed, Normalized) or not isinstance(framed.policy, Ensemble):
        return []
    stacked = framed.policy.members
    count = stacked.net.weights[0].shape[0]
    members = (jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(count))
    return [Actor(Normalized(member, framed.normalization), actor.spec, {}) for member in members]


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    env = TASKS[options.task]
    demonstrations = us.load(options.demos).for_task(us.make(env).spec, env)
    everything, _ = demonstrations.split([demonstrations.episodes], 0.0)
    rows: list[list[Any]] = []
    made = provenance()
    study, store = figure_studies.paper("off-q"), Store(Path(options.work) / f"off-q-{options.task}")
    for learner in options.learners:
        entry = figure_studies.entry(learner, trajectories=())
        (group,) = figure_studies.adapted(study, env, options.demos, None, 1, [entry]).groups()
        for count in sorted({cell.trajectories for cell in group.cells if cell.trajectories < demonstrations.episodes}):
            seen, _ = demonstrations.split([count], 0.0)
            steps = int(seen.size[0])
            unseen = Dataset(jax.tree.map(lambda x, n=steps: x[n:], everything.steps), everything.size - steps)
            criterion = held_out(demonstrations.spec, seen, unseen, 0)
            found = []
            for cell in group.cells:
                if cell.trajectories == count:
                    actor = us.load_policy(store.policy_path(cell.key))
                    each = [held_out_payoff(member, criterion) for member in alone(actor)]
                    found.append((held_out_payoff(actor, criterion), np.mean(each) if each else float("nan")))
                    rows.append(
                        [env, learner, count, cell.seed, *(f"{1e4 * x:.3f}" if x == x else "" for x in found[-1])]
                    )
            together, members = (Sample.of(1e4 * np.array(column)) for column in zip(*found, strict=True))
            apart = f"   members alone {members.mean:.2f}" if np.isfinite(members.mean) else ""
            print(f"{learner:<16}{count:>3} trajectories: {together.mean:7.2f} ± {together.standard_error:.2f}{apart}")
    header = ["env", "learner", "trajectories", "seed", "payoff_1e4", "members_payoff_1e4", "command", "date"]
    rows = [[*row, made["command"], made["date"]] for row in rows]
    write_csv(Path(options.out) / f"off-q-payoffs-{options.task}.csv", header, rows)


if __name__ == "__main__":
    main()
