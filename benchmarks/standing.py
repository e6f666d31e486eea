"""Which episodes of a policy end in standing still, and does noise help? HalfCheetah-v5, policies of the benchmark.

    python benchmarks/standing.py --study WORK/halfcheetah --last LAST --out docs/results/standing.csv

Study and LAST are those of `selection.py`; the policies are those of the last evaluation. Each plays the same episodes
with its mean action, with sampled actions, and with the mean action plus a little noise. An episode stands still if the
last 50 of its 300 steps return less than a tenth of what 50 steps of the expert do on average. `moved` is the smallest
change of an observation in these 50 steps, over the episodes that stand still: 0 is a fixed point.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import understudy as us
from understudy.train.tables import provenance, write_csv

ENV, STEPS, LAST = "HalfCheetah-v5", 300, 50
EXPERT = 11422.0 / 1000
"""The expert's reward per step (docs/benchmark.md)."""
NOISES = (0.02, 0.1)
"""Standard deviations of noise on the mean action, whose range is [-1, 1]."""
COLUMNS = (
    *("env", "algorithm", "seed", "trajectories", "actions", "episodes", "still", "moved"),
    *("others_return", "command", "versions", "date"),
)
Act = Callable[[np.ndarray], np.ndarray]


def ways(actor: us.Actor, random: np.random.Generator) -> dict[str, Act]:
    """The ways to act by name."""

    def noisy(scale: float) -> Act:
        def act(obs: np.ndarray) -> np.ndarray:
            return np.clip(actor(obs) + scale * random.normal(size=actor.spec.action.shape), -1, 1).astype(np.float32)

        return act

    found: dict[str, Act] = {
        "mean": actor,
        "sampled": lambda obs: actor.predict(obs, deterministic=False, random=random)[0],
    }
    return found | {f"mean, noise {scale:g}": noisy(scale) for scale in NOISES}


def play(env: Any, act: Act, seed: int) -> tuple[float, float, float]:
    """(return, return of the last steps, largest change of an observation in them)."""
    obs, _ = env.reset(seed=seed)
    rewards, seen = [], []
    for _ in range(STEPS):
        obs, reward, *_ = env.step(act(obs))
        rewards.append(float(reward))
        seen.append(obs)
    return sum(rewards), sum(rewards[-LAST:]), float(np.ptp(np.stack(seen[-LAST:]), axis=0).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, required=True, help="a finished study")
    parser.add_argument("--last", type=Path, required=True, help="the policies of its last evaluation")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=70_000, help="seed of the first episode")
    parser.add_argument("--out", type=Path, default=Path("out/standing.csv"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    made, env, rows = provenance(), gymnasium.make(ENV), []
    versions = " ".join(f"{package}={version}" for package, version in made["versions"].items())
    for file in sorted((options.study / "cells").glob("*.json")):
        config = json.loads(file.read_text())["config"]
        (path,) = options.last.glob(f"*-{file.stem}.policy.npz")
        actor = us.load_policy(path)
        for name, act in ways(actor, np.random.default_rng(options.seed)).items():
            played = [play(env, act, options.seed + index) for index in range(options.episodes)]
            still = [end < 0.1 * EXPERT * LAST for _, end, _ in played]
            moved = min((change for (*_, change), stands in zip(played, still, strict=True) if stands), default="")
            others = [total for (total, *_), stands in zip(played, still, strict=True) if not stands]
            about = (ENV, config["algorithm"]["name"], config["seed"], config["task"]["trajectories"], name)
            numbers = (options.episodes, sum(still), moved, round(float(np.mean(others)), 1) if others else "")
            rows.append([*about, *numbers, made["command"], versions, made["date"]])
            write_csv(options.out, list(COLUMNS), rows)
            print(*rows[-1][:9], sep="  ", flush=True)


if __name__ == "__main__":
    main()
