"""Is the returned policy worse than the last one? Both play the same 100 fresh episodes, on tasks in JAX.

    python benchmarks/selection.py --out docs/results/selection.csv

AdRIL, GAIL with SAC, and SQIL on Pendulum, with 1, 5 and 25 demonstrations and five seeds each: 45 runs, of which some
collapse late. A run counts as harmed if its returned policy is below its last one by more than 2% of the expert's
return plus two standard errors of the difference.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
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


def rows(name: str) -> Iterator[list[Any]]:
    """A row for each run of an algorithm."""
    demonstrations = us.load(TASK)
    expert = demonstrations.expert_return
    assert expert is not None
    result = us.imitate(LEARNERS[name], demonstrations, env=TASK, seeds=SEEDS, episodes=COUNTS, keep=3)
    about = provenance()
    versions = " ".join(f"{package}={version}" for package, version in about["versions"].items())
    last = {one.run: one.actor for one in result.candidates if one.name == "last"}
    for index, (run, actor) in enumerate(zip(result.runs, result.policies, strict=True)):
        returned, final = (
            us.rollout(TASK, policy.policy, EPISODES, START + index).returns for policy in (actor, last[run.name])
        )
        difference = returned - final
        error = float(difference.std(ddof=1) / np.sqrt(EPISODES))
        harmed = bool(-difference.mean() > 0.02 * abs(expert.mean) + 2 * error)
        yield [
            *(TASK, name, "quick, 12 rounds", run.seed, run.episodes, run.returned),
            *(round(float(x), 3) for x in (returned.mean(), final.mean(), difference.mean(), error, expert.mean)),
            *(harmed, about["command"], versions, about["date"]),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/selection.csv"))
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found: list[list[Any]] = []
    for name in options.learners:
        found += rows(name)
        write_csv(options.out, list(COLUMNS), found)  # after each algorithm
        own = [row for row in found if row[1] == name]
        gains = [row[8] for row in own if row[5] != "last"]
        harmed = sum(row[11] for row in own)
        print(
            f"{name}: {len(gains)} of {len(own)} runs returned another policy than the last, better by "
            f"{np.mean(gains) if gains else 0:.1f} on average; {harmed} harmed"
        )


if __name__ == "__main__":
    main()
