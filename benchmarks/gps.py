"""GPS on Pendulum, from starts near the goal and from all of them, on the CPU.

    python benchmarks/gps.py              # writes docs/results/gps.csv

near: the pendulum starts within 0.2 rad of upright, nearly at rest; short: the same with 50 steps instead of 200; all:
anywhere, as in Pendulum itself. Rows of other tasks and learners than those chosen stay in the file. Each
learner has 5 fixed starts. `controllers` is the mean return of the episodes that the controllers collect in a round,
with their noise; `network` is the mean return of the final network from 50 new starts. `still` is a policy that applies
no torque, and `scripted` is the task's own expert, from the same 50 starts. GPS sees 5 of its episodes: they scale the
observations, and with `initial="cloned"` the first network clones them.
"""

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Key

import understudy as us
from understudy.collect.rollouts import rollout
from understudy.core.types import Spec
from understudy.envs.base import Environment, Timestep
from understudy.envs.pendulum import PendulumState, _observe
from understudy.game.costs import Cost
from understudy.policies import Policy
from understudy.train.tables import provenance, write_csv

TASKS = {"short": (0.2, 50), "near": (0.2, 200), "all": (float(np.pi), 200)}
"""How far from upright the pendulum starts, in rad, and the steps of an episode."""
SETTINGS = {"conditions": 5, "episodes_per_round": 25, "discount": 0.9}
COLUMNS = ["env", "learner", "seed", "first_controllers", "controllers", "network", "env_steps", "train_seconds"]


class Swing(Environment):
    """Pendulum that starts within `reach` of upright, with a speed of up to reach / π."""

    reach: float
    steps: int = eqx.field(static=True)
    name: ClassVar[str] = "Swing"

    @property
    def spec(self) -> Spec:
        return replace(us.Pendulum().spec, horizon=self.steps)

    def reset(self, key: Key[Array, ""]) -> tuple[PendulumState, Array]:
        angle, speed = jax.random.uniform(key, (2,), minval=-1.0) * jnp.array([1.0, 1 / jnp.pi]) * self.reach
        state = PendulumState(angle, speed)
        return state, _observe(state)

    def step(self, state: PendulumState, act: Array, key: Key[Array, ""]) -> Timestep:
        return us.Pendulum().step(state, act, key)

    def expert(self) -> Policy:
        return us.Pendulum().expert()

    def cost(self) -> Cost:
        return us.Pendulum().cost()


@dataclass(frozen=True)
class Options:
    seeds: int = 2
    """Seeds of each learner."""
    rounds: int = 16
    """Rounds of each learner."""
    initial: tuple[str, ...] = ("cloned", "random")
    """Values of `initial`."""
    tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks."""
    out: str = "docs/results"
    """Directory of the CSV file."""


def main(options: Options) -> None:
    made, path = provenance(), Path(options.out) / "gps.csv"
    stored = list(csv.reader(path.open(encoding="utf-8")))[1:] if path.exists() else []
    known = {"still", "scripted", *(f"gps, {initial}" for initial in options.initial)}
    rows: list[list[Any]] = [row for row in stored if row[0] not in options.tasks or row[1] not in known]
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    tail = [made["command"], versions, made["device"], made["date"]]
    for initial in options.initial:
        for name in options.tasks:
            env = Swing(*TASKS[name])
            demonstrations = us.record(env, env.expert(), episodes=5, seed=1)
            learner = us.gps(**SETTINGS, rounds=options.rounds, initial=initial)
            result = us.imitate(learner, demonstrations, env, seeds=options.seeds, holdout=0.0)
            network = result.evaluate(env, episodes=50).returns.mean(1)
            returns, steps = result.metrics["return"], result.metrics["env_steps"][:, -1]
            for seed in range(options.seeds):
                numbers = [returns[seed, 1], returns[seed, -1], network[seed]]
                rows.append([name, f"gps, {initial}", seed, *(round(float(x), 1) for x in numbers), int(steps[seed])])
                rows[-1] += [result.config["seconds"], *tail]
            print(name, initial, returns[:, [1, -1]].round(0).tolist(), network.round(0), flush=True)
            if initial == options.initial[0]:
                still = rollout(env, lambda obs: np.zeros((len(obs), 1), np.float32), 50)
                for who, played in (("still", still), ("scripted", rollout(env, env.expert(), 50))):
                    rows.append([name, who, "", "", "", round(float(played.returns.mean()), 1), "", "", *tail])
                    print(name, who, rows[-1][5], flush=True)
            write_csv(path, [*COLUMNS, "command", "versions", "device", "date"], rows)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
