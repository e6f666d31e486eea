"""Time of one deterministic action: the exported NumPy file, `Actor.predict`, and Stable-Baselines3's `predict`.

    make bench

One observation, a network of 256 × 256 with normalization. The three alternate, so that other load on the machine
affects all. The fastest block of 200 calls of each counts. The time to import `understudy.deploy`, without NumPy's own,
is measured in new processes. All are printed and written to docs/results/deploy-speed.csv.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

import understudy as us
from understudy.core.types import Spec
from understudy.policies import Actor, Deterministic, Normalization, Normalized
from understudy.train.tables import provenance, write_csv

HERE = Path(__file__).parent
OBS, ACT, WIDTH = 26, 6, 256  # sizes of HalfCheetah
CALLS, BLOCKS = 200, 50
"""Calls of a block, and blocks of a repetition. A block takes milliseconds, so that some are not interrupted."""
IMPORT = "import time, {first}; t = time.perf_counter(); import {second}; print(time.perf_counter() - t)"


@dataclass(frozen=True)
class Options:
    peer: str = ".venv-bench/bin/python"
    """A Python with Stable-Baselines3; `make bench` makes one."""
    repeats: int = 7
    """Repetitions of each."""
    out: str = str(HERE.parent / "docs/results/deploy-speed.csv")
    """CSV file of the times."""


def microseconds(act: Callable[[np.ndarray], Any], obs: np.ndarray) -> float:
    """Microseconds of a call, in the fastest block."""
    best = float("inf")
    for _ in range(BLOCKS):
        began = time.perf_counter()
        for _ in range(CALLS):
            act(obs)
        best = min(best, time.perf_counter() - began)
    return best / CALLS * 1e6


def theirs(peer: str) -> tuple[float, str]:
    """Microseconds of Stable-Baselines3's `predict`, and its versions."""
    command = [peer, str(HERE / "peers/sb3_predict.py"), *map(str, (OBS, ACT, WIDTH, CALLS, BLOCKS))]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(answer.stdout.splitlines()[-1])
    return float(result["us"]), str(result["versions"])


def import_seconds(first: str, second: str) -> float:
    """Seconds to import `second` after `first`, in a new process."""
    code = IMPORT.format(first=first, second=second)
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    if not Path(options.peer).exists():
        sys.exit(f"no Python at {options.peer}: run `make bench`")
    spec = Spec((OBS,), us.Continuous((-1.0,) * ACT, (1.0,) * ACT), 1000)
    mean, std = np.zeros(OBS, np.float32), np.ones(OBS, np.float32)
    scale = Normalization(mean, std, np.zeros(ACT, np.float32), np.ones(ACT, np.float32))
    network = Deterministic.init(jax.random.key(0), OBS, ACT, (WIDTH, WIDTH), squash=True)
    actor = Actor(Normalized(network, scale), spec)
    obs = np.random.default_rng(0).normal(size=OBS).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        actor.export(f"{folder}/p")
        found = importlib.util.spec_from_file_location("policy", f"{folder}/p/policy.py")
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        policy = module.load()
    np.testing.assert_array_equal(policy(obs), actor(obs))
    times: dict[str, list[float]] = {"sb3": [], "actor": [], "numpy": []}
    imports: dict[str, list[float]] = {"numpy": [], "deploy": []}
    for _ in range(options.repeats):
        spent, peer_versions = theirs(options.peer)
        times["sb3"].append(spent)
        times["actor"].append(microseconds(actor.predict, obs))
        times["numpy"].append(microseconds(policy.predict, obs))
        imports["numpy"].append(import_seconds("sys", "numpy"))
        imports["deploy"].append(import_seconds("numpy", "understudy.deploy"))
    sb3, ours, exported = (min(times[name]) for name in ("sb3", "actor", "numpy"))
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    command = "make bench" if options.peer == Options.peer else "python benchmarks/deploy.py --peer PYTHON"
    about = [command, f"{versions} {peer_versions}", f"{os.cpu_count()} cores, {made['device']}", made["date"]]
    rows = [
        ["Stable-Baselines3, predict", round(sb3, 1), "1"],
        ["understudy, Actor.predict", round(ours, 1), f"{sb3 / ours:.1f} times faster"],
        ["understudy, exported NumPy file", round(exported, 1), f"{sb3 / exported:.1f} times faster"],
        ["import of NumPy", round(1e6 * min(imports["numpy"])), ""],
        ["import of understudy.deploy after NumPy", round(1e6 * min(imports["deploy"])), ""],
    ]
    write_csv(
        Path(options.out),
        ["what", "us", "ratio", "command", "versions", "machine", "date"],
        ([*row, *about] for row in rows),
    )
    for name, value, ratio in rows:
        print(f"{name:<42}{value:>10} µs   {ratio}")


if __name__ == "__main__":
    main()
