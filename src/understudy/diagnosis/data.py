"""Data: how the error on unseen steps falls with the number of demonstrations, and how many more would do.

The errors of clones of n/4, n/2 and n demonstrations are fitted by e = c n^(−a). Its uncertainty comes from the same
fit on halves of the unseen steps.
"""

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from understudy.core.statistics import Sample
from understudy.core.types import Continuous
from understudy.diagnosis.alike import spread
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.reference import Reference, Steps, disagreement, error
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

ENOUGH = 0.05
PARTS = 8


def measure(subject: Subject, reference: Reference | None) -> Measure:
    if reference is None:
        raise CannotMeasureError("no reference clone")
    if reference.unseen is None:
        return _left_out(subject, reference)
    unseen, space = reference.unseen, reference.space
    parts = np.array_split(np.arange(len(unseen.t)), min(PARTS, len(unseen.t)))
    table = np.array(
        [
            [error(actor, Steps(unseen.t[rows], unseen.obs[rows], unseen.act[rows]), space) for rows in parts]
            for actor in reference.actors
        ]
    )
    errors = np.array([error(actor, unseen, space) for actor in reference.actors])
    rate, needed = _fit(reference.counts, errors)
    rng = np.random.default_rng(subject.seed)
    draws = []
    for _ in range(50):
        chosen = rng.integers(len(parts), size=len(parts))
        draws.append(_fit(reference.counts, table[:, chosen].mean(1)))
    bounds = [float(x) for x in np.quantile([min(one[1], 1e12) for one in draws], [0.1, 0.9])]
    numbers: dict[str, Any] = {
        "counts": reference.counts,
        "errors": [float(x) for x in errors],
        "training_error": error(reference.actors[-1], reference.training, space),
        "rate": rate,
        "needed": needed,
        "needed_interval": bounds,
        "unseen_from": reference.unseen_from,
    }
    now, count = float(errors[-1]), reference.counts[-1]
    points = {float(n): Sample.of(row) for n, row in zip(reference.counts, table, strict=True)}
    level = dict.fromkeys(points, Sample(ENOUGH, float("nan"), 1))
    more = f"about {needed:,.0f} demonstrations ({bounds[0]:,.0f} to {bounds[1]:,.0f}) would reach {ENOUGH:.0%}"
    if needed > 1e6:
        more = "more demonstrations would not reach it at this rate"
    chart = None
    if len(points) > 1:
        chart = Chart(
            "Error of a clone against the number of demonstrations",
            "demonstrations",
            [Series("unseen steps", 0, points), Series("threshold", 5, level, flat=True)],
            y_title="Error, in variances of the actions",
            over="parts of the steps",
        )
    return _measure(
        now,
        f"a clone of {count} demonstrations misses {now:.1%} on {reference.unseen_from}, "
        f"{numbers['training_error']:.1%} in training; {'it is enough' if now < ENOUGH else more}",
        numbers,
        chart,
    )


def _left_out(subject: Subject, reference: Reference) -> Measure:
    """Two or three demonstrations: each is predicted from the others, by their nearest steps or by a line."""
    demos = subject.training
    if demos is None or demos.episodes < 2:
        raise CannotMeasureError("no unseen steps: two demonstrations, or an expert and an environment, are needed")
    seen = demos.observations.astype(np.float64)
    x = np.concatenate([seen / spread(seen), np.ones((len(seen), 1))], axis=1)
    episode = np.repeat(np.arange(demos.episodes), demos.lengths)
    act, space = demos.actions, demos.action_space
    nearest, linear = act.copy(), act.copy()
    for e in range(demos.episodes):
        own, others = episode == e, episode != e
        nearest[own] = act[others][cKDTree(x[others]).query(x[own])[1]]
        if isinstance(space, Continuous):
            gram = x[others].T @ x[others] + 1e-3 * np.eye(x.shape[1])
            linear[own] = x[own] @ np.linalg.solve(gram, x[others].T @ act[others])
    found = [disagreement(nearest, act, space)]
    if isinstance(space, Continuous):
        found.append(disagreement(linear, act, space))
    now = float(min(found))
    numbers: dict[str, Any] = {
        "counts": [demos.episodes],
        "errors": [now],
        "training_error": error(reference.actors[-1], reference.training, space),
        "rate": float("nan"),
        "needed": float("inf"),
        "unseen_from": "each episode, from the others",
    }
    sentence = f"a simple prediction of each of {demos.episodes} demonstrations from the others misses {now:.1%}"
    return _measure(now, sentence, numbers, None)


def _measure(value: float, sentence: str, numbers: dict[str, Any], chart: Chart | None) -> Measure:
    return Measure(
        "data",
        "Are there enough demonstrations?",
        value,
        "of the actions' variance is missed by a small clone on unseen steps",
        ENOUGH,
        "A clone that explains 95% of the expert's actions is about as good as the expert on the bundled tasks.",
        True,
        sentence,
        numbers,
        chart,
    )


def _fit(counts: list[int], errors: np.ndarray) -> tuple[float, float]:
    """The rate a of e = c n^(−a), and the n at which e is ENOUGH."""
    if len(counts) < 2:
        return float("nan"), float("inf")
    x, y = np.log(np.asarray(counts, float)), np.log(np.maximum(errors, 1e-6))
    slope, level = np.polyfit(x, y, 1)
    rate = -float(slope)
    if rate < 0.05:
        return rate, float("inf") if errors[-1] > ENOUGH else float(counts[-1])
    return rate, float(np.exp(min((level - np.log(ENOUGH)) / rate, 50.0)))
