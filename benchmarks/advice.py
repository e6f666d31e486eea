"""`understudy advise` against fixed choices: docs/results/advice.csv, one row for each situation.

python benchmarks/advice.py fitted others v5 fresh later     # any of them; the other rows of the file stay

A situation is a task, what a person has (demonstrations; an environment too; an expert too) and a number of
demonstrations. A choice is right if its return is *close* to the best one of the learners that can run there: at most
5% of |best| below it; for `fresh` and `later`, of the expert's return less that of random actions. Two fixed choices
are made in hindsight, for each split:

    one     one learner for every situation; where it cannot run or did not, it is not close
    fixed   one learner for each of the three things that a person has

    split    tasks, returns from
    fitted   HalfCheetah, Pendulum and CartPole: the rules were made on them. off-q-*.csv, reward-*.csv, quick.csv
    others   Ant, LunarLander and Forest: known when the rules were made. The same files, lander.csv
    v5       four MuJoCo v5 tasks: benchmark-*.csv, stored after the rules; the last evaluation of unfinished runs
    fresh    the tasks of advice_envs.py: advice-fresh.csv
    later    those that were held back there
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from advice_envs import HELD_BACK, TASKS
from advice_training import LEARNERS, RESULTS, demonstrations, fits, made, read
from understudy.diagnosis.advice import choose
from understudy.paper.benchmark import benchmark_tasks, recorded
from understudy.train.tables import write_csv

OUT = RESULTS / "advice.csv"
RULES = "2026-11-19"
"""The version of the rules, for the rows of the file: change it with them."""
DEMONSTRATIONS = Path("out/advice")
"""Where the demonstrations of the split v5 are recorded."""
FITTED = ("HalfCheetahBulletEnv-v0", "Pendulum", "CartPole-v1")
OTHERS = ("AntBulletEnv-v0", "LunarLander-v3", "Forest")
CLOSE = 0.05
LEAST_SEEDS = 3
HEADER = [
    *("rules", "split", "env", "has", "demonstrations", "advised", "best", "advised_close"),
    *("fixed", "fixed_close", "one", "one_close", "returns", "facts", "command", "versions", "device", "date"),
]


@dataclass
class Situation:
    """The returns of the learners that can run, and what is advised."""

    split: str
    env: str
    has: str
    demonstrations: int
    returns: dict[str, float]
    unit: float | None = None
    """Of the 5%. None: the size of the best return."""
    note: str = ""
    advised: str = ""
    facts: str = ""

    @property
    def best(self) -> str:
        return max(self.returns, key=lambda name: self.returns[name])

    def close(self, name: str) -> bool:
        best = self.returns[self.best]
        unit = abs(best) if self.unit is None else self.unit
        return name in self.returns and self.returns[name] >= best - CLOSE * unit

    @property
    def where(self) -> tuple[str, str, str, str]:
        return self.split, self.env, self.has, str(self.demonstrations)


def main() -> None:
    parts = {"fitted": fitted, "others": others, "v5": v5, "fresh": fresh, "later": later}
    for split in sys.argv[1:] or parts:
        found = []
        for situation in parts[split]():
            found.append(situation)
            print(*situation.where, situation.advised, situation.best, situation.close(situation.advised), flush=True)
        rows = compared(found)
        kept = [[row[name] for name in HEADER] for row in read(OUT) if (row["rules"], row["split"]) != (RULES, split)]
        write_csv(OUT, HEADER, kept + rows)
        counts = [sum(row[index] is True for row in rows) for index in (7, 9, 11)]
        print(f"{split}: advised {counts[0]}, fixed {counts[1]}, one {counts[2]}, of {len(rows)}", flush=True)


def compared(situations: list[Situation]) -> list[list[Any]]:
    """The rows of a split, with the fixed choices that are best in hindsight (the first by name of equal ones)."""
    one = fixed_choice(situations)
    fixed = {
        has: fixed_choice([other for other in situations if other.has == has])
        for has in {situation.has for situation in situations}
    }
    rows = []
    for found in situations:
        choice = fixed[found.has]
        shown = " ".join(f"{name}={value:.5g}" for name, value in sorted(found.returns.items()))
        judged = [found.advised, found.best, found.close(found.advised)]
        judged += [choice, found.close(choice), one, found.close(one)]
        rows.append([RULES, *found.where, *judged, shown, found.facts, *made()])
    return rows


def fixed_choice(situations: list[Situation]) -> str:
    names = sorted({name for situation in situations for name in situation.returns})
    return max(names, key=lambda name: sum(situation.close(name) for situation in situations))


def advise(situation: Situation, demos: us.Demonstrations, env: Any, expert: Any) -> Situation:
    """Ask for advice. Where a simulator is not installed, a person's environment and expert are only assumed."""
    has = situation.has
    env, expert = None if has == "demonstrations" else env, expert if has == "expert" else None
    found = us.advise(demos, env, expert)
    facts, note = found.facts, "measured"
    if (facts.environment, facts.expert) != (has != "demonstrations", has == "expert"):
        facts = replace(us.advise(demos).facts, environment=has != "demonstrations", expert=has == "expert")
        note = "environment assumed"
        if has == "expert":
            facts, note = replace(facts, h=1.0), "H assumed to be 1"
        found = replace(found, algorithm=choose(facts)[0], command="")
    situation.advised = label(found)
    numbers = f"ambiguous={facts.ambiguous} clone_error={facts.clone_error:.3f} H={facts.h:.1f} T={facts.horizon}"
    situation.facts = "; ".join(part for part in (note, situation.note, numbers) if part)
    return situation


def label(found: Any) -> str:
    """The learner's name in the files of returns."""
    variants = {"--loss likelihood": "bc:likelihood", "--preset mixture": "bc:mixture"}
    return next((name for words, name in variants.items() if words in found.command), found.algorithm)


def fitted() -> Iterator[Situation]:
    yield from stored("fitted", FITTED)


def others() -> Iterator[Situation]:
    yield from stored("others", OTHERS)


def stored(split: str, tasks: tuple[str, ...]) -> Iterator[Situation]:
    for task in tasks:
        expert = "scripted" if task in ("Pendulum", "Forest") else "bundled"
        for has, count, returns in stored_returns(task):
            demos = us.load(task)
            situation = Situation(split, task, has, count, returns)
            yield advise(situation, demos.first(min(count, demos.episodes)), task, expert)


def stored_returns(task: str) -> list[tuple[str, int, dict[str, float]]]:
    """(what a person has, demonstrations, algorithm → mean return)."""
    short = {"AntBulletEnv-v0": "ant", "HalfCheetahBulletEnv-v0": "halfcheetah"}.get(task)
    if short is not None:
        table: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in read(RESULTS / f"off-q-{short}.csv"):
            if row["preset"] == "default":
                table[int(row["x"])][row["algorithm"]].append(float(row["mean_return"]))
        last: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in read(RESULTS / f"reward-{short}.csv"):
            if row["x"] == "500000":
                last[row["algorithm"]][f"{row['preset']} {row['trajectories']}"].append(float(row["mean_return"]))
        best = {name: max(means(presets).values()) for name, presets in last.items()}
        alone = [("demonstrations", count, means(table[count])) for count in sorted(table)]
        return [*alone, ("environment", 20, {**means(table[20]), **best})]
    if task == "LunarLander-v3":
        final: dict[str, list[float]] = defaultdict(list)
        for row in read(RESULTS / "lander.csv"):
            if row["x"] == "10":
                final[row["algorithm"]].append(float(row["mean_return"]))
        return [("expert", 10, means(final))]
    quick = {row["algorithm"]: float(row["return"]) for row in read(RESULTS / "quick.csv") if row["env"] == task}
    groups = {has: runnable(quick, has) for has in ("demonstrations", "environment", "expert")}
    return [(has, 25, returns) for has, returns in groups.items() if len(returns) > 1]


def v5() -> Iterator[Situation]:
    for name, task in benchmark_tasks().items():
        path = RESULTS / f"benchmark-{task.env}.csv"
        if not path.exists():
            continue
        demos = us.load(recorded(DEMONSTRATIONS, name, task, None, 1))
        for count in (1, 5, 25):
            returns, unfinished = v5_returns(read(path), count)
            note = " ".join(f"{learner} after {x:,.0f} steps" for learner, x in unfinished.items())
            for has in ("demonstrations", "environment"):
                said = note if has == "environment" else ""
                situation = Situation("v5", task.env, has, count, runnable(returns, has), note=said)
                yield advise(situation, demos.first(count), task.named_env, None)


def v5_returns(rows: list[dict[str, str]], count: int) -> tuple[dict[str, float], dict[str, float]]:
    """Learner → mean return, with the default preset; and the steps of the last evaluation of unfinished runs."""
    runs: dict[str, dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["preset"] == "default" and row["settings"] == "{}" and int(row["trajectories"]) == count:
            runs[row["algorithm"]][row["seed"]].append(row)
    returns, unfinished = {}, {}
    for name, seeds in runs.items():
        if len(seeds) < LEAST_SEEDS:
            continue
        last = [max(one, key=lambda row: (row["x_kind"] == "returned", float(row["x"]))) for one in seeds.values()]
        returns[name] = float(np.mean([float(row["mean_return"]) for row in last]))
        if any(row["x_kind"] != "returned" for row in last):
            unfinished[name] = min(float(row["x"]) for row in last)
    return returns, unfinished


def fresh() -> Iterator[Situation]:
    yield from trained("fresh", TASKS)


def later() -> Iterator[Situation]:
    yield from trained("later", HELD_BACK)


def trained(split: str, tasks: dict[str, type[us.Environment]]) -> Iterator[Situation]:
    rows = read(RESULTS / "advice-fresh.csv")
    for task, kind in tasks.items():
        own = [row for row in rows if row["env"] == task]
        demos = demonstrations(kind())
        for count in sorted({int(row["demonstrations"]) for row in own}):
            runs: dict[str, list[float]] = defaultdict(list)
            for row in own:
                if int(row["demonstrations"]) == count:
                    runs[row["learner"]].append(float(row["mean_return"]))
            if set(runs) != {name for name in LEARNERS if fits(name, kind())}:
                continue  # not all have finished
            unit = float(own[0]["expert_return"]) - float(own[0]["random_return"])
            for has in ("demonstrations", "environment", "expert"):
                situation = Situation(split, task, has, count, runnable(means(runs), has), unit)
                yield advise(situation, demos.first(count), kind(), "scripted")


def runnable(returns: dict[str, float], has: str) -> dict[str, float]:
    """The learners that need no more than a person has."""
    kinds = ("demonstrations", "environment", "expert")
    allowed = set(kinds[: kinds.index(has) + 1])
    needs = {name: set(us.ALGORITHMS[name.partition(":")[0]].card.needs) for name in returns}
    return {name: value for name, value in returns.items() if needs[name] <= allowed}


def means(samples: dict[str, list[float]]) -> dict[str, float]:
    return {name: float(np.mean(values)) for name, values in samples.items()}


if __name__ == "__main__":
    main()
