"""Settings of AdVIL and BC: their held-out payoffs, by which the default was chosen, and their returns.

    python benchmarks/off_q_settings.py --task halfcheetah --demos FILE

Every setting is trained on the first few episodes. All settings and seeds of a group are one program, because they
differ only in numbers, and numbers can be a vmap axis. The payoff is the Gaussian-kernel off-Q payoff
(`understudy.train.selection`) on held-out episodes. The rows are written to docs/results/off-q-settings-TASK.csv.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array

import understudy as us
from understudy.core.statistics import Sample, interval
from understudy.core.types import Dataset, RoundData, Spec, State
from understudy.paper.figure_studies import TASKS
from understudy.policies import Policy
from understudy.policies.actor import Actor
from understudy.train.programs import traced
from understudy.train.selection import held_out, held_out_payoff
from understudy.train.tables import provenance, write_csv

# A group's first entry may change shapes. Its settings are one program.
Group = tuple[dict[str, Any], dict[str, dict[str, float]]]
BC: list[Group] = [
    ({"ensemble_size": 1}, {"1 member": {}, "1 member, weight decay 0.3": {"weight_decay": 0.3}}),
    ({"ensemble_size": 5}, {"5 members": {}, "5 members, weight decay 0.3": {"weight_decay": 0.3}}),
]
ADVIL: list[Group] = [
    ({"ensemble_size": 1}, {"1 member": {}, "1 member, weight decay 0.3": {"weight_decay": 0.3}}),
    ({"ensemble_size": 5}, {"5 members": {}, "5 members, weight decay 0.3": {"weight_decay": 0.3}}),
]


MAKERS: tuple[tuple[Any, list[Group]], ...] = ((us.bc, BC), (us.advil, ADVIL))


@dataclass(frozen=True)
class Options:
    task: Literal["halfcheetah", "ant"]
    """Task of the paper."""
    demos: str
    """File of demonstrations (.npz). Episodes beyond --trajectories are held out."""
    trajectories: int = 5
    """Demonstrated episodes for training."""
    seeds: int = 5
    """Seeds per setting."""
    episodes: int = 10
    """Episodes per evaluated policy."""
    rounds: int = 100
    """Rounds of training."""
    workers: int = os.cpu_count() or 1
    """Processes for the evaluation."""
    out: str = "docs/results"
    """Directory of the CSV file."""


def train(settings: list[us.Algorithm], spec: Spec, data: Dataset, seeds: int) -> list[list[Policy]]:
    """The policies of every setting and seed, trained in one program."""

    def one(algorithm: us.Algorithm, key: Array) -> Policy:
        state = algorithm.init(jax.random.fold_in(key, 0), spec, data)

        def round_(state: State, k: Array) -> tuple[State, None]:
            return algorithm.update(state, RoundData(data), k)[0], None

        state, _ = jax.lax.scan(round_, state, jax.random.split(key, algorithm.rounds))
        return algorithm.policy(state)

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(traced, settings))
    keys = jax.vmap(jax.random.key)(np.arange(seeds, dtype=np.uint32))
    policies = jax.device_get(jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(stacked, keys))
    return [[jax.tree.map(lambda x, i=i, j=j: x[i, j], policies) for j in range(seeds)] for i in range(len(settings))]


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    env = TASKS[options.task]
    demonstrations = us.load(options.demos).for_task(us.make(env).spec, env)
    spec = demonstrations.spec
    seen, _ = demonstrations.split([options.trajectories], 0.0)
    everything, _ = demonstrations.split([demonstrations.episodes], 0.0)
    steps = int(seen.size[0])
    unseen = Dataset(jax.tree.map(lambda x: x[steps:], everything.steps), everything.size - steps)
    criterion = held_out(spec, seen, unseen, 0)
    cells: list[tuple[str, str, int, Actor, float]] = []
    for maker, groups in MAKERS:
        for shared, named in groups:
            made = [maker(rounds=options.rounds, **shared, **changes) for changes in named.values()]
            trained = train(made, spec, seen.of(0), options.seeds)
            for name, policies in zip(named, trained, strict=True):
                for seed, policy in enumerate(policies):
                    actor = Actor(policy, spec, {"seed": seed})
                    cells.append((maker.card.name, name, seed, actor, held_out_payoff(actor, criterion)))
            print(f"{maker.card.name}: {len(made)} settings x {options.seeds} seeds trained", flush=True)
    for key in dict.fromkeys(cell[:2] for cell in cells):
        print(*key, "payoff", np.mean([cell[4] for cell in cells if cell[:2] == key]), flush=True)
    evaluation = us.evaluate([cell[3] for cell in cells], env, options.episodes, workers=options.workers)
    made_by = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made_by["versions"].items())
    about = [made_by["command"], versions, made_by["device"], made_by["date"]]
    rows: list[list[Any]] = []
    for (algorithm, name, seed, _, payoff), returns in zip(cells, evaluation.returns, strict=True):
        score = [round(float(returns.mean()), 1), round(float(returns.std()), 1), len(returns)]
        rows.append([env, algorithm, name, seed, options.trajectories, f"{payoff:.5f}", *score, *about])
    header = ["env", "algorithm", "setting", "seed", "trajectories", "held_out_payoff", "mean_return", "std_return"]
    path = Path(options.out) / f"off-q-settings-{options.task}.csv"
    write_csv(path, [*header, "episodes", "command", "versions", "device", "date"], rows)
    for key in dict.fromkeys((row[1], row[2]) for row in rows):
        chosen = [row for row in rows if (row[1], row[2]) == key]
        mean = np.mean([float(row[5]) for row in chosen])
        print(f"{key[0]:6} {key[1]:32} payoff {mean:.5f}  return {interval(Sample.of([row[6] for row in chosen]))}")


if __name__ == "__main__":
    main()
