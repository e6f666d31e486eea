"""Recording: whether demonstrations and environment mean the same by an observation, an action and a step.

A model of the environment, Δs = f(s, a), is fitted to episodes with random actions. Then the demonstrated steps are
predicted as they are, and under other readings of them:

    action scale c     f(s, c a)          the recorded actions were divided by c
    columns i, j       f(swap s, a)       columns of the observations are swapped, up to three pairs
    control rate k     k f(s, a)          a recorded step is k steps of the environment

A reading is a finding if it explains the steps much better than the data as they are. With an expert to query, its
answers at the demonstrated states are compared with the recorded actions in the same way, without a model.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import combinations
from typing import Any

import numpy as np

from understudy.core.errors import UnderstudyError
from understudy.core.statistics import Sample
from understudy.core.types import Continuous
from understudy.data import Demonstrations
from understudy.diagnosis.alike import evenly, spread, vectors
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

FEATURES = 400
SCALES = (0.02, 0.05, 0.1, 0.2, 0.25, 1 / 3, 0.5, 2 / 3, 1.5, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, 50.0, -1.0)
RATES = (0.1, 0.2, 0.25, 1 / 3, 0.5, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0)
MOST_SWAPS = 3
MOST_COLUMNS = 30
"""Observations with more columns are not searched for swaps."""
THRESHOLD = 2.0
NOISE = 0.002
"""An error that means nothing."""


def measure(subject: Subject) -> Measure:
    demos = subject.training
    if demos is None or subject.env is None or subject.explored is None:
        raise CannotMeasureError("needs demonstrations and an environment")
    inside = _inside(demos)
    if len(inside) < 20:
        raise CannotMeasureError("too few steps with a next observation")
    model = Model.fit(subject)
    rows = inside[evenly(len(inside), 1500)]
    obs, nexts = (np.asarray(x, np.float64)[rows] for x in (demos.observations, demos.transitions().next_obs))
    act = vectors(demos.action_space, demos.actions)[rows]
    floor = model.floor
    errors = {"as recorded": model.error(obs, act, nexts)}
    if isinstance(demos.action_space, Continuous):
        for scale in SCALES:
            errors[f"scale {scale:g}"] = model.error(obs, act * scale, nexts)
    for rate in RATES:
        errors[f"rate {rate:g}"] = model.error(obs, act, nexts, rate)
    if 1 < obs.shape[1] <= MOST_COLUMNS:
        name, error = _reordered(lambda order: model.error(obs[:, order], act, nexts[:, order]), obs.shape[1])
        errors[f"columns {name}"] = error
    plain = errors.pop("as recorded")
    best = {kind: _best(errors, kind) for kind in ("scale", "rate", "columns")}
    numbers: dict[str, Any] = {
        "as_recorded": plain,
        "floor": floor,
        "worst_column": model.worst(obs, act, nexts),
        "column_floor": [float(x) for x in model.column_floor],
    }
    for kind, (name, error) in best.items():
        numbers[kind] = {"reading": name, "error": error, "improvement": (plain + NOISE) / (error + NOISE)}
    start = _starts(subject, demos)
    numbers["start"] = start
    numbers["outside"] = _outside(subject, demos)
    if subject.expert is not None:
        numbers["expert"] = _against_expert(subject, demos)
    value = (plain + NOISE) / (floor + NOISE)
    names = ["as recorded", *(name for name, _ in best.values() if name)]
    values = [plain, *(error for name, error in best.values() if name)]
    chart = Chart(
        "Error of the predicted demonstrated steps, under other readings of the data",
        "reading",
        [
            Series(
                "error",
                0,
                {float(i): Sample(v, float("nan"), 1) for i, v in enumerate(values)},
                bars=True,
                joined=False,
            ),
            Series("error in the environment", 5, {0.0: Sample(floor, float("nan"), 1)}, flat=True),
        ],
        categories=names,
        y_title="Share of the steps' variance that is not predicted",
        over="steps",
    )
    lead = max(best, key=lambda kind: numbers[kind]["improvement"])
    return Measure(
        "recording",
        "Do demonstrations and environment mean the same?",
        value,
        "times the error of the model in the environment itself",
        THRESHOLD,
        "A model predicts steps of the same environment about as well as those it was fitted on; "
        "twice its error is another "
        "environment, or other states.",
        True,
        f"a model of the environment misses {plain:.1%} of the variance of demonstrated steps "
        f"({floor:.1%} of its own); "
        f"with {best[lead][0] or 'no other reading'} it misses {best[lead][1]:.1%}",
        numbers,
        chart,
    )


class Model:
    """Δs of a step, by ridge regression on random features of (s, a)."""

    def __init__(self, features: Callable[[np.ndarray], np.ndarray], weights: np.ndarray, facts: dict[str, Any]):
        self._features, self._weights = features, weights
        self._mean, self._std, self._unit = facts["mean"], facts["std"], facts["unit"]
        self.floor: float = facts["floor"]
        self.column_floor: np.ndarray = np.zeros(len(facts["unit"]))

    @classmethod
    def fit(cls, subject: Subject) -> "Model":
        episodes = [one for one in (subject.explored, subject.fresh) if one is not None]
        flat = [
            [one.flat(np.asarray(x)) for x in (one.steps.obs, one.steps.act, one.steps.next_obs)] for one in episodes
        ]
        obs, act, nexts = (np.concatenate(column) for column in zip(*flat, strict=True))
        keep = evenly(len(obs), 4000)
        obs, nexts = np.asarray(obs, np.float64)[keep], np.asarray(nexts, np.float64)[keep]
        act = vectors(subject.spec.action, act)[keep]
        x = np.concatenate([obs, act], axis=1)
        mean, std = x.mean(0), spread(x)
        unit = spread(nexts - obs)
        rng = np.random.default_rng(0)
        directions = rng.standard_normal((x.shape[1], FEATURES)) / np.sqrt(x.shape[1])
        offsets = rng.uniform(-2, 2, FEATURES)

        def features(z: np.ndarray) -> np.ndarray:
            return np.concatenate([np.ones((len(z), 1)), z, np.maximum(2 * z @ directions + offsets, 0)], axis=1)

        phi, y = features((x - mean) / std), (nexts - obs) / unit
        order = rng.permutation(len(x))
        test, train = order[: len(x) // 5], order[len(x) // 5 :]
        gram = phi[train].T @ phi[train] + 1e-2 * np.eye(phi.shape[1])
        weights = np.linalg.solve(gram, phi[train].T @ y[train])
        residual = np.square(phi[test] @ weights - y[test])
        changing = y.var(0) > 1e-12
        column = residual.mean(0)
        floor = float(np.minimum(column, 1.0)[changing].mean()) if changing.any() else 0.0
        model = cls(features, weights, {"mean": mean, "std": std, "unit": unit, "floor": floor})
        model.column_floor = model.residual(obs[test], act[test], nexts[test])
        return model

    def residual(self, obs: np.ndarray, act: np.ndarray, nexts: np.ndarray, rate: float = 1.0) -> np.ndarray:
        """Each column's squared error, in units of the demonstrated steps' own mean square; at most 1."""
        z = np.clip((np.concatenate([obs, act], axis=1) - self._mean) / self._std, -10, 10)
        predicted = rate * (self._features(z) @ self._weights) * self._unit
        actual = nexts - obs
        # Steps that hardly move say nothing; a few jumps, such as an angle that wraps, must not decide.
        moved = np.square(actual / spread(actual)).sum(1)
        rows = (moved >= np.median(moved)) & (moved <= np.quantile(moved, 0.98))
        missed, size = np.square(predicted - actual)[rows], np.square(actual)[rows]
        missed = np.minimum(missed, np.quantile(missed, 0.95, axis=0))
        error = missed.mean(0) / np.maximum(size.mean(0), 1e-12)
        return np.minimum(error, 1.0)

    def error(self, obs: np.ndarray, act: np.ndarray, nexts: np.ndarray, rate: float = 1.0) -> float:
        moving = np.ptp(nexts - obs, axis=0) > 0
        return float(self.residual(obs, act, nexts, rate)[moving].mean()) if moving.any() else 0.0

    def worst(self, obs: np.ndarray, act: np.ndarray, nexts: np.ndarray) -> list[float]:
        return [float(x) for x in self.residual(obs, act, nexts)]


def _reordered(error: Callable[[np.ndarray], float], columns: int) -> tuple[str, float]:
    """The swap of columns with the smallest error, and further swaps as long as each halves it: a name, an error."""
    order, least = np.arange(columns), np.inf
    swaps: list[tuple[int, int]] = []
    while len(swaps) < MOST_SWAPS:
        found = {}
        for i, j in combinations(range(columns), 2):
            if not any(i in pair or j in pair for pair in swaps):
                swapped = order.copy()
                swapped[[i, j]] = order[[j, i]]
                found[i, j] = error(swapped)
        best = min(found, key=lambda pair: found[pair], default=None)
        if best is None or (swaps and found[best] > least / 2):
            break
        swaps, least = [*swaps, best], found[best]
        order[list(best)] = order[[best[1], best[0]]]
    return " and ".join(f"{i} {j}" for i, j in swaps), float(least)


def _inside(demos: Demonstrations) -> np.ndarray:
    steps = demos.transitions()
    return np.flatnonzero(steps.known_next)


def _best(errors: dict[str, float], kind: str) -> tuple[str, float]:
    own = {name: error for name, error in errors.items() if name.startswith(kind)}
    if not own:
        return "", 1.0
    name = min(own, key=lambda one: own[one])
    return name, own[name]


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


def _against_expert(subject: Subject, demos: Demonstrations) -> dict[str, Any]:
    """The recorded actions against the expert's answers: agreement as recorded, with a scale, with swapped columns."""
    assert subject.expert is not None
    rows = evenly(demos.steps, 500)
    obs, t = demos.observations[rows], demos.transitions().t[rows]
    expert, spec = subject.expert.expert, subject.spec
    rng = np.random.default_rng(0)
    recorded = vectors(demos.action_space, demos.actions[rows])

    def agreement(observations: np.ndarray) -> tuple[float, float]:
        answers = vectors(spec.action, expert.query(observations, spec, rng, t))
        size = max(float(np.square(answers - answers.mean(0)).mean()), 1e-12)
        slope = float((answers * recorded).sum() / max(np.square(answers).sum(), 1e-12))
        left = np.square(recorded - slope * answers).mean() / max(slope**2 * size, 1e-12)
        return float(np.square(recorded - answers).mean() / size), float(left) if slope != 0 else 1.0

    def slope_of(observations: np.ndarray) -> float:
        answers = vectors(spec.action, expert.query(observations, spec, rng, t))
        return float((answers * recorded).sum() / max(np.square(answers).sum(), 1e-12))

    plain, scaled = agreement(obs)
    swaps = {}
    if 1 < obs.shape[1] <= 12:
        for i, j in combinations(range(obs.shape[1]), 2):
            order = np.arange(obs.shape[1])
            order[[i, j]] = j, i
            with suppress(UnderstudyError):  # the expert may reject states that do not exist
                swaps[f"columns {i} {j}"] = agreement(obs[:, order])[0]
    best = min(swaps, key=lambda one: swaps[one]) if swaps else ""
    return {
        "disagreement": plain,
        "scale": slope_of(obs),
        "disagreement_scaled": scaled,
        "swap": best,
        "disagreement_swapped": swaps.get(best, plain),
    }
