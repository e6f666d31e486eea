"""Held-out payoffs of the policies of `understudy reproduce off-q`, to choose between settings without an environment.

    python benchmarks/off_q_payoffs.py --task halfcheetah --demos FILE

For each learner, number of trajectories and seed: the Gaussian-kernel off-Q payoff (`understudy.train.selection`) on
the demonstrated episodes that were not used in training. For an ensemble also the mean payoff of its single members.
The rows are written to docs/results/off-q-payoffs-TASK.csv.
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
from understudy.paper.figure_studies import TASKS
from understudy.policies import Ensemble, Normalized
from understudy.policies.actor import Actor
from understudy.studies import Store
from understudy.train.selection import held_out, held_out_payoff
from understudy.train.tables import provenance, write_csv


@dataclass(frozen=True)
class Options:
    task: Literal["halfcheetah", "ant"]
    """Task of the paper."""
    demos: str
    """File of the demonstrations that the runs were trained on (.npz)."""
    work: str = "runs"
    """Directory that has off-q-TASK, the directory of the figure's study."""
    learners: tuple[str, ...] = ("bc", "advil")
    """Learners."""
    out: str = "docs/results"
    """Directory of the CSV file."""


def ensemble_members(actor: Actor) -> list[Actor]:
    """The members of an ensemble as policies; none for a policy that is one network."""
    normalized = actor.policy
    if not isinstance(normalized, Normalized) or not isinstance(normalized.policy, Ensemble):
        return []
    stacked = normalized.policy.members
    count = stacked.net.weights[0].shape[0]
    members = (jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(count))
    return [Actor(Normalized(member, normalized.normalization), actor.spec, {}) for member in members]


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    env = TASKS[options.task]
    demonstrations = us.load(options.demos).for_task(us.make(env).spec, env)
    everything, _ = demonstrations.split([demonstrations.episodes], 0.0)
    rows: list[list[Any]] = []
    made = provenance()
    study, store = figure_studies.load_study("off-q"), Store(Path(options.work) / f"off-q-{options.task}")
    for learner in options.learners:
        entry = figure_studies.parse_learner(learner, trajectories=())
        (group,) = figure_studies.adapt_study(study, env, options.demos, None, 1, [entry]).groups()
        for count in sorted({cell.trajectories for cell in group.cells if cell.trajectories < demonstrations.episodes}):
            seen, _ = demonstrations.split([count], 0.0)
            steps = int(seen.size[0])
            unseen = Dataset(jax.tree.map(lambda x, n=steps: x[n:], everything.steps), everything.size - steps)
            criterion = held_out(demonstrations.spec, seen, unseen, 0)
            payoffs = []
            for cell in group.cells:
                if cell.trajectories == count:
                    actor = us.load_policy(store.policy_path(cell.key))
                    each = [held_out_payoff(member, criterion) for member in ensemble_members(actor)]
                    payoffs.append((held_out_payoff(actor, criterion), np.mean(each) if each else float("nan")))
                    rows.append(
                        [env, learner, count, cell.seed, *(f"{1e4 * x:.3f}" if x == x else "" for x in payoffs[-1])]
                    )
            together, members = (Sample.of(1e4 * np.array(column)) for column in zip(*payoffs, strict=True))
            single = f"   single members {members.mean:.2f}" if np.isfinite(members.mean) else ""
            print(f"{learner:<16}{count:>3} trajectories: {together.mean:7.2f} ± {together.standard_error:.2f}{single}")
    header = ["env", "learner", "trajectories", "seed", "payoff_1e4", "members_payoff_1e4", "command", "date"]
    rows = [[*row, made["command"], made["date"]] for row in rows]
    write_csv(Path(options.out) / f"off-q-payoffs-{options.task}.csv", header, rows)


if __name__ == "__main__":
    main()
