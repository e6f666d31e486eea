"""A model of the environment, Δs = f(s, a): ridge regression on random features, fitted to exploring episodes.

It predicts demonstrated steps as they are recorded, and under other readings of them (`readings`). An error is the
share of the steps' mean square that is not predicted, at most 1 in each column, and a mean over the columns that move.
`floor` is the error that the environment's own noise and the model's own defects leave in demonstrated steps: small
steps have a large one.
"""

from typing import Any, NamedTuple

import numpy as np

from understudy.diagnosis.alike import evenly, spread, vectors
from understudy.diagnosis.subject import Subject

FEATURES = 400
MOST_FITTED = 4000
TRIMMED = 0.95
"""Squared errors are cut at this quantile: a few jumps, such as an angle that wraps, must not decide."""
OUTSIDE = 0.25
"""Weight of errors above 1 in `Model.objective`, so that a search sees a way down where all columns are wrong."""


class Recorded(NamedTuple):
    """Demonstrated steps that move: those that hardly move say nothing of a model."""

    obs: np.ndarray
    act: np.ndarray
    """As vectors."""
    change: np.ndarray
    group: np.ndarray
    """Numbers of the episodes, or of parts of them where there are few: units of a test."""

    @classmethod
    def of(cls, obs: np.ndarray, act: np.ndarray, nexts: np.ndarray, group: np.ndarray) -> "Recorded":
        change = nexts - obs
        moved = np.square(change / spread(change)).sum(1)
        rows = (moved >= np.median(moved)) & (moved <= np.quantile(moved, 0.98))
        return cls(obs[rows], act[rows], change[rows], group[rows])

    def thinned(self, most: int) -> "Recorded":
        rows = evenly(len(self.obs), most)
        return Recorded(*(column[rows] for column in self))

    @property
    def size(self) -> np.ndarray:
        return np.maximum(np.square(self.change).mean(0), 1e-300)

    @property
    def moving(self) -> np.ndarray:
        return np.ptp(self.change, axis=0) > 0


class Model:
    """Δs of a step. `noise` is each column's mean squared error on steps of the environment that were not fitted."""

    def __init__(self, obs: np.ndarray, act: np.ndarray, nexts: np.ndarray, seed: int = 0):
        x = np.concatenate([obs, act], axis=1)
        self._mean, self._std, self._unit = x.mean(0), spread(x), spread(nexts - obs)
        rng = np.random.default_rng(seed)
        self._directions = rng.standard_normal((x.shape[1], FEATURES)) / np.sqrt(x.shape[1])
        self._offsets = rng.uniform(-2, 2, FEATURES)
        phi, y = self._features(x), (nexts - obs) / self._unit
        order = rng.permutation(len(x))
        test, train = order[: len(x) // 5], order[len(x) // 5 :]
        gram = phi[train].T @ phi[train] + 1e-2 * np.eye(phi.shape[1])
        self._weights = np.linalg.solve(gram, phi[train].T @ y[train])
        own = Recorded.of(obs[test], act[test], nexts[test], np.zeros(len(test)))
        missed = _trimmed(np.square(self._predicted(own.obs, own.act) - own.change))
        self.noise: np.ndarray = missed.mean(0)
        self.column_floor: np.ndarray = np.minimum(self.noise / own.size, 1.0)
        self.floor: float = float(self.column_floor[own.moving].mean()) if own.moving.any() else 0.0

    @classmethod
    def fit(cls, subject: Subject) -> "Model":
        flat = [
            [one.flat(np.asarray(x)) for x in (one.steps.obs, one.steps.act, one.steps.next_obs)]
            for one in subject.played.values()
        ]
        obs, act, nexts = (np.concatenate(column) for column in zip(*flat, strict=True))
        keep = evenly(len(obs), MOST_FITTED)
        act = vectors(subject.spec.action, act)[keep]
        return cls(np.asarray(obs, np.float64)[keep], act, np.asarray(nexts, np.float64)[keep], subject.seed)

    def _features(self, x: np.ndarray) -> np.ndarray:
        z = np.clip((x - self._mean) / self._std, -10, 10)
        return np.concatenate(
            [np.ones((len(z), 1)), z, np.maximum(2 * z @ self._directions + self._offsets, 0)], axis=1
        )

    def _predicted(self, obs: np.ndarray, act: np.ndarray) -> np.ndarray:
        return np.asarray(self._features(np.concatenate([obs, act], axis=1)) @ self._weights) * self._unit

    def missed(self, steps: Recorded, rate: float = 1.0) -> np.ndarray:
        """(steps, columns) squared errors in units of each column's mean square. `rate` steps of the environment are
        one recorded step."""
        change = self._predicted(steps.obs, steps.act)
        whole = round(rate)
        if whole > 1 and abs(rate - whole) < 1e-9:
            for _ in range(whole - 1):
                change = change + self._predicted(steps.obs + change, steps.act)
        else:
            change = rate * change
        return _trimmed(np.square(change - steps.change)) / steps.size

    def columns(self, steps: Recorded, rate: float = 1.0) -> np.ndarray:
        return np.minimum(self.missed(steps, rate).mean(0), 1.0)

    def error(self, steps: Recorded, rate: float = 1.0) -> float:
        return float(self.columns(steps, rate)[steps.moving].mean()) if steps.moving.any() else 0.0

    def objective(self, steps: Recorded) -> float:
        """The error for a search: it also falls where a column's error falls from 10 to 2."""
        own = self.missed(steps).mean(0)[steps.moving]
        return float((np.minimum(own, 1.0) + OUTSIDE * np.log1p(np.minimum(own, 100.0))).mean()) if len(own) else 0.0

    def column_floors(self, steps: Recorded) -> np.ndarray:
        """Each column's error of demonstrated steps that the model's errors in the environment would leave."""
        return np.maximum(self.column_floor, np.minimum(self.noise / steps.size, 1.0))

    def floor_of(self, steps: Recorded) -> float:
        own = self.column_floors(steps)[steps.moving]
        return float(own.mean()) if len(own) else 0.0


def _trimmed(squares: np.ndarray) -> np.ndarray:
    return np.minimum(squares, np.quantile(squares, TRIMMED, axis=0)) if len(squares) else squares


def part_of(demos_lengths: np.ndarray, least: int = 8) -> np.ndarray:
    """Numbers of the episodes as units of a test; with fewer than `least` episodes, of equal parts of them."""
    parts = max(1, -(-least // len(demos_lengths)))
    named: list[np.ndarray[Any, Any]] = []
    for number, length in enumerate(demos_lengths):
        named.append(number * parts + np.arange(length) * parts // max(int(length), 1))
    return np.concatenate(named)
