"""`make demo`: learn from bundled demonstrations, measure the gap to the expert, and draw the forest.

Two tasks that tell the story of the paper. On Pendulum the expert acts the same way in the same state, and behavioral
cloning closes the gap as demonstrations are added. On Forest the expert dodges left or right at random, and cloning its
mean action flies straight into a tree, however many demonstrations there are. Asking the expert does not help DAgger,
which matches the same mean; DAeQuIL, with moments that say what matters about a dodge, gets through.
"""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from understudy import data
from understudy.algorithms import bc, daequil, dagger
from understudy.collect.rollouts import Episodes, rollout
from understudy.core.progress import Progress
from understudy.core.statistics import Sample, interval
from understudy.core.storage import whole_directory, write_json
from understudy.envs import Forest, Pendulum
from understudy.evaluation import drawing as figures
from understudy.evaluation.returns import Score
from understudy.game import Algorithm
from understudy.paper.forest import DEMONSTRATIONS, clear_swerve
from understudy.train.imitate import imitate
from understudy.train.results import provenance, write_csv

EVALUATION_EPISODES = 200
SEEDS = 5


Rows = list[tuple[str, str, Sample, Score]]
Report = Callable[[str], AbstractContextManager[Progress]]


def demo(out: str | os.PathLike[str], progress: Report) -> Rows:
    """Run it and write `out`; rows of (task, algorithm, expert, score)."""
    out = Path(out)
    forest, pendulum = Forest(), Pendulum()
    cloning = bc(hidden=(64, 64), batch_size=128, lr=1e-3, rounds=20, gradient_steps=500)
    asking = (dagger.preset("forest"), daequil.preset("linear", moments=clear_swerve(forest)))
    runs: list[tuple[Algorithm, Forest | Pendulum, list[int]]] = [
        (cloning, pendulum, [2, 5, 10, 25]),
        (cloning, forest, [5, 25]),
        *((algorithm, forest, [DEMONSTRATIONS]) for algorithm in asking),
    ]
    rows: Rows = []
    flights: dict[str, list[Episodes]] = {}
    with whole_directory(out, replace=_is_demo(out)) as beside:
        for algorithm, env, counts in runs:
            name = algorithm.card.name
            with progress(f"{algorithm.card.title} on {env.name}") as report:
                result = imitate(
                    algorithm, data.load(env.name), env, env.expert(), seeds=SEEDS, episodes=counts, progress=report
                )
            if result.interrupted:
                raise KeyboardInterrupt
            expert = Sample.of(rollout(env, env.expert(), EVALUATION_EPISODES, 1, deterministic=False).returns)
            with progress(f"playing {env.name}") as report:
                evaluation = result.evaluate(env, EVALUATION_EPISODES, 1, expert, progress=report)
            rows += [(env.name, name, expert, score) for score in evaluation.scores()]
            result.save(beside / f"{env.name.lower()}-{name}")
            if env is forest:
                flights[name] = [rollout(forest, actor.policy, 1, seed=1) for actor in result.policies[-SEEDS:]]
        gaps = [score for task, _, _, score in rows if task == pendulum.name]
        _draw(forest, flights, gaps, beside / "demo.png")
        made = provenance()
        write_json(beside / "demo.json", {"made_by": "understudy demo", **made})
        write_csv(beside / "demo.csv", *_table(rows, made))
    return rows


def _draw(forest: Forest, flights: dict[str, list[Episodes]], gaps: list[Score], path: Path) -> None:
    picture, axes = figures.figure(2, rows=2)
    shown = rollout(forest, forest.expert(), 12, 1, deterministic=False)
    figures.draw_forest(axes[0], forest, [shown], figures.EXPERT, "The expert dodges at random")
    figures.draw_forest(axes[1], forest, flights["dagger"], figures.LEARNER, "DAgger matches its mean, and crashes")
    title = "DAeQuIL matches what matters"
    figures.draw_forest(axes[2], forest, flights["daequil"], figures.LINES[2], title)
    figures.draw_gaps(axes[3], gaps, "Pendulum: demonstrations close the gap")
    figures.save(picture, path)


def _table(rows: Rows, made: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """The demo's numbers as they are kept, with what made them."""
    header = ["task", "algorithm", "demonstrations", "seeds", "episodes"]
    header += [f"{what}_{which}" for what in ("expert", "learner", "gap") for which in ("mean", "low", "high")]
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    lines: list[list[object]] = []
    for task, algorithm, expert, score in rows:
        numbers = [*interval(expert), *score.learner, *(score.gap or ())]
        lines.append([task, algorithm, score.episodes, score.runs, expert.size, *(round(x, 2) for x in numbers)])
        lines[-1] += [made["command"], versions, made["device"], made["date"]]
    return [*header, "command", "versions", "device", "date"], lines


def _is_demo(path: Path) -> bool:
    """Whether an earlier demo wrote this directory, so that it may be replaced."""
    mark = path / "demo.json"
    return mark.is_file() and json.loads(mark.read_text(encoding="utf-8")).get("made_by") == "understudy demo"
