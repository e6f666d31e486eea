"""Readings: what recorded numbers would have to mean so that a model of the environment predicts their steps.

    scale      f(s, c a + b)       the actions are in other units, all of them or a column of them
    rate       k f(s, a)           a recorded step is k steps of the environment
    columns    f(order s, a)       the columns of the observations, or of the actions, are in another order

A search finds the best reading of each kind. `Reading.gain` is the share of the steps' mean square that it explains
and the data as recorded do not; `explained` is that gain as a share of what could be explained; `t` is the gain's
statistic of Student's test over episodes.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from understudy.core.types import ActionSpace, Continuous
from understudy.diagnosis.environment_model import Model, Recorded

SCALES = (
    *(0.01, np.pi / 180, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 1 / 3, 0.5, 0.7),
    *(1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 30.0, 180 / np.pi, 100.0, 255.0, 1000.0, -1.0),
)
RATES = (0.02, 0.05, 0.1, 0.125, 1 / 6, 0.2, 0.25, 1 / 3, 0.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0)
MOST_COLUMNS = 30
"""Observations with more columns are not searched for another order."""
MOST_PAIRED = 14
"""Observations with more columns are not searched for two swaps at once."""
MOST_CALLS = 10_000
MOST_ACTIONS = 12
SEARCHED = 400
"""Steps on which a search compares readings."""
FITS = 1.5
"""A search for an order ends at this many times the floor."""
BETTER = 0.97
"""A search goes on while an error falls below this share of the one before."""

NEAR = (0.8, 0.9, 1.1, 1.25)
"""Factors that refine a scale."""

Error = Callable[[np.ndarray], float]
UnitsError = Callable[[np.ndarray, np.ndarray], float]


class Reading(NamedTuple):
    """The best reading of a kind, against the data as they are recorded."""

    name: str
    """Empty: there is none."""
    error: float
    """Over all columns that move."""
    plain: float
    """The error as recorded, `own` that of the reading, and `floor` that of the model alone, over the columns that are
    wrong as recorded."""
    own: float
    floor: float
    explained: float
    t: float

    @property
    def gain(self) -> float:
        return self.plain - self.own

    def to_json(self) -> dict[str, Any]:
        return {"reading" if key == "name" else key: value for key, value in self._asdict().items()} | {
            "gain": self.gain
        }


NO_READING = Reading("", 1.0, 1.0, 1.0, 1.0, 0.0, 0.0)


def found(model: Model, steps: Recorded, space: ActionSpace) -> dict[str, Reading]:
    """The best reading of each kind."""
    rate = min(RATES, key=lambda one: model.error(steps, one))
    best = {"rate": judged(model, steps, steps, f"rate {rate:g}", rate)}
    few = steps.thinned(SEARCHED)
    if isinstance(space, Continuous):
        factor, offset = _units(model, few, space)
        best["scale"] = judged(
            model, steps, steps._replace(act=steps.act * factor + offset), _units_name(factor, offset)
        )
    best["columns"] = max(_orders(model, steps, few), key=lambda one: one.gain, default=NO_READING)
    return {"scale": NO_READING, **best}


def judged(model: Model, steps: Recorded, read: Recorded, name: str, rate: float = 1.0) -> Reading:
    """A reading against the data as recorded, over the columns that are wrong as recorded; another order, over all."""
    moving, before, after = steps.moving, model.columns(steps), model.columns(read, rate)
    if not moving.any() or not name:
        return NO_READING
    floor = model.column_floors(steps)
    wrong = moving & (before > 2 * floor + 0.01)
    kept = wrong if wrong.any() and (read.change is steps.change) else moving
    kept_read = kept if read.change is steps.change else read.moving
    plain, own, least = float(before[kept].mean()), float(after[kept_read].mean()), float(floor[kept].mean())
    # Errors are cut at 1, as in a column's own error: one that is far too large is as wrong as one that is too large.
    gains = _cut(model.missed(steps))[:, kept].mean(1) - _cut(model.missed(read, rate))[:, kept_read].mean(1)
    groups = np.unique(steps.group, return_inverse=True)[1]
    sums = np.bincount(groups, gains) / np.maximum(np.bincount(groups), 1)
    error = sums.std(ddof=1) / np.sqrt(len(sums)) if len(sums) > 1 else np.inf
    t = float(np.clip(sums.mean() / max(error, 1e-9), -1e3, 1e3))
    explained = float(np.clip((plain - own) / max(plain - least, 0.002), -1, 1))
    return Reading(name, float(after[read.moving].mean()), plain, own, least, explained, t)


def _cut(missed: np.ndarray) -> np.ndarray:
    return missed / np.maximum(missed.mean(0), 1.0)


def _units(model: Model, steps: Recorded, space: Continuous) -> tuple[np.ndarray, np.ndarray]:
    """The factor and the offset of each column of the actions with the least error."""
    size = steps.act.shape[1]
    factor, offset = np.ones(size), np.zeros(size)

    def error(c: np.ndarray, b: np.ndarray) -> float:
        return model.objective(steps._replace(act=steps.act * c + b))

    tried = [(factor * c, offset) for c in SCALES]
    low, high = np.asarray(space.low, float), np.asarray(space.high, float)
    if np.isfinite(low).all() and np.isfinite(high).all():
        middle, half = (low + high) / 2, (high - low) / 2
        for part in (1.0, 100.0):  # fractions or percent of the range, from its middle or from its lower end
            tried += [(half / part, middle), (2 * half / part, low)]
    plain = error(factor, offset)
    best = min(tried, key=lambda one: error(*one))
    starts = [(factor, offset), *([best] if error(*best) < BETTER * plain else [])]
    ends = [_descended(error, *one) for one in starts]
    factor, offset = min(ends, key=lambda one: error(*one))
    return (factor, offset) if error(factor, offset) < BETTER * plain else (np.ones(size), np.zeros(size))


def _descended(error: UnitsError, factor: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Other factors of one column after the other, then of each again, as long as the error falls clearly."""
    least = error(factor, offset)
    for _ in range(2):
        for i in range(min(len(factor), MOST_ACTIONS)):
            near = [c * factor[i] for c in NEAR]
            options = [_with(factor, i, c) for c in (*near, 1.0, *SCALES, *(-c for c in SCALES))]
            new, chosen = min(((error(c, offset), k) for k, c in enumerate(options)))
            if new < BETTER * least - 1e-3:
                factor, least = options[chosen], new
    return factor, offset


def _with(array: np.ndarray, index: int, value: float) -> np.ndarray:
    changed = array.copy()
    changed[index] = value
    return changed


def _units_name(factor: np.ndarray, offset: np.ndarray) -> str:
    if (factor == 1).all() and (offset == 0).all():
        return ""
    if np.ptp(factor) < 1e-9 and (offset == 0).all():
        return f"scale {factor[0]:.3g}"
    changed = np.flatnonzero((factor != 1) | (offset != 0))[:4]
    one = [f"scale {factor[i]:.3g}" + (f" {offset[i]:+.3g}" if offset[i] else "") + f" of action {i}" for i in changed]
    return " and ".join(one)


def _orders(model: Model, steps: Recorded, few: Recorded) -> list[Reading]:
    """The best order of the observations' columns, and of the actions'."""
    found: list[Reading] = []
    size, actions = steps.obs.shape[1], steps.act.shape[1]
    if 1 < size <= MOST_COLUMNS:
        enough = FITS * max(model.floor, model.floor_of(few)) + 0.01
        order = searched(lambda order: model.objective(_columns(few, order)), size, enough)
        found.append(judged(model, steps, _columns(steps, order), _order_name("columns", order)))
    if 1 < actions <= MOST_ACTIONS:
        order = searched(lambda order: model.objective(few._replace(act=few.act[:, order])), actions)
        found.append(judged(model, steps, steps._replace(act=steps.act[:, order]), _order_name("actions", order)))
    return [one for one in found if one.name]


def _columns(steps: Recorded, order: np.ndarray) -> Recorded:
    return steps._replace(obs=steps.obs[:, order], change=steps.change[:, order])


def searched(error: Error, columns: int, enough: float = 0.0, most: int = MOST_CALLS) -> np.ndarray:
    """An order of columns with a small error: the best swap of two, again as long as the error falls clearly.

    Where no swap helps, two at once may: a place and its speed must move together. The search ends below `enough`, or
    after `most` calls.
    """
    order = np.arange(columns)
    least, calls = error(order), 0
    swaps = list(combinations(range(columns), 2))
    pairs = [(x, y) for x, y in combinations(swaps, 2) if not set(x) & set(y)] if columns <= MOST_PAIRED else []
    np.random.default_rng(0).shuffle(pairs)  # the same order of trials for everyone
    while least > enough and calls < most:
        tried = [(error(_swapped(order, swap)), swap) for swap in swaps]
        calls += len(tried)
        best, swap = min(tried)
        if best < BETTER * least - 1e-3:
            order, least = _swapped(order, swap), best
            continue
        for x, y in pairs:
            both = _swapped(_swapped(order, x), y)
            calls, best = calls + 1, error(both)
            if best < BETTER * least - 1e-3:
                order, least = both, best
                break
            if calls >= most:
                break
        else:
            break
    return order


def _swapped(order: np.ndarray, swap: tuple[int, int]) -> np.ndarray:
    i, j = swap
    changed = order.copy()
    changed[[i, j]] = order[[j, i]]
    return changed


def _order_name(what: str, order: np.ndarray) -> str:
    moved = np.flatnonzero(order != np.arange(len(order)))
    if len(moved) == 0:
        return ""
    if all(order[order[i]] == i for i in moved):
        return f"{what} " + " and ".join(f"{i} {order[i]}" for i in moved if i < order[i])
    return f"{what} in the order {' '.join(map(str, order))}"
