"""Train every learner on the tasks of advice_envs.py: docs/results/advice-fresh.csv, one row for each policy.

The other number of demonstrations follows when all tasks have one, and the second seed when all have both.

python benchmarks/advice_training.py                 # all tasks; what is in the file is skipped
python benchmarks/advice_training.py Boulder Ledge   # only these
"""

import csv
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

import understudy as us
from advice_envs import HELD_BACK, TASKS
from understudy.collect.acting import uniform_actions
from understudy.collect.rollouts import rollout
from understudy.train.tables import provenance, write_csv

RESULTS = Path(__file__).parent.parent / "docs/results"
OUT = RESULTS / "advice-fresh.csv"
COUNTS = (3, 20)
SEEDS, EPISODES, KNOWN = 2, 50, 100
"""Policies per number of demonstrations, episodes of each, and episodes of the expert and of random actions."""
PRESET = "quick"
MIXTURE = {"loss": "likelihood", "components": 10, "weight_decay": 0.0}
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bc": ("bc", {}),
    "bc:likelihood": ("bc", {"loss": "likelihood"}),
    "bc:mixture": ("bc", MIXTURE),
    **{name: (name, {}) for name in ("advil", "dagger", "daequil", "aggrevate")},
    "sqil": ("sqil", {"rounds": 10}),
    "gail": ("gail", {"rounds": 8}),
    "adril": ("adril", {"rounds": 10, "features": 512}),
}
"""Label → algorithm and settings besides those of the preset. sqil, gail and adril act for 10,000 steps each."""
HEADER = [
    *("env", "has", "demonstrations", "learner", "algorithm", "preset", "settings", "seed", "mean_return", "episodes"),
    *("expert_return", "random_return", "command", "versions", "device", "date"),
]


def main() -> None:
    rows = [[row[name] for name in HEADER] for row in read(OUT)]
    chosen = sys.argv[1:] or list(TASKS)
    for seed in range(SEEDS):
        for turn in range(len(COUNTS)):
            for place, name in enumerate(chosen):
                env, count = {**TASKS, **HELD_BACK}[name](), COUNTS[(turn + place) % len(COUNTS)]
                stored = {
                    row[3] for row in rows if [row[0], *map(str, (row[2], row[7]))] == [name, str(count), str(seed)]
                }
                left = [label for label in LEARNERS if label not in stored and fits(label, env)]
                if left:
                    known = [float(one.mean()) for one in (expert_returns(env), random_returns(env))]
                    demos = demonstrations(env).first(count)
                for label in left:
                    rows.append(trained(env, demos, label, seed, known))
                    write_csv(OUT, HEADER, rows)
                    jax.clear_caches()  # type: ignore[no-untyped-call]  # so many programs exceed Linux's limit of memory maps (65,530)


def fits(label: str, env: us.Environment) -> bool:
    """Whether it is no variant that is for continuous actions alone."""
    return label == LEARNERS[label][0] or isinstance(env.spec.action, us.Continuous)


def trained(env: us.Environment, demos: us.Demonstrations, label: str, seed: int, known: list[float]) -> list[Any]:
    """The row of a policy."""
    name, settings = LEARNERS[label]
    learner = us.ALGORITHMS[name].preset(PRESET, **settings)
    has = has_of(label)
    expert = "scripted" if has == "expert" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = us.imitate(learner, demos, env, expert, seeds=[seed], progress=False)
        returns = result.evaluate(env, episodes=EPISODES, progress=False).returns[0]
    words = " ".join(f"{key}={value}" for key, value in settings.items())
    numbers = [seed, round(float(returns.mean()), 3), EPISODES, *(round(one, 3) for one in known)]
    row = [env.name, has, demos.episodes, label, name, PRESET, words, *numbers, *made()]
    print(*row[:9], flush=True)
    return row


def has_of(label: str) -> str:
    """What a person needs for a learner."""
    needs = us.ALGORITHMS[LEARNERS[label][0]].card.needs
    return "expert" if "expert" in needs else "environment" if "environment" in needs else "demonstrations"


def demonstrations(env: us.Environment) -> us.Demonstrations:
    return us.record(env, "scripted", max(COUNTS), seed=0, progress=False)


def expert_returns(env: us.Environment) -> np.ndarray:
    returns = us.record(env, "scripted", KNOWN, seed=1, progress=False).returns
    assert returns is not None
    return returns


def random_returns(env: us.Environment) -> np.ndarray:
    return rollout(env, uniform_actions(env.spec.action, np.random.default_rng(2)), KNOWN, 2).returns


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []


def made() -> list[Any]:
    """Command, versions, device and date."""
    facts = provenance()
    versions = " ".join(f"{package}={version}" for package, version in facts["versions"].items())
    return [f"python benchmarks/{facts['command']}", versions, facts["device"], facts["date"]]


if __name__ == "__main__":
    main()
