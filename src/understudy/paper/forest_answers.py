"""Forest with few answers: what a person who answers 100 questions can teach (`--parts answers`).

The scripted expert stands in for the person. Each learner gets the figure's ten demonstrations, which do not count as
answers, and the same budget. Two policies of each run are evaluated: the returned one, which DAeQuIL selects by its
payoff, and the one after the last round. Neither selection uses a return. All policies see (flag, x, y, heading).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from understudy.collect.rollouts import rollout
from understudy.core import display
from understudy.core.statistics import Sample, interval
from understudy.data import load
from understudy.envs.forest import Forest
from understudy.experts.expert import Expert
from understudy.paper.forest_trials import ANSWERS, DEMONSTRATIONS, EXPERT, fly
from understudy.paper.on_q_trials import COLUMNS, provenance_columns
from understudy.policies import Policy
from understudy.train.imitate import imitate
from understudy.train.tables import write_csv

EPISODES = 50
"""Fresh flights of each policy. A deterministic policy flies the same path in each."""
KINDS = ("returned", "last", "unseen")
"""The returned policy, the one after the last round, and the returned one in other forests."""
Scores = dict[str, list[np.ndarray]]
"""For each of `KINDS`, the distances of each trial's flights."""


def run_answers(forest: Forest, others: Forest, answers: int, seeds: Sequence[int], path: Path) -> None:
    """Train all learners, write the file after each, and show a table."""
    rows: list[list[Any]] = []
    shown: list[list[object]] = []
    made = provenance_columns()
    for name in (*ANSWERS, EXPERT):
        with display.progress_bar(name) as report:
            if name == EXPERT:
                scores, spent = _expert(forest, others, len(seeds))
            else:
                scores, spent = _learner(name, forest, others, answers, seeds, report)
        algorithm, _, preset = name.partition(", ")
        for kind, trials in scores.items():
            for seed, distances, count in zip(seeds, trials, spent, strict=True):
                numbers = [round(float(distances.mean()), 3), round(float(distances.std()), 3), int(count)]
                rows.append([forest.name, algorithm, preset, seed, kind, answers, *numbers, *made])
        write_csv(path, COLUMNS, rows)
        means = {kind: np.array([one.mean() for one in trials]) for kind, trials in scores.items()}
        lowest = f"{means['returned'].min():.0f}"
        shown.append([name, f"{spent.mean():.0f}", *(str(interval(Sample.of(means[kind]))) for kind in KINDS), lowest])
    headers = ("learner", ">answers", ">returned policy", ">last policy", ">in unseen forests", ">lowest returned")
    title = f"Forest, {DEMONSTRATIONS} demonstrations, at most {answers} answers: distance (m, mean and 95% interval)"
    display.show(headers, shown, title)


def _learner(
    name: str, forest: Forest, others: Forest, answers: int, seeds: Sequence[int], report: Any
) -> tuple[Scores, np.ndarray]:
    """A learner's distances, and the answers that each of its runs has used."""
    algorithm = ANSWERS[name](forest)
    last: list[Any] = []

    def visit(done: int, states: Any) -> None:
        last[:] = [jax.device_get(jax.vmap(algorithm.policy)(states()))]

    expert = Expert(forest.expert()).budget(answers)
    demonstrations = load(forest.name).first(DEMONSTRATIONS)
    result = imitate(algorithm, demonstrations, forest, expert, seeds=seeds, progress=report, visit=visit)
    if result.interrupted:
        raise KeyboardInterrupt("finished learners are saved")
    returned = [actor.policy for actor in result.policies]
    final = [jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), last[0]) for i in range(len(seeds))]
    scores = {
        "returned": [_fly_here(forest, policy, i) for i, policy in enumerate(returned)],
        "last": [_fly_here(forest, policy, i) for i, policy in enumerate(final)],
        "unseen": [np.asarray(fly(others, policy, 1, indexed=False)).ravel() for policy in returned],
    }
    return scores, np.nanmax(result.metrics["queries"], axis=1)


def _expert(forest: Forest, others: Forest, trials: int) -> tuple[Scores, np.ndarray]:
    here = [_fly_here(forest, forest.expert(), i, deterministic=False) for i in range(trials)]
    scores = {"returned": here, "last": here, "unseen": list(np.asarray(fly(others, None, trials, indexed=False)))}
    return scores, np.zeros(trials, int)


def _fly_here(forest: Forest, policy: Policy, trial: int, deterministic: bool = True) -> np.ndarray:
    return rollout(forest, policy, EPISODES, 1 + trial, deterministic).returns
