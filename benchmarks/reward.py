"""Speed of AdRIL's training loop on a Gymnasium task: environment steps per second, and where the time is spent.

    python benchmarks/reward.py --env HalfCheetahBulletEnv-v0 --demos FILE

With staleness 0, environment steps and updates alternate; with staleness 1 they run in parallel. Compilation and the
start of the workers are not counted. The time of environments and policies is measured in the workers; the rest of the
wall-clock time is updates and everything else. The ratio compares staleness 1 with staleness 0 in the same run. It
writes docs/results/reward-speed.csv.
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
from understudy.collect.worker import worker_count
from understudy.collect.worker_collector import WorkerCollector
from understudy.envs import GymnasiumEnvironment
from understudy.train import loop as run
from understudy.train.tables import provenance

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Options:
    demos: Annotated[str, tyro.conf.arg(metavar="FILE")]
    """Demonstrations of the task."""
    env: str = "HalfCheetahBulletEnv-v0"
    """A Gymnasium task."""
    seeds: tuple[int, ...] = (1, 2)
    """Numbers of runs in one program."""
    rounds: int = 6
    """Rounds. The first two are not counted."""
    out: str = str(HERE.parent / "docs/results/reward-speed.csv")
    """CSV file of the times."""


def measure(options: Options, seeds: int, staleness: int) -> dict[str, float]:
    """Steps per second of all runs together, and milliseconds per step of one run by where they are spent."""
    env = us.make(options.env)
    assert isinstance(env, GymnasiumEnvironment)
    demonstrations = us.load(options.demos).for_task(env.spec, env.name)
    training, held = demonstrations.split([demonstrations.episodes] * seeds, 0.02)
    algorithm = us.adril.preset("paper", rounds=options.rounds, staleness=staleness)
    schedule = algorithm.schedule
    workers = worker_count(env, seeds)
    collector = WorkerCollector(env, list(range(seeds)), schedule, options.rounds, workers)
    marks: list[tuple[float, float, float]] = []

    def visit(rounds: int, states: Any) -> None:
        jax.block_until_ready(states())  # type: ignore[no-untyped-call]
        pool = collector.pool
        marks.append((time.perf_counter(), pool.env_seconds, pool.act_seconds))

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
            measured = measure(options, seeds, staleness)
            alone = alone or measured["steps_a_second"]
            ratio = measured["steps_a_second"] / alone
            print(
                "  ".join(f"{name} {value:.4g}" for name, value in measured.items()), f"  ratio {ratio:.2f}", flush=True
            )
            numbers = [round(value, 3) for value in measured.values()]
            rows.append(
                [options.env, *numbers, round(ratio, 2), made["command"], versions, made["device"], made["date"]]
            )
    header = ["env", *measured, "ratio", "command", "versions", "device", "date"]
    with Path(options.out).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


if __name__ == "__main__":
    main(tyro.cli(Options))
