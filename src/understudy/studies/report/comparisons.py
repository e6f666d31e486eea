"""Comparisons of the best learner of a task with the others.

Intervals and tests of differences are Student's t, as everywhere in the report: over pairs if both learners have the
same seeds, else Welch's. The probability of improvement has a bootstrap interval (`evaluation.intervals`).
"""

import math
from typing import NamedTuple

import numpy as np

from understudy.core.statistics import Interval, Sample, difference, interval, p_different, p_not_zero
from understudy.evaluation import intervals
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
    """A learner compared with the best one. The last two fields are empty for the best learner itself."""

    name: str
    mean: str
    """Mean return of the final policies."""
    difference: str
    """How much higher the best learner's mean is."""
    improvement: str
    """Probability that a run of the best learner has a higher return than a run of this one."""
    paired: bool
    """Whether the difference is over pairs with the same seed."""


def compare(task: TaskResults) -> list[Comparison]:
    """Compare final policies, the best learner first. Empty if fewer than two learners have final policies."""
    learners = sorted((one for one in task.learners if one.curve.final), key=lambda one: -_finals(one).mean())
    if len(learners) < 2:
        return []
    best = learners[0]
    comparisons = [Comparison(best.name, number(_finals(best).mean()), "", "", False)]
    for learner in learners[1:]:
        found = compare_means(best, learner)
        improvement = intervals.probability_of_improvement(_finals(best), _finals(learner))
        higher = f"{number(found.interval.mean)} {bracket(found.interval)}".strip()
        comparisons.append(
            Comparison(learner.name, number(_finals(learner).mean()), higher, str(improvement), found.paired)
        )
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


def _finals(learner: LearnerResults) -> np.ndarray:
    return np.array(list(learner.curve.final.values()))
