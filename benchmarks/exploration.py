"""SAC with and without state-dependent exploration: returns, and how much consecutive actions differ.

python benchmarks/exploration.py [--env Pendulum] [--steps 15000] [--seeds 5]
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

import understudy as us
from understudy.train.tables import provenance, write_csv

OUT = Path(__file__).parent.parent / "docs/results/exploration.csv"
EPISODES = 25
COLUMNS = ["env", "sde", "seed", "steps", "return", "jitter", "jitter_deterministic"]
COLUMNS += ["command", "versions", "machine", "date"]


def jitter(episodes: us.Demonstrations) -> float:
    """Mean absolute difference of consecutive actions, relative to half of their range."""
    assert isinstance(episodes.action_space, us.Continuous)
    half = (np.asarray(episodes.action_space.high) - np.asarray(episodes.action_space.low)) / 2
    parts = np.split(episodes.actions / half, np.cumsum(episodes.lengths)[:-1])
    return float(np.concatenate([np.abs(np.diff(actions, axis=0)) for actions in parts]).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="Pendulum")
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    command = " ".join(["python benchmarks/exploration.py", *sys.argv[1:]])
    about = [command, versions, f"{os.cpu_count()} cores, {made['device']}", made["date"]]
    rows = []
    for sde in (False, True):
        learned = us.learn(us.rl.SAC(hidden=(64, 64), sde=sde), options.env, options.steps, options.seeds)
        for seed, actor in enumerate(learned.policies):
            noisy, plain = (us.record(options.env, actor, EPISODES, deterministic=mode) for mode in (False, True))
            mean_return = float(np.asarray(plain.returns).mean())
            rows.append([options.env, sde, seed, options.steps, mean_return, jitter(noisy), jitter(plain), *about])
            print("sde={1}, seed {2}: return {4:.1f}, jitter {5:.3f}, deterministic {6:.3f}".format(*rows[-1]))
    write_csv(OUT, COLUMNS, rows)


if __name__ == "__main__":
    main()
