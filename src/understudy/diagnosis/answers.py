"""Answers: the recorded actions against what the expert answers at the recorded observations.

A recorded action is c a + b of the expert's answer a if it is in other units. If the columns of the observations are in
another order, the answers fit only once they are put back.
"""

from typing import Any

import numpy as np

from understudy.core.errors import UnderstudyError
from understudy.core.types import Continuous
from understudy.data import Demonstrations
from understudy.diagnosis.alike import evenly, vectors
from understudy.diagnosis.readings import searched
from understudy.diagnosis.subject import Subject

MOST = 400
ENOUGH = 0.02
"""The disagreement below which no other order is searched."""
MOST_QUERIES = 3000
MOST_COLUMNS = 16
"""Observations with more columns are not searched for another order: each order is a query of all steps."""


def compared(subject: Subject, demos: Demonstrations) -> dict[str, Any]:
    """Agreement as recorded, with other units of each action column, and with another order of the observations."""
    assert subject.expert is not None
    rows = evenly(demos.steps, MOST)
    obs, t = demos.observations[rows], demos.transitions().t[rows]
    expert, spec = subject.expert.expert, subject.spec
    rng = np.random.default_rng(subject.seed)
    recorded = vectors(demos.action_space, demos.actions[rows])

    def answers(observations: np.ndarray) -> np.ndarray:
        return vectors(spec.action, expert.query(observations, spec, rng, t))

    def disagreement(observations: np.ndarray) -> float:
        try:
            given = answers(observations)
        except (UnderstudyError, ValueError, ArithmeticError):  # the expert may reject states that do not exist
            return np.inf
        size = max(float(np.square(given - given.mean(0)).mean()), 1e-12)
        return float(np.square(recorded - given).mean() / size)

    plain = disagreement(obs)
    found: dict[str, Any] = {"disagreement": plain, "order": "", "disagreement_ordered": plain, "units": []}
    if not np.isfinite(plain):
        return found
    if isinstance(spec.action, Continuous):
        found["units"] = _units(answers(obs), recorded)
    if plain > ENOUGH and 1 < obs.shape[1] <= MOST_COLUMNS:
        order = searched(lambda order: min(disagreement(obs[:, order]), 10.0), obs.shape[1], ENOUGH, MOST_QUERIES)
        if (order != np.arange(len(order))).any():
            found.update(
                order="columns in the order " + " ".join(map(str, order)),
                disagreement_ordered=disagreement(obs[:, order]),
            )
    return found


def _units(given: np.ndarray, recorded: np.ndarray) -> list[dict[str, float]]:
    """For each action column: the line that gives the recorded actions from the answers, and what it leaves."""
    lines = []
    for x, y in zip(given.T, recorded.T, strict=True):
        if min(x.std(), y.std()) < 1e-9:
            lines.append({"scale": 1.0, "offset": 0.0, "off": 0.0, "left": 1.0})
            continue
        scale, offset = np.polyfit(x, y, 1)
        left = np.square(y - scale * x - offset).mean() / y.var()
        off = np.square(y - x).mean() / max(x.var(), y.var())
        lines.append({"scale": float(scale), "offset": float(offset / x.std()), "off": float(off), "left": float(left)})
    return lines
