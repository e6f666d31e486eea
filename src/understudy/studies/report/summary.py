"""What a study found, in sentences: who is nearest to the expert on a task, how sure that is, and who comes next."""

import math

from understudy.core.statistics import Sample, apart, interval
from understudy.studies.report.lines import Line, Task, number

LEVEL = 0.05
"""Below this chance (Welch's t, two-sided), two algorithms are told apart."""


def sentence(task: Task) -> str:
    """The task's result for somebody who reads nothing else."""
    ranked = sorted((line for line in task.lines if line.best_known is not None), key=lambda line: -_sample(line).mean)
    if not ranked:
        return f"On {task.name}, nothing has been played yet."
    best, others = ranked[0], [line for line in ranked if line.label != ranked[0].label]
    parts = [f"On {task.name}, {_verdict(best, 1 + len(others))}"]
    if best.handed is not None and best.last is not None and best.last.mean < interval(best.handed).low:
        parts.append(f"Its last policies return {number(best.last.mean)}: selecting by payoff mattered.")
    if others:
        parts.append(_next(best, others[0]))
    return " ".join(parts)


def _verdict(best: Line, rivals: int) -> str:
    sample, found = _sample(best), interval(_sample(best))
    sure = (
        f"95% interval {number(found.low)} to {number(found.high)} over {sample.size} seeds"
        if math.isfinite(found.low)
        else "one seed, which says nothing about others"
    )
    subject = "the policies it hands over return" if best.handed is not None else "its last evaluations return"
    returned = f"{subject} {number(sample.mean)} ({sure})"
    if best.expert is None or best.gap is None:
        place = "has the highest return" if rivals > 1 else "has been played"
        return f"{best.spoken} {place}: {returned}. The expert's return is not known."
    expert = f"where the expert returns {number(best.expert)}"
    if best.gap.mean <= 0:
        return f"{best.spoken} does as well as the expert: {returned} {expert}."
    near = "comes nearest to the expert" if rivals > 1 else "is near the expert"
    if best.gap.low <= 0:
        return f"{best.spoken} {near} and cannot be told from it: {returned} {expert}."
    near = near if rivals > 1 else "falls short of the expert"
    short = f"{number(best.gap.mean)} short" if rivals > 1 else f"a gap of {number(best.gap.mean)}"
    return f"{best.spoken} {near}, {short}: {returned} {expert}."


def _next(best: Line, second: Line) -> str:
    ours, theirs = _sample(best), _sample(second)
    behind = f"{second.spoken} follows with {number(theirs.mean)}"
    chance = apart([ours], [theirs])  # either way: which is the best was seen first
    if not math.isfinite(chance):
        return f"{behind}; from single seeds the two cannot be told apart."
    if chance < LEVEL:
        told = "p < 0.001" if chance < 0.001 else f"p = {chance:.3f}"
        return f"{behind}, a difference that chance does not explain ({told})."
    return f"{behind}, a difference that may be chance (p = {chance:.2f})."


def _sample(line: Line) -> Sample:
    assert line.best_known is not None
    return line.best_known
