"""Diagnosis: seconds of `diagnose` on 25 × 1,000 steps, and the planted cases.

python benchmarks/diagnosis.py speed cases      # either or both; docs/results/diagnosis.csv
"""

import csv
import importlib
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import understudy as us
from understudy.train.tables import provenance, write_csv

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs/results"
HEADER = ["part", "case", "expected", "first", "likelihood", "second", "third", "correct", "seconds"]
MADE = ["command", "versions", "device", "date"]


class Track(gymnasium.Env[np.ndarray, np.ndarray]):
    """17 numbers, 6 actions, 1,000 steps: the sizes of a locomotion task, without a simulator to install."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.steps = self.np_random.normal(size=17), 0
        return self.state.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        drift = np.sin(np.roll(self.state, 1)) - 0.5 * self.state
        self.state = self.state + 0.05 * drift + 0.05 * np.pad(action, (0, 11)) + 0.02 * self.np_random.normal(size=17)
        return self.state.astype(np.float32), float(-np.square(self.state).mean()), False, self.steps >= 1000, {}


def track() -> Any:
    return Track()


def steer(obs: np.ndarray) -> np.ndarray:
    return np.asarray(np.tanh(-2 * obs[..., :6]), np.float32)


def main() -> None:
    parts = sys.argv[1:] or ["speed", "cases"]
    path = RESULTS / "diagnosis.csv"
    stored = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    rows = [[row[name] for name in (*HEADER, *MADE)] for row in stored if row["part"] not in parts]
    rows += speed() if "speed" in parts else []
    rows += cases() if "cases" in parts else []
    write_csv(path, [*HEADER, *MADE], sorted(rows, key=lambda row: row[0], reverse=True))


def made() -> list[Any]:
    facts = provenance()
    versions = " ".join(f"{package}={version}" for package, version in facts["versions"].items())
    return [
        f"python benchmarks/diagnosis.py {' '.join(sys.argv[1:])}".strip(),
        versions,
        facts["device"],
        facts["date"],
    ]


def speed() -> list[list[Any]]:
    env = us.make(track, horizon=1000)
    demos = us.record(env, steer, 25, progress=False, workers=0)
    result = us.imitate(us.bc.preset("quick"), demos, env, seeds=2, progress=False)
    rows = []
    for name, expert in (("25 x 1,000 steps, 10 fresh episodes", None), ("the same with an expert", steer)):
        began = time.perf_counter()
        found = us.diagnose(result, env, expert, demos)
        rows.append(_row("speed", name, "none", found, time.perf_counter() - began))
        print(rows[-1][:9], flush=True)
    return rows


def cases() -> list[list[Any]]:
    sys.path.insert(0, str(ROOT / "tests/diagnosis"))
    planted = importlib.import_module("planted_cases")
    rows = []
    for name, (causes, make) in planted.CASES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given, options = make()
            began = time.perf_counter()
            found = us.diagnose(given, **options)
        rows.append(_row("cases", name, " or ".join(causes), found, time.perf_counter() - began))
        print(rows[-1][:9], flush=True)
    return rows


def _row(part: str, name: str, expected: str, found: us.Diagnosis, seconds: float) -> list[Any]:
    names = [cause.name for cause in found.causes[:3]] + [""] * 3
    level = found.causes[0].likelihood
    first = {cause.name for cause in found.causes if cause.likelihood == level}
    correct = bool(first & set(expected.split(" or ")))
    return [part, name, expected, names[0], round(level, 3), names[1], names[2], correct, round(seconds, 1), *made()]


if __name__ == "__main__":
    main()
