"""Checks of demonstrations. An error names the source, the episode and step, the value, and what is allowed."""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from understudy.core.errors import DemonstrationError, SpecError
from understudy.core.parts import Parts, check_parts
from understudy.core.text import is_line, quoted
from understudy.core.types import (
    MOST_ACTIONS,
    MOST_STEPS,
    ActionSpace,
    Continuous,
    Discrete,
    MultiDiscrete,
    actions_memory,
)

PER_STEP = ("observations", "actions", "next_observations", "terminals", "rewards", "interventions")
"""Arrays with a row for each step."""
SINGLE = (
    *("horizon", "action_count", "mean_return", "std_return", "return_episodes", "env", "ends"),
    *("action_units", "origin", "fps"),
)
"""Single values."""
BLOCK = 250_000
"""Numbers that are checked at a time, so that no mask of a large array is made."""


def blocks(array: np.ndarray) -> Iterator[slice]:
    """Ranges of rows with about `BLOCK` numbers each."""
    rows = max(1, BLOCK // max(1, math.prod(array.shape[1:])))
    return (slice(start, min(start + rows, len(array))) for start in range(0, len(array), rows))


class Checker:
    """Checks the arrays of one `source`. Its errors begin with that name.

    With `copy=False`, arrays that have the right type are returned as they are.
    """

    def __init__(self, source: str, copy: bool = True):
        self.source, self.copy = source, copy

    def error(self, words: str) -> DemonstrationError:
        return DemonstrationError(f"{self.source}: {words}")

    def numbers(self, name: str, value: Any) -> np.ndarray:
        """An array of plain numbers with one row per step."""
        try:
            array = np.asarray(value)
        except ValueError:
            raise self.error(
                f"{name} has rows of different lengths: concatenate the episodes and pass their lengths"
            ) from None
        if array.dtype.kind not in "fiub":
            raise self.error(f"{name} has type {array.dtype}: it must be an array of plain numbers")
        if array.ndim == 0:
            raise self.error(f"{name} is a single number: it needs one row per step")
        return array

    def shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise if arrays with these shapes cannot be demonstrations. It needs no contents."""
        for name, shape in shapes.items():
            if name in PER_STEP and not shape:
                raise self.error(f"{name} is a single number: it needs one row per step")
            if name in PER_STEP and len(shape) > 2:
                raise self.error(f"{name} has shape {shape}: (steps, numbers) is needed; flatten the other axes")
            if name in PER_STEP and shape[0] != shapes["observations"][0]:
                steps = shapes["observations"][0]
                raise self.error(f"{name} has {shape[0]} rows, observations have {steps}: both must be equal")
            if name in SINGLE and math.prod(shape) != 1:
                raise self.error(f"{name} is an array of shape {shape}: a single value is needed")

    def number(self, name: str, arrays: Mapping[str, np.ndarray], low: float, high: float, whole: bool = False) -> Any:
        """A single number in [low, high], from a file; None if it is not there."""
        if name not in arrays:
            return None
        number = arrays[name].reshape(-1)[0].item()
        if not low <= number <= high or (whole and number != int(number)):
            kind = "whole number" if whole else "number"
            raise self.error(f"{name} is {number:.10g}: a {kind} from {low:g} to {high:g} is needed")
        return int(number) if whole else float(number)

    def lengths(self, value: Any, steps: int) -> np.ndarray:
        """Episode lengths. Their sum must be the number of steps."""
        lengths = np.atleast_1d(np.asarray(value))
        if lengths.size == 0 or steps == 0:
            raise self.error(f"there are no episodes ({lengths.size} lengths, {steps} steps)")
        if lengths.dtype.kind not in "iu" or lengths.ndim != 1:
            raise self.error(f"lengths has type {lengths.dtype} and shape {lengths.shape}: whole numbers are needed")
        if (lengths < 1).any():
            first = int(np.flatnonzero(lengths < 1)[0])
            raise self.error(f"episode {first} has length {lengths[first]}: every episode needs at least one step")
        if (lengths > steps).any():
            first = int(np.flatnonzero(lengths > steps)[0])
            raise self.error(
                f"episode {first} has length {lengths[first]}, but there are only {steps} observations: "
                "concatenate the episodes, one row per step"
            )
        if lengths.sum() != steps:
            raise self.error(
                f"lengths add up to {int(lengths.sum())}, but there are {steps} observations: both must be equal"
            )
        return lengths.astype(np.int64)

    def horizon(self, value: Any, lengths: np.ndarray) -> int:
        """The maximal length of an episode; None: that of the longest."""
        longest = int(lengths.max())
        if value is None:
            return longest
        whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
        if not whole or not longest <= operator.index(value) <= MOST_STEPS:
            raise self.error(
                f"horizon is {quoted(repr(value))}, and an episode has {longest} steps: pass a whole number from "
                f"{longest} to {MOST_STEPS}"
            )
        return operator.index(value)

    def rows(self, name: str, value: Any, lengths: np.ndarray, like: np.ndarray | None = None) -> np.ndarray:
        """One row of finite float32 numbers per step, as wide as `like` if that is given."""
        array = self._steps(name, self.numbers(name, value), lengths)
        if array.ndim > 2 or array.size == 0:
            raise self.error(f"{name} has shape {array.shape}: (steps, numbers) is needed; flatten the other axes")
        array = self._float32(array)
        if like is not None and array.shape != like.shape:
            raise self.error(f"{name} has shape {array.shape}, observations have {like.shape}: both must be equal")
        return self._finite(name, array, lambda step: _where(step, lengths), "those steps")

    def episode_rows(self, name: str, value: Any, lengths: np.ndarray, like: np.ndarray) -> np.ndarray:
        """One row of finite float32 numbers per episode, as wide as `like`."""
        array = self.numbers(name, value)
        needed = (len(lengths), like.shape[1])
        if array.ndim > 2 or len(array) != needed[0] or array.size != needed[0] * needed[1]:
            raise self.error(f"{name} has shape {array.shape}: {needed} is needed, one observation per episode")
        return self._finite(name, self._float32(array), lambda episode: f"episode {episode}", "those episodes")

    def same_ends(self, next_observations: np.ndarray, last_observations: np.ndarray, lengths: np.ndarray) -> None:
        """Raise if next_observations and last_observations disagree about the final observations."""
        ended = next_observations[np.cumsum(lengths) - 1]
        bad = ended != last_observations
        if bad.any():
            episode, dimension = np.argwhere(bad)[0]
            raise self.error(
                "last_observations and next_observations have different final observations, first in episode "
                f"{episode}, dimension {dimension}: {last_observations[episode, dimension]:g} and "
                f"{ended[episode, dimension]:g}; pass only one of the two"
            )

    def one_per_step(self, name: str, value: Any, lengths: np.ndarray) -> np.ndarray:
        """One number per step."""
        array = self._steps(name, self.numbers(name, value), lengths)
        if array.size != len(array):
            raise self.error(f"{name} has shape {array.shape}: one number per step is needed")
        return array.reshape(-1)

    def terminals(self, value: Any, lengths: np.ndarray) -> np.ndarray:
        """Booleans. Only the last step of an episode may be terminal."""
        array = self.one_per_step("terminals", value, lengths).astype(bool, copy=self.copy)
        inside = np.setdiff1d(np.flatnonzero(array), np.cumsum(lengths) - 1)
        if inside.size:
            raise self.error(
                f"terminals is True inside an episode, first at {_where(inside[0], lengths)}: "
                "only an episode's last step can be terminal"
            )
        return array

    def space(self, space: Any) -> ActionSpace | None:
        """An action space, or None."""
        if not isinstance(space, ActionSpace | None):
            raise self.error(
                f"action_space is a {type(space).__name__}: pass understudy.Continuous, Discrete or MultiDiscrete"
            )
        return space

    def actions(self, value: Any, space: ActionSpace | None, lengths: np.ndarray) -> tuple[np.ndarray, ActionSpace]:
        """The actions in canonical shape and dtype, and their action space. Checks one against the other."""
        array = self._steps("actions", self.numbers("actions", value), lengths)
        if isinstance(space, MultiDiscrete):
            return self._multi_discrete(array, space, lengths), space
        if array.dtype.kind in "iub" and not isinstance(space, Continuous):
            return self._discrete(array, space, lengths)
        if isinstance(space, Discrete):
            raise self.error(f"actions are real numbers, but action_space is Discrete({space.n}): pass integers")
        return self._continuous(self.rows("actions", array, lengths), space, lengths)

    def parts(self, parts: Parts, size: int) -> None:
        """Raise unless the named parts fill an observation of this size."""
        try:
            check_parts(tuple(parts), size)
        except SpecError as error:
            raise self.error(str(error)) from error

    def flags(self, name: str, value: Any, count: int) -> np.ndarray | None:
        """`count` booleans, or None."""
        if value is None:
            return None
        array = self.numbers(name, value)
        if array.shape != (count,) or not ((array == 0) | (array == 1)).all():
            raise self.error(f"{name} has shape {array.shape} and type {array.dtype}: {count} booleans are needed")
        return array.astype(bool, copy=self.copy)

    def texts(self, name: str, value: Any, count: int, longest: int) -> tuple[str, ...] | None:
        """`count` lines of text, or None."""
        if value is None:
            return None
        lines = tuple(value)
        if len(lines) != count or not all(is_line(line, longest) for line in lines):
            raise self.error(f"{name} is {quoted(lines)}: {count} lines of printable text are needed")
        return lines

    def line(self, name: str, value: Any, longest: int) -> str | None:
        """One line of text, or None."""
        lines = self.texts(name, None if value is None else (value,), 1, longest)
        return None if lines is None else lines[0]

    def positive(self, name: str, value: Any) -> float | None:
        """A finite number above 0, or None."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, SupportsFloat) or not 0 < float(value) < math.inf:
            raise self.error(f"{name} is {quoted(repr(value))}: a number above 0 is needed")
        return float(value)

    def _discrete(
        self, actions: np.ndarray, space: Discrete | None, lengths: np.ndarray
    ) -> tuple[np.ndarray, Discrete]:
        actions = self.one_per_step("actions", actions, lengths)
        if space is None:
            most = int(actions.max())
            if most >= MOST_ACTIONS:
                raise self.error(
                    f"a discrete action is {most}, and a network for {most + 1} actions takes about "
                    f"{actions_memory(most + 1)} to train: at most {MOST_ACTIONS} actions are allowed; pass continuous "
                    "actions as floats, not integers"
                )
            space = Discrete(max(most + 1, 1))
        bad = space.outside(actions)
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            raise self.error(
                f"{int(bad.sum())} actions are out of range, the first {actions[first]} at {_where(first, lengths)}: "
                f"discrete actions run from 0 to {space.n - 1}"
            )
        return actions.astype(np.int32, copy=self.copy), space

    def _multi_discrete(self, actions: np.ndarray, space: MultiDiscrete, lengths: np.ndarray) -> np.ndarray:
        if actions.dtype.kind not in "iub" or actions.shape[1:] != space.shape:
            raise self.error(
                f"actions have type {actions.dtype} and shape {actions.shape}: {space.shape[0]} integers per step are "
                "needed"
            )
        bad = space.outside(actions)
        if bad.any():
            step, number = np.argwhere(bad)[0]
            raise self.error(
                f"{int(bad.sum())} actions are out of range, the first {actions[step, number]} at "
                f"{_where(step, lengths)}, number {number}: it runs from 0 to {space.nvec[number] - 1}"
            )
        return actions.astype(np.int32)

    def _continuous(
        self, actions: np.ndarray, space: Continuous | None, lengths: np.ndarray
    ) -> tuple[np.ndarray, Continuous]:
        if space is None:
            low, high = actions.min(0), actions.max(0)
            flat = low == high
            low, high = np.where(flat, low - 1, low), np.where(flat, high + 1, high)
            try:
                return actions, Continuous(tuple(map(float, low)), tuple(map(float, high)))
            except SpecError as error:
                raise self.error(f"the extremes of the actions cannot be bounds: {error}") from error
        if actions.shape[1:] != space.shape:
            raise self.error(
                f"actions have {actions.shape[1]} dimensions, action_space has {space.shape[0]}: both must be equal"
            )
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        found = _first(actions, space.outside)
        if found is not None:
            count, step, dimension = found
            raise self.error(
                f"{count} action values are outside the bounds, the first {actions[step, dimension]:g} at "
                f"{_where(step, lengths)}, dimension {dimension}: the bounds are "
                f"[{low[dimension]:g}, {high[dimension]:g}]"
            )
        rounded = _first(actions, lambda block: (block < low) | (block > high)) is not None
        return np.clip(actions, low, high) if rounded else actions, space

    def _finite(self, name: str, array: np.ndarray, where: Callable[[int], str], dropped: str) -> np.ndarray:
        found = _first(array, lambda block: ~np.isfinite(block))
        if found is not None:
            count, row, dimension = found
            raise self.error(
                f"{name} has {count} values that are NaN or infinite, the first at {where(row)}, "
                f"dimension {dimension}: repair or drop {dropped}"
            )
        return array

    def _float32(self, array: np.ndarray) -> np.ndarray:
        """Convert to a 2-D float32 array. Numbers that are too large become infinite, and NaN of any kind stays NaN."""
        with np.errstate(over="ignore", invalid="ignore"):
            return array.astype(np.float32, copy=self.copy).reshape(len(array), -1)

    def _steps(self, name: str, array: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        if len(array) != lengths.sum():
            raise self.error(f"{name} has {len(array)} rows, observations have {lengths.sum()}: both must be equal")
        return array


def _first(array: np.ndarray, bad: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int, int] | None:
    """The number of bad values, and the row and column of the first; None if there are none."""
    count, first = 0, (0, 0)
    for rows in blocks(array):
        mask = bad(array[rows])
        if count == 0 and mask.any():
            row, column = np.argwhere(mask)[0]
            first = (rows.start + int(row), int(column))
        count += int(mask.sum())
    return (count, *first) if count else None


def _where(step: int | np.integer, lengths: np.ndarray) -> str:
    """Name the episode and its step."""
    episode = int(np.searchsorted(np.cumsum(lengths), step, side="right"))
    return f"episode {episode}, step {step - int(lengths[:episode].sum())}"
