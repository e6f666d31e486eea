"""Lines of a task against each other, by stratified bootstrap (`evaluation.intervals`): what a reviewer asks for."""

from typing import NamedTuple

import numpy as np

from understudy.evaluation import intervals
from understudy.studies.report.lines import Line, Task, number


class Comparison(NamedTuple):
    """A line's interquartile mean, and the best line beside it."""

    name: str
    iqm: str
    difference: str
    """How much higher the best line's mean is; empty for itself."""
    improvement: str
    """How often a run of the best line returns more than one of this."""
    paired: bool
    """Whether the difference is over pairs of the same seed."""


def compare(task: Task) -> list[Comparison]:
    """Of the policies handed over, the best line first. Empty where fewer than two lines have any."""
    lines = sorted((line for line in task.lines if line.handed_seeds), key=lambda line: -_scores(line).mean())
    if len(lines) < 2:
        return []
    best = lines[0]
    made = [Comparison(best.name, shown(intervals.iqm(_scores(best))), "", "", False)]
    for line in lines[1:]:
        paired = list(best.handed_seeds) == list(line.handed_seeds)
        difference = intervals.difference(_scores(best), _scores(line), paired=paired)
        improvement = intervals.probability_of_improvement(_scores(best), _scores(line))
        iqm = intervals.iqm(_scores(line))
        made.append(Comparison(line.name, shown(iqm), shown(difference), str(improvement), paired))
    return made


def shown(estimate: intervals.Estimate) -> str:
    if estimate.interval is None:
        return number(estimate.value)
    low, high = (number(end, estimate.value) for end in estimate.interval)
    return f"{number(estimate.value)} [{low}, {high}]"


def _scores(line: Line) -> np.ndarray:
    return np.array(list(line.handed_seeds.values()))
