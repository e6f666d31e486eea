"""Recording: whether demonstrations and environment mean the same by an observation, an action and a step.

A model of the environment (`environment_model`) predicts the demonstrated steps as they are, and under other readings
of them (`readings`). With an expert to query, its answers at the demonstrated states are compared with the recorded
actions in the same way, without a model (`answers`).
"""

from typing import Any

import numpy as np

from understudy.core.statistics import Sample
from understudy.core.types import Continuous
from understudy.data import Demonstrations
from understudy.diagnosis import answers, readings
from understudy.diagnosis.alike import evenly, spread, vectors
from understudy.diagnosis.environment_model import Model, Recorded, part_of
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

MOST = 1500
LEAST = 10
"""Steps with a next observation that are needed."""
THRESHOLD = 2.0
NOISE = 0.002
"""An error that means nothing."""
FITS = 1.5
"""Data whose error is at most this many times the model's own, in each column, are not read in other ways."""


def measure(subject: Subject) -> Measure:
    demos = subject.training
    if demos is None or subject.env is None or subject.explored is None:
        raise CannotMeasureError("needs demonstrations and an environment")
    transitions = demos.transitions()
    inside = np.flatnonzero(transitions.known_next)
    if len(inside) < LEAST:
        raise CannotMeasureError("too few steps with a next observation")
    model = Model.fit(subject)
    rows = inside[evenly(len(inside), MOST)]
    obs, nexts = (np.asarray(x, np.float64)[rows] for x in (demos.observations, transitions.next_obs))
    act = vectors(demos.action_space, demos.actions)[rows]
    steps = Recorded.of(obs, act, nexts, part_of(demos.lengths)[rows])
    plain, floor = model.error(steps), max(model.floor, model.floor_of(steps))
    fits = bool((model.columns(steps) <= FITS * model.column_floor + NOISE)[steps.moving].all())
    best = {} if fits else readings.found(model, steps, subject.spec.action)
    numbers: dict[str, Any] = {
        "as_recorded": plain,
        "floor": floor,
        "worst_column": [float(x) for x in model.columns(steps)],
        "column_floor": [float(x) for x in model.column_floors(steps)],
        "start": _starts(subject, demos),
        "outside": _outside(subject, demos),
        "lengths": float(np.median(demos.lengths) / subject.spec.horizon),
        **{kind: best.get(kind, readings.NO_READING).to_json() for kind in ("scale", "rate", "columns")},
    }
    if subject.expert is not None:
        numbers["expert"] = answers.compared(subject, demos)
    named = [one for one in best.values() if one.name]
    names, values = ["as recorded", *(one.name for one in named)], [plain, *(one.error for one in named)]
    bars = {float(i): Sample(v, float("nan"), 1) for i, v in enumerate(values)}
    chart = Chart(
        "Error of the predicted demonstrated steps, under other readings of the data",
        "reading",
        [
            Series("error", 0, bars, bars=True, joined=False),
            Series("error in the environment", 5, {0.0: Sample(floor, float("nan"), 1)}, flat=True),
        ],
        categories=names,
        y_title="Share of the steps' mean square that is not predicted",
        over="steps",
    )
    lead = max(named, key=lambda one: one.gain, default=readings.NO_READING)
    other = f"; with {lead.name} it misses {lead.error:.1%}" if lead.name else ""
    return Measure(
        "recording",
        "Do demonstrations and environment mean the same?",
        (plain + NOISE) / (floor + NOISE),
        "times the error of the model in the environment itself",
        THRESHOLD,
        "A model predicts steps of the same environment about as well as those it was fitted on; "
        "twice its error is another environment, or other states.",
        True,
        f"a model of the environment misses {plain:.1%} of the demonstrated steps ({floor:.1%} of its own){other}",
        numbers,
        chart,
    )


def _starts(subject: Subject, demos: Demonstrations) -> dict[str, Any]:
    """How far the demonstrated first observations are from those of the environment, in standard errors by column."""
    assert subject.explored is not None
    ours = demos.observations[np.cumsum(demos.lengths) - demos.lengths].astype(np.float64)
    theirs = np.asarray(subject.explored.steps.obs)[:, 0].astype(np.float64)
    scale = np.maximum(
        spread(np.asarray(subject.explored.flat(np.asarray(subject.explored.steps.obs)), np.float64)), 1e-6
    )
    error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs)) + 0.02 * scale
    z = np.abs(ours.mean(0) - theirs.mean(0)) / error
    wide = (ours.std(0) + 0.02 * scale) / (theirs.std(0) + 0.02 * scale)
    return {"z": [float(x) for x in z], "ratio": [float(x) for x in wide]}


def _outside(subject: Subject, demos: Demonstrations) -> float:
    """The share of actions outside the environment's bounds."""
    space = subject.spec.action
    if not isinstance(space, Continuous) or not isinstance(demos.action_space, Continuous):
        return 0.0
    low, high = np.asarray(space.low), np.asarray(space.high)
    reach = 1e-3 * (high - low)
    return float(((demos.actions < low - reach) | (demos.actions > high + reach)).any(1).mean())
