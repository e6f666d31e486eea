"""A task's result in sentences: the best row of its table, its distance from the expert, and the next ones.

Rows are ranked as the table shows them: an algorithm with several numbers of trajectories has several rows. A row
whose runs all diverged has no final policies, so it is not ranked above one that has.
"""

import math

from understudy.core.statistics import Sample, interval
from understudy.studies.report.comparisons import compare_means, ranked
from understudy.studies.report.formatting import number
from understudy.studies.report.learners import LearnerResults, TaskResults

LEVEL = 0.05
"""Two learners differ significantly if p is below this (Student's t, two-sided; see `comparisons`)."""


def summarize(task: TaskResults) -> str:
    """The task's result, for readers of nothing else."""
    order = ranked(task)
    if not order:
        return f"On {task.name}, no policy has been evaluated yet."
    best, *others = order
    parts = [f"On {task.name}, {_describe_best(best, len(order))}"]
    if best.diverged:
        parts.append(f"{best.diverged} of its {len(best.records)} seeds diverged: the mean is over the others.")
    final, last = best.curve.final_sample, best.curve.last
    if final is not None and last is not None and last.mean < interval(final).low:
        parts.append(f"Its last policies return only {number(last.mean)}, so selection by payoff mattered.")
    if others:
        parts.append(_describe_other(best, others[0], "is second"))
        rival = next((one for one in others if one.label != best.label), None)
        if rival is not None and rival is not others[0]:
            parts.append(_describe_other(best, rival, "is the best of the other algorithms"))
    return " ".join(parts)


def _describe_best(best: LearnerResults, competitors: int) -> str:
    sample, bounds = _score(best), interval(_score(best))
    certainty = (
        f"95% interval of the mean {number(bounds.low)} to {number(bounds.high)}, Student's t over {sample.size} seeds"
        if math.isfinite(bounds.low)
        else "one seed, so no interval"
    )
    subject = "its final policies return" if best.curve.final_sample is not None else "its last evaluations return"
    returned = f"{subject} {number(sample.mean)} ({certainty})"
    if best.expert is None or best.gap is None:
        verdict = "has the highest return" if competitors > 1 else "was evaluated"
        return f"{best.name_in_sentence} {verdict}: {returned}. The expert's return is not known."
    expert = f"the expert returns {number(best.expert)}"
    if best.gap.mean <= 0:
        verdict = "has the highest return and reaches the expert" if competitors > 1 else "reaches the expert"
    elif best.gap.low <= 0:
        verdict = "comes closest to the expert" if competitors > 1 else "comes close to the expert"
        verdict += ", without a significant difference"
    else:
        verdict = "comes closest to the expert" if competitors > 1 else "does not reach the expert"
        verdict += f", with a gap of {number(best.gap.mean)}"
    return f"{best.name_in_sentence} {verdict}: {returned}, {expert}."


def _describe_other(best: LearnerResults, other: LearnerResults, rank: str) -> str:
    score = _score(other)
    text = f"{other.name_in_sentence} {rank} with {number(score.mean)}"
    _, p, paired = compare_means(best, other)  # two-sided, because the data decided which one is the best
    how = ", paired by seed" if paired else ""
    if not math.isfinite(p):
        return f"{text}; single seeds cannot show whether they differ."
    if p < LEVEL:
        return f"{text}, a significant difference ({'p < 0.001' if p < 0.001 else f'p = {p:.3f}'}{how})."
    return f"{text}, not a significant difference (p = {p:.2f}{how})."


def _score(learner: LearnerResults) -> Sample:
    assert learner.score is not None
    return learner.score
