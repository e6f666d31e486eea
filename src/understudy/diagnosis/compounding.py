"""Compounding: the action error on demonstrated states against that on the learner's own.

With an expert, the error on the learner's own states is the difference to the expert's answers there. Without one it
is the difference to the action of the nearest demonstrated state, and the same is done for unseen demonstrated
states, so that the two can be compared.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from understudy.core.statistics import Sample
from understudy.core.types import Continuous
from understudy.diagnosis.alike import evenly, spread
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.reference import Reference, actions, disagreement
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

THRESHOLD = 3.0
TIMES = 12


def measure(subject: Subject, reference: Reference | None) -> Measure:
    demos, fresh, actor = subject.training, subject.fresh, subject.actor
    if demos is None or fresh is None or actor is None:
        raise CannotMeasureError("needs demonstrations and fresh episodes of a policy in an environment")
    space = demos.action_space
    scale = demos.actions.reshape(demos.steps, -1).var(0) if isinstance(space, Continuous) else None
    rows = evenly(int(fresh.lengths.sum()), 2000)
    t, obs, act = (fresh.flat(np.asarray(x))[rows] for x in (fresh.steps.t, fresh.steps.obs, fresh.steps.act))
    unseen = None if reference is None else (reference.unseen or reference.training)
    if subject.expert is not None:
        expert, source = subject.expert.expert, "the expert's answers"
        wanted = expert.query(obs, subject.spec, np.random.default_rng(subject.seeds(7)[6]), t)
        shown = float("nan") if reference is None else reference.errors(actor)[1 if reference.unseen else 0]
    else:
        source = "the nearest demonstrated states"
        unit = spread(demos.observations.astype(np.float64))
        base = evenly(demos.steps, 20000)
        tree = cKDTree(demos.observations[base] / unit)
        wanted = demos.actions[base][tree.query(obs / unit)[1]]
        shown = float("nan")
        if unseen is not None:
            near = demos.actions[base][tree.query(unseen.obs / unit, 2)[1][:, 1]]
            shown = disagreement(actions(actor, unseen.t, unseen.obs), near, space, scale)
    own = disagreement(act, wanted, space, scale)
    ratio = (own + 0.01) / (shown + 0.01)
    edges = np.linspace(0, t.max() + 1, min(TIMES, int(t.max()) + 1) + 1)
    curve = {}
    for low, high in pairwise(edges):
        inside = (t >= low) & (t < high)
        if inside.sum() > 2:
            if isinstance(space, Continuous):
                each = np.square(act[inside] - wanted[inside]).sum(1) / max(float(demos.actions.var(0).sum()), 1e-9)
            else:
                each = (act[inside] != wanted[inside]).reshape(int(inside.sum()), -1).any(1).astype(float)
            curve[float((low + high) / 2)] = Sample.of(each)
    numbers: dict[str, Any] = {"own": own, "demonstrated": shown, "with_expert": subject.expert is not None}
    chart = None
    if len(curve) > 1:
        chart = Chart(
            "Action error on the learner's own states",
            "time step",
            [Series("own states", 0, curve)],
            y_title="Error, in variances of the actions",
            over="steps",
        )
    return Measure(
        "compounding",
        "Do errors compound?",
        float(ratio),
        "times the error on demonstrated states",
        THRESHOLD,
        "If states stay the same, errors do too; three leaves room for the variance of a few episodes.",
        True,
        f"the action error is {own:.3f} on the learner's own states and {shown:.3f} on demonstrated "
        f"ones (against {source})",
        numbers,
        chart,
    )
