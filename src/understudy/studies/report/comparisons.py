"""Comparisons of the best learner of a task with the others.

Intervals and tests of differences are Student's t, as everywhere in the report: over pairs if both learners have the
same seeds, else Welch's. A bootstrap of few seeds is narrower by a factor, so it is not shown next to them.
"""

import math
from typing import NamedTuple

import numpy as np

from understudy.core.statistics import Interval, Sample, difference, interval, p_different, p_not_zero
from understudy.studies.report.formatting import bracket, number
from understudy.studies.report.learners import LearnerResults, TaskResults


class Difference(NamedTuple):
    """By how much the mean of one learner is higher than that of another."""

    interval: Interval
    p: float
    """The p-value of "the means differ", two-sided; NaN for single seeds."""
    paired: bool
    """Whether it is over pairs with the same seed."""


class Comparison(NamedTuple):
    """A learner compared with the best one. The last three fields are empty for the best learner itself."""

    name: str
    mean: str
    """Mean return of the final policies."""
    difference: str
    """How much higher the best learner's mean is."""
    wins: str
    """Pairs of a run of the best learner and a run of this one in which the best learner's returns more."""
    paired: bool
    """Whether the difference is over pairs with the same seed."""


def ranked(task: TaskResults) -> list[LearnerResults]:
    """The learners from the highest mean return to the lowest. Learners without final policies come last."""
    scored = [(one, one.score) for one in task.learners]
    known = [(one, score.mean) for one, score in scored if score is not None]
    return [one for one, _ in sorted(known, key=lambda pair: (not pair[0].curve.final, -pair[1]))]


def compare(task: TaskResults) -> list[Comparison]:
    """Compare final policies, the best learner first. Empty if fewer than two learners have final policies."""
    learners = [one for one in ranked(task) if one.curve.final]
    if len(learners) < 2:
        return []
    best = learners[0]
    comparisons = [Comparison(best.name, number(_finals(best).mean()), "", "", False)]
    for learner in learners[1:]:
        found = compare_means(best, learner)
        higher = f"{number(found.interval.mean)} {bracket(found.interval)}".strip()
        wins = _wins(_finals(best), _finals(learner))
        comparisons.append(Comparison(learner.name, number(_finals(learner).mean()), higher, wins, found.paired))
    return comparisons


def compare_means(best: LearnerResults, other: LearnerResults) -> Difference:
    """The difference of the final policies' mean returns; of the last evaluations if there are no final policies."""
    if best.curve.final and list(best.curve.final) == list(other.curve.final):
        sample = Sample.of(_finals(best) - _finals(other))
        return Difference(interval(sample), p_not_zero(sample), paired=True)
    ours, theirs = best.score, other.score
    if ours is None or theirs is None:
        return Difference(Interval(*3 * [math.nan]), math.nan, paired=False)
    return Difference(difference(ours, theirs), p_different([ours], [theirs]), paired=False)


def _wins(best: np.ndarray, other: np.ndarray) -> str:
    """How many of all pairs of runs the first side wins; ties count half."""
    won = float((best[:, None] > other).sum() + 0.5 * (best[:, None] == other).sum())
    return f"{won:g} of {best.size * other.size}"


def _finals(learner: LearnerResults) -> np.ndarray:
    return np.array(list(learner.curve.final.values()))
