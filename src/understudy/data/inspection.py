"""Facts about demonstrations: which are recorded, ranges of observations, actions at their bounds."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from understudy.core.types import Continuous
from understudy.data.checks import blocks
from understudy.data.demonstrations import Demonstrations
from understudy.data.details import Details

HUGE = 1e4
"""An observation above this size counts as huge: float32 and network inputs lose small differences next to it."""
BIN_COUNT = 12
"""Bins of a histogram."""
DETAILS = {
    "successes": "successes",
    "tasks": "tasks",
    "interventions": "interventions",
    "action_names": "names of actions",
    "action_units": "units of actions",
    "fps": "steps per second",
    "origin": "origin",
}


@dataclass(frozen=True)
class Ranges:
    """Extremes, mean and standard deviation of each dimension."""

    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    std: np.ndarray

    @property
    def constant(self) -> np.ndarray:
        """Mask of the dimensions that never change."""
        return self.low == self.high

    @property
    def huge(self) -> np.ndarray:
        """Mask of the dimensions with numbers above `HUGE`."""
        return np.maximum(np.abs(self.low), np.abs(self.high)) > HUGE


def ranges(array: np.ndarray) -> Ranges:
    """The ranges of the columns, computed by blocks of rows."""
    low, high = array.min(0), array.max(0)
    mean = sum(array[rows].sum(0, np.float64) for rows in blocks(array)) / len(array)
    square = sum(((array[rows] - mean) ** 2).sum(0) for rows in blocks(array)) / len(array)
    return Ranges(low, high, mean, np.sqrt(square))


def at_bounds(d: Demonstrations) -> tuple[int, int]:
    """How many numbers of continuous actions are at the low and at the high bound."""
    assert isinstance(d.action_space, Continuous)
    low, high = np.asarray(d.action_space.low, np.float32), np.asarray(d.action_space.high, np.float32)
    pairs = [((d.actions[rows] <= low).sum(), (d.actions[rows] >= high).sum()) for rows in blocks(d.actions)]
    lows, highs = zip(*pairs, strict=True)
    return int(sum(lows)), int(sum(highs))


def histogram(values: np.ndarray) -> list[int]:
    """How many values are in each of some equal ranges, from the lowest to the highest value."""
    low, high = float(values.min()), float(values.max())
    whole = values.dtype.kind in "iu"
    bins = min(BIN_COUNT, int(high - low) + 1) if whole else BIN_COUNT
    edges = (low - 0.5, high + 0.5) if whole else (low, high)
    return np.histogram(values, bins, edges)[0].tolist() if low < high else [len(values)]


def facts(d: Demonstrations) -> dict[str, Any]:
    """All facts that are recorded, by a name for people. A fact that is missing is unknown."""
    known: dict[str, Any] = {
        "environment": d.env,
        "horizon": d.horizon if d.horizon != d.lengths.max() else None,
        "action bounds": None if d.bounds_from_data else d.recorded_space,
        "final observations": d.last_observations,
        "next observations": d.other_next,
        "terminal states": d.terminals,
        "rewards": d.rewards,
        "the expert's return": d.recorded_return if d.rewards is None else None,
        "names of observations": d.obs_parts or None,
        **{DETAILS[field.name]: getattr(d.details, field.name) for field in fields(Details)},
    }
    if d.terminals is None and d.ends == "terminal":
        known["terminal states"] = d.ends
    return {name: value for name, value in known.items() if value is not None}


def lost_facts(before: Demonstrations, after: Demonstrations) -> list[str]:
    """The facts of demonstrations that are missing or changed after they were written and read again."""
    numbers = {
        "observations": (before.observations, after.observations),
        "actions": (before.recorded_actions, after.recorded_actions),
        "lengths": (before.lengths, after.lengths),
    }
    changed = [name for name, (one, other) in numbers.items() if one is not other and not _equal(one, other)]
    kept = facts(after)
    return changed + [name for name, value in facts(before).items() if not _equal(value, kept.get(name))]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return one is not None and other is not None and np.array_equal(one, other)
    return bool(one == other)
