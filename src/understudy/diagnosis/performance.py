"""Performance: how much of the expert's return a policy reaches, on a scale from no skill to the expert.

No skill is random actions, or the demonstrations' mean action in every step where that returns more.
"""

from typing import Any

import numpy as np

from understudy.core.statistics import Sample, imitation_gap
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

ENOUGH = 0.9


def measure(subject: Subject) -> Measure:
    fresh, demos = subject.fresh, subject.demos
    if fresh is None:
        raise CannotMeasureError("needs fresh episodes of a policy in an environment")
    expert = None if subject.theirs is None else Sample.of(subject.theirs.returns)
    if expert is None and demos is not None:
        expert = demos.expert_return
    if expert is None and subject.result is not None:
        expert = subject.result.expert
    if expert is None:
        raise CannotMeasureError("the expert's return is not known: no rewards in the demonstrations, and no expert")
    own = Sample.of(fresh.returns)
    low = expert.mean - max(abs(expert.mean), 1.0)
    if subject.baseline is not None:
        low = subject.baseline.mean
    scale = expert.mean - low
    gap = imitation_gap(expert, own)
    share = (own.mean - low) / scale if scale > 1e-9 else float(own.mean >= expert.mean)
    significant = bool(gap.low > 0) if np.isfinite(gap.low) else share < ENOUGH
    numbers: dict[str, Any] = {
        "learner": own.mean,
        "expert": expert.mean,
        "random": low,
        "gap": list(gap),
        "significant": significant,
    }
    bars = {0.0: Sample(low, float("nan"), 1), 1.0: own, 2.0: expert}
    chart = Chart(
        "Return of fresh episodes",
        "policy",
        [Series("return", 0, bars, bars=True, joined=False)],
        expert.mean,
        ["no skill", "learner", "expert"],
        over="episodes",
    )
    return Measure(
        "performance",
        "Is the policy as good as the expert?",
        float(share),
        "of the expert's return (0: random or constant actions, 1: the expert)",
        ENOUGH,
        "Ten episodes cannot tell a difference of 10% from chance on the bundled tasks.",
        False,
        f"the learner returns {own.mean:.1f}, the expert {expert.mean:.1f}, random or constant actions {low:.1f}; "
        f"gap {gap}",
        numbers,
        chart,
    )
