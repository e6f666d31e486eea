"""SAC's two ways to explore: what the policies return, and how much their actions shake while they learn.

python benchmarks/exploration.py [--env Pendulum] [--steps 15000] [--seeds 5]
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

import understudy as us
from understudy.train.results import provenance, write_csv

OUT = Path(__file__).parent.parent / "docs/results/exploration.csv"
EPISODES = 25
COLUMNS = ["env", "sde", "seed", "steps", "return", "shake", "shake_without_chance"]
COLUMNS += ["command", "versions", "machine", "date"]


def shake(shown: us.Demonstrations) -> float:
    """How far an action is from the one before it in its episode, in half-ranges: the mean of all of them."""
    assert isinstance(shown.action_space, us.Continuous)
    half = (np.asarray(shown.action_space.high) - np.asarray(shown.action_space.low)) / 2
    episodes = np.split(shown.actions / half, np.cumsum(shown.lengths)[:-1])
    return float(np.concatenate([np.abs(np.diff(acts, axis=0)) for acts in episodes]).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="Pendulum")
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    command = " ".join(["python benchmarks/exploration.py", *sys.argv[1:]])
    about = [command, versions, f"{os.cpu_count()} cores, {made['device']}", made["date"]]
    rows = []
    for sde in (False, True):
        learned = us.learn(us.rl.SAC(hidden=(64, 64), sde=sde), asked.env, asked.steps, asked.seeds)
        for seed, actor in enumerate(learned.policies):
            tried, plain = (us.record(asked.env, actor, EPISODES, deterministic=sure) for sure in (False, True))
            returned = float(np.asarray(plain.returns).mean())
            rows.append([asked.env, sde, seed, asked.steps, returned, shake(tried), shake(plain), *about])
            print("sde={1}, seed {2}: return {4:.1f}, shake {5:.3f}, without chance {6:.3f}".format(*rows[-1]))
    write_csv(OUT, COLUMNS, rows)


if __name__ == "__main__":
    main()
