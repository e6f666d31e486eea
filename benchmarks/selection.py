"""Is the returned policy worse than the last one? Both play the same 100 fresh episodes.

    python benchmarks/selection.py --out docs/results/selection.csv
    python benchmarks/selection.py --study WORK/halfcheetah --last LAST --out docs/results/selection-mujoco.csv

The first trains AdRIL, GAIL with SAC, and SQIL on Pendulum, with 1, 5 and 25 demonstrations and five seeds each: 45
runs, of which some collapse late. The second reads a finished study of the benchmark. LAST has the policies of its
last evaluation, `env_steps-N-KEY.policy.npz`, copied from `work` in the study's directory before the study ended. A
run counts as harmed if its returned policy is below its last one by more than 2% of the expert's return plus two
standard errors of the difference.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

import understudy as us
from understudy.envs import NamedEnv
from understudy.train.tables import provenance, write_csv

TASK, COUNTS, SEEDS, EPISODES = "Pendulum", (1, 5, 25), 5, 100
START = 90_000
"""Seed of the fresh episodes: of no other part of training or evaluation."""
LEARNERS = {
    "adril": us.adril.preset("quick", rounds=12),
    "gail": us.gail.preset("quick", rounds=12),
    "sqil": us.sqil.preset("quick", rounds=12),
}
COLUMNS = (
    *("env", "algorithm", "preset", "seed", "trajectories", "returned", "returned_return", "last_return"),
    *("difference", "standard_error", "expert_return", "harmed", "command", "versions", "date"),
)


Row = list[Any]


def trained(name: str) -> Iterator[Row]:
    """A row for each run of an algorithm, which is trained here."""
    demonstrations = us.load(TASK)
    expert = demonstrations.expert_return
    assert expert is not None
    result = us.imitate(LEARNERS[name], demonstrations, env=TASK, seeds=SEEDS, episodes=COUNTS, keep=3)
    last = {one.run: one.actor for one in result.candidates if one.name == "last"}
    for index, (run, actor) in enumerate(zip(result.runs, result.policies, strict=True)):
        about = (TASK, name, "quick, 12 rounds", run.seed, run.episodes, run.returned)
        yield compared(TASK, about, actor, last[run.name], expert.mean, START + index)


def stored(study: Path, last: Path) -> Iterator[Row]:
    """A row for each run of a finished study. Which candidate was returned is not stored: "last" if both are equal."""
    for index, file in enumerate(sorted((study / "cells").glob("*.json"))):
        cell = json.loads(file.read_text())
        (end,) = last.glob(f"env_steps-*-{file.stem}.policy.npz")
        algorithm, task = cell["config"]["algorithm"], cell["config"]["task"]
        actor, final = us.load_policy(file.with_suffix(".policy.npz")), us.load_policy(end)
        at_end = [one["returns"] for one in cell["evaluations"][-2:]]
        returned = "last" if at_end[0] == at_end[1] else "another"
        about = (
            task["env"],
            algorithm["name"],
            algorithm["preset"],
            cell["config"]["seed"],
            task["trajectories"],
            returned,
        )
        wrap, horizon = tuple(task.get("wrap", ())), task.get("horizon")
        env = us.make(NamedEnv(task["env"], task.get("env_args", {}), wrap, horizon))
        yield compared(env, about, actor, final, cell["display"]["expert_return"], START + index)


def compared(env: Any, about: tuple[Any, ...], actor: us.Actor, last: us.Actor, expert: float, seed: int) -> Row:
    """The row of a run: both policies play the same episodes."""
    returned = final = us.rollout(env, actor.policy, EPISODES, seed).returns
    if not eqx.tree_equal(actor.policy, last.policy):
        final = us.rollout(env, last.policy, EPISODES, seed).returns
    difference = returned - final
    error = float(difference.std(ddof=1) / np.sqrt(EPISODES))
    harmed = bool(-difference.mean() > 0.02 * abs(expert) + 2 * error)
    made = provenance()
    versions = " ".join(f"{package}={version}" for package, version in made["versions"].items())
    numbers = (round(float(x), 3) for x in (returned.mean(), final.mean(), difference.mean(), error, expert))
    return [*about, *numbers, harmed, made["command"], versions, made["date"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/selection.csv"))
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    parser.add_argument("--study", type=Path, help="a finished study, in place of training")
    parser.add_argument("--last", type=Path, help="the policies of its last evaluation")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found: list[Row] = []
    parts = map(trained, options.learners) if options.study is None else [stored(options.study, options.last)]
    for part in parts:
        for row in part:
            found.append(row)
            write_csv(options.out, list(COLUMNS), found)
    for name in dict.fromkeys(row[1] for row in found):
        own = [row for row in found if row[1] == name]
        gains = [row[8] for row in own if row[5] != "last"]
        harmed = sum(row[11] for row in own)
        print(
            f"{name}: {len(gains)} of {len(own)} runs returned another policy than the last, better by "
            f"{np.mean(gains) if gains else 0:.1f} on average; {harmed} harmed"
        )


if __name__ == "__main__":
    main()
