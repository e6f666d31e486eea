"""Comparisons of the learners of a task with 95% bootstrap intervals (`evaluation.intervals`)."""

from typing import NamedTuple

import numpy as np

from understudy.evaluation import intervals
from understudy.studies.report.formatting import number
from understudy.studies.report.learners import LearnerResults, TaskResults


class Comparison(NamedTuple):
    """A learner compared with the best one. The last three fields are empty for the best learner itself."""

    name: str
    iqm: str
    """Interquartile mean of the final policies' returns."""
    difference: str
    """How much higher the best learner's mean is."""
    improvement: str
    """Probability that a run of the best learner has a higher return than a run of this one."""
    paired: bool
    """Whether the difference is over pairs with the same seed."""


def compare(task: TaskResults) -> list[Comparison]:
    """Compare final policies, the best learner first. Empty if fewer than two learners have final policies."""
    learners = sorted((one for one in task.learners if one.curve.final), key=lambda one: -_scores(one).mean())
    if len(learners) < 2:
        return []
    best = learners[0]
    comparisons = [Comparison(best.name, format_estimate(intervals.iqm(_scores(best))), "", "", False)]
    for learner in learners[1:]:
        paired = list(best.curve.final) == list(learner.curve.final)
        difference = intervals.difference(_scores(best), _scores(learner), paired=paired)
        improvement = intervals.probability_of_improvement(_scores(best), _scores(learner))
        iqm, gain = format_estimate(intervals.iqm(_scores(learner))), format_estimate(difference)
        comparisons.append(Comparison(learner.name, iqm, gain, str(improvement), paired))
    return comparisons


def format_estimate(estimate: intervals.Estimate) -> str:
    """Value and interval, such as 2,154 [2,100, 2,190]."""
    if estimate.interval is None:
        return number(estimate.value)
    low, high = (number(end, estimate.value) for end in estimate.interval)
    return f"{number(estimate.value)} [{low}, {high}]"


def _scores(learner: LearnerResults) -> np.ndarray:
    return np.array(list(learner.curve.final.values()))
