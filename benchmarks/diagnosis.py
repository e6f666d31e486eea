"""Diagnosis: seconds of `diagnose` on 25 × 1,000 steps, the planted cases, and advice against stored results.

python benchmarks/diagnosis.py speed cases advice      # any of the three; docs/results/diagnosis.csv and advice.csv
"""

import csv
import importlib
import sys
import time
import warnings
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import understudy as us
from understudy.diagnosis.advice import Facts, choose
from understudy.train.tables import provenance, write_csv

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs/results"
HEADER = ["part", "case", "expected", "first", "likelihood", "second", "third", "correct", "seconds"]
MADE = ["command", "versions", "device", "date"]
FITTED = ("HalfCheetahBulletEnv-v0", "Pendulum", "CartPole-v1")
OTHERS = ("AntBulletEnv-v0", "LunarLander-v3", "Forest")
CLOSE = 0.05


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
    parts = sys.argv[1:] or ["speed", "cases", "advice"]
    path = RESULTS / "diagnosis.csv"
    stored = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    rows = [[row[name] for name in (*HEADER, *MADE)] for row in stored if row["part"] not in parts]
    rows += speed() if "speed" in parts else []
    rows += cases() if "cases" in parts else []
    if {"speed", "cases"} & set(parts):
        write_csv(path, [*HEADER, *MADE], sorted(rows, key=lambda row: row[0], reverse=True))
    if "advice" in parts:
        advice()


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


def advice() -> None:
    """The advised algorithm against the best one, from stored results (docs/diagnosis.md has the split)."""
    rows: list[list[Any]] = []
    for split, tasks in (("fitted", FITTED), ("others", OTHERS)):
        for task in tasks:
            for has, count, returns in situations(task):
                demos = us.load(task)
                demos = demos.first(min(count, demos.episodes))
                facts, source = measured(task, has, demos)
                chosen = choose(facts)[0]
                best = max(returns, key=lambda name: returns[name])
                close = {name: value >= returns[best] - CLOSE * abs(returns[best]) for name, value in returns.items()}
                rows.append([split, task, has, count, chosen, best, close, returns, source])
    out = []
    for split, task, has, count, chosen, best, close, returns, source in rows:
        rivals = [row for row in rows if row[0] == split and row[2] == has]
        names = sorted({name for row in rivals for name in row[7]})
        fixed = max(names, key=lambda name: sum(row[6].get(name, False) for row in rivals))
        shown = " ".join(f"{name}={value:.1f}" for name, value in sorted(returns.items()))
        out.append(
            [split, task, has, count, chosen, best, close.get(chosen, ""), fixed, close.get(fixed, ""), shown, source]
        )
        print(out[-1], flush=True)
    header = ["split", "env", "has", "demonstrations", "advised", "best", "advised_close", "fixed", "fixed_close"]
    write_csv(RESULTS / "advice.csv", [*header, "returns", "facts", *MADE], [[*row, *made()] for row in out])
    for split in ("fitted", "others"):
        own = [row for row in out if row[0] == split]
        print(split, sum(r[6] is True for r in own), "advised,", sum(r[8] is True for r in own), "fixed, of", len(own))


def measured(task: str, has: str, demos: us.Demonstrations) -> tuple[Facts, str]:
    """What `advise` measures. Without the simulator here, a person's environment and expert are only assumed."""
    expert = {"Pendulum": "scripted", "Forest": "scripted"}.get(task, "bundled") if has == "expert" else None
    found = us.advise(demos, None if has == "demonstrations" else task, expert).facts
    if (found.environment, found.expert) == (has != "demonstrations", has == "expert"):
        return found, "measured"
    plain = us.advise(demos).facts  # an extra is not installed
    assumed = replace(plain, environment=has != "demonstrations", expert=has == "expert")
    return (replace(assumed, h=1.0), "H assumed to be 1") if has == "expert" else (assumed, "environment assumed")


def situations(task: str) -> list[tuple[str, int, dict[str, float]]]:
    """(what a person has, demonstrations, algorithm → mean return) from the stored results."""
    short = {"AntBulletEnv-v0": "ant", "HalfCheetahBulletEnv-v0": "halfcheetah"}.get(task)
    found = []
    if short is not None:
        table: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in _rows(f"off-q-{short}.csv"):
            if row["preset"] == "default":
                table[int(row["x"])][row["algorithm"]].append(float(row["mean_return"]))
        found += [("demonstrations", n, _means(table[n])) for n in sorted(table)]
        last: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in _rows(f"reward-{short}.csv"):
            if row["x"] == "500000":
                last[row["algorithm"]][f"{row['preset']} {row['trajectories']}"].append(float(row["mean_return"]))
        best = {name: max(_means(presets).values()) for name, presets in last.items()}
        found.append(("environment", 20, {**_means(table[20]), **best}))
    elif task == "LunarLander-v3":
        final: dict[str, list[float]] = defaultdict(list)
        for row in _rows("lander.csv"):
            if row["x"] == "10":
                final[row["algorithm"]].append(float(row["mean_return"]))
        found.append(("expert", 10, _means(final)))
    else:
        quick = {row["algorithm"]: float(row["return"]) for row in _rows("quick.csv") if row["env"] == task}
        needs = {name: us.ALGORITHMS[name].card.needs for name in quick}
        alone = {name: value for name, value in quick.items() if needs[name] == ("demonstrations",)}
        playing = {name: value for name, value in quick.items() if "expert" not in needs[name]}
        groups = {"demonstrations": alone, "environment": playing, "expert": quick}
        found += [(has, 25, returns) for has, returns in groups.items() if len(returns) > 1]
    return found


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((RESULTS / name).open(encoding="utf-8")))


def _means(samples: dict[str, list[float]]) -> dict[str, float]:
    return {name: float(np.mean(values)) for name, values in samples.items()}


if __name__ == "__main__":
    main()
