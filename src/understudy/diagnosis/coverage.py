"""Coverage: where along the episode the learner's states leave the demonstrated ones.

At each of some times, every episode contributes one state (its last one, and whether it still runs). The statistic is
the energy distance between the learner's and the demonstrated states, with a permutation test over episodes. The
first departure is the first time from which on the test rejects at two times in a row.
"""

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from understudy.core.statistics import Sample
from understudy.diagnosis.alike import evenly, spread
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

TIMES = 20
PERMUTATIONS = 200
LEVEL = 0.01


def measure(subject: Subject) -> Measure:
    demos, fresh = subject.demos, subject.fresh
    if demos is None or fresh is None:
        raise CannotMeasureError("needs demonstrations and fresh episodes of a policy in an environment")
    if demos.episodes < 2 or len(fresh.lengths) < 2:
        raise CannotMeasureError(
            "one episode is no sample: at least two demonstrations and two fresh episodes are needed"
        )
    longest = int(max(demos.lengths.max(), fresh.lengths.max()))
    times = evenly(longest, TIMES)
    starts = np.cumsum(demos.lengths) - demos.lengths
    keep = evenly(demos.episodes, 100)
    scale = spread(demos.observations.astype(np.float64))
    mean = demos.observations.mean(0)
    rng = np.random.default_rng(subject.seeds(6)[5])
    learned = np.asarray(fresh.steps.obs)
    p_values, statistics, shifts = [], [], []
    for time in times:
        ours = _at(learned[np.arange(len(fresh.lengths)), np.minimum(time, fresh.lengths - 1)], time < fresh.lengths)
        theirs = _at(
            demos.observations[starts[keep] + np.minimum(time, demos.lengths[keep] - 1)], time < demos.lengths[keep]
        )
        for side in (ours, theirs):
            side[:, :-1] = np.clip((side[:, :-1] - mean) / scale, -10, 10)
        statistic, p = energy_test(ours, theirs, rng)
        statistics.append(statistic)
        p_values.append(p)
        shifts.append(np.abs(ours[:, :-1].mean(0) - theirs[:, :-1].mean(0)))
    away = np.asarray(p_values) <= LEVEL
    twice = away & np.append(away[1:], away[-1])
    first = int(times[np.argmax(twice)]) if twice.any() else None
    carried = np.mean([s for s, out in zip(shifts, twice, strict=True) if out] or shifts, axis=0)
    columns = [int(i) for i in np.argsort(-carried)[:3] if carried[i] > 0.1]
    share = float(away.mean())
    numbers: dict[str, Any] = {
        "departure": first,
        "columns": columns,
        "p": [float(p) for p in p_values],
        "times": [int(t) for t in times],
        "at_start": float(p_values[0]),
        "shift": [float(x) for x in carried],
    }
    curve = {float(t): Sample(float(s), float("nan"), 1) for t, s in zip(times, statistics, strict=True)}
    sentence = "the learner's states stay with the demonstrated ones"
    if first is not None:
        named = ", ".join(map(str, columns)) or "none alone"
        sentence = f"states leave the demonstrated ones at step {first} of {longest} (observation columns: {named})"
    return Measure(
        "coverage",
        "Where do states leave the demonstrations?",
        share,
        f"of the times differ (permutation test at {LEVEL:.0%})",
        0.15,
        "Of 20 tests at 1%, chance rejects more than 3 less than once in 1,000 if they are independent.",
        True,
        sentence,
        numbers,
        Chart(
            "Distance between the learner's and the demonstrated states",
            "time step",
            [Series("energy distance", 0, curve)],
            y_title="Energy distance",
            over="episodes",
        ),
    )


def _at(obs: np.ndarray, running: np.ndarray) -> np.ndarray:
    return np.concatenate([obs.astype(np.float64), 3.0 * running[:, None]], axis=1)


def energy_test(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """The energy distance of two samples, and the p-value of a permutation test."""
    both = np.concatenate([x, y])
    apart = cdist(both, both)
    n, m = len(x), len(y)

    def statistic(signs: np.ndarray) -> np.ndarray:
        """`signs` has 1/n for one sample and −1/m for the other: −wᵀDw is the energy distance."""
        return -np.einsum("...i,ij,...j->...", signs, apart, signs)

    base = np.concatenate([np.full(n, 1 / n), np.full(m, -1 / m)])
    shuffled = rng.permuted(np.tile(base, (PERMUTATIONS, 1)), axis=1)
    own, other = float(statistic(base)), statistic(shuffled)
    return max(own, 0.0), float((1 + (other >= own - 1e-12).sum()) / (1 + PERMUTATIONS))
