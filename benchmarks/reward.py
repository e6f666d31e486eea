"""The whole loop of AdRIL on a Gymnasium task: environment steps a second, and where the time goes.

    python benchmarks/reward.py --env HalfCheetahBulletEnv-v0 --demos FILE

A round is played and learned in with staleness 0, environments and updates in turn, and with staleness 1, both at once. Compilation
and the workers' start are left out. What the environments and the policies take is measured where it is spent, in the
workers; what is left of the wall-clock is the updates and everything else. The ratio is that of staleness 1 to staleness 0 in the
same run. Writes docs/results/reward-speed.csv.
"""

import csv
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

import understudy as us
from understudy.collect.collectors import Stepped
from understudy.collect.workers import worker_count
from understudy.envs import GymnasiumEnvironment
from understudy.train import loop as run
from understudy.train.results import provenance

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Options:
    demos: Annotated[str, tyro.conf.arg(metavar="FILE")]
    """Demonstrations of the task."""
    env: str = "HalfCheetahBulletEnv-v0"
    """A Gymnasium task."""
    seeds: tuple[int, ...] = (1, 2)
    """Numbers of runs that train together."""
    rounds: int = 6
    """Rounds; the first two are not counted."""
    out: str = str(HERE.parent / "docs/results/reward-speed.csv")
    """Where the numbers go."""


def measure(options: Options, seeds: int, staleness: int) -> dict[str, float]:
    """Steps a second of all runs together, and milliseconds a step of a run by where they are spent."""
    env = us.make(options.env)
    assert isinstance(env, GymnasiumEnvironment)
    demonstrations = us.load(options.demos).for_task(env.spec, env.name)
    training, held = demonstrations.split([demonstrations.episodes] * seeds, 0.02)
    algorithm = us.adril.preset("paper", rounds=options.rounds, staleness=staleness)
    schedule = algorithm.schedule
    workers = worker_count(seeds, env)
    collector = Stepped(env, list(range(seeds)), schedule, options.rounds, workers)
    marks: list[tuple[float, float, float]] = []

    def visit(rounds: int, states: Any) -> None:
        jax.block_until_ready(states())  # type: ignore[no-untyped-call]
        crew = collector.crew
        marks.append((time.perf_counter(), crew.env_seconds, crew.act_seconds))

    keys = jax.vmap(jax.random.key)(np.arange(seeds, dtype=np.uint32))
    run.train(algorithm, demonstrations.spec, training, keys, collector, visit=visit, held_out=held)
    counted = len(marks) - 2
    wall, env_seconds, act_seconds = (float(b - a) for a, b in zip(marks[1], marks[-1], strict=True))
    steps = counted * schedule.updates * schedule.update_steps
    return {
        "runs": seeds,
        "workers": workers,
        "staleness": staleness,
        "steps_a_second": seeds * steps / wall,
        "wall_ms": 1e3 * wall / steps,
        "environment_ms": 1e3 * env_seconds / seeds / steps,
        "acting_ms": 1e3 * act_seconds / seeds / steps,
    }


def main(options: Options) -> None:
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    rows = []
    for seeds in options.seeds:
        alone = None
        for staleness in (0, 1):
            found = measure(options, seeds, staleness)
            alone = alone or found["steps_a_second"]
            ratio = found["steps_a_second"] / alone
            print("  ".join(f"{name} {value:.4g}" for name, value in found.items()), f"  ratio {ratio:.2f}", flush=True)
            numbers = [round(value, 3) for value in found.values()]
            rows.append(
                [options.env, *numbers, round(ratio, 2), made["command"], versions, made["device"], made["date"]]
            )
    header = ["env", *found, "ratio", "command", "versions", "device", "date"]
    with Path(options.out).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


if __name__ == "__main__":
    main(tyro.cli(Options))
