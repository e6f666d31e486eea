"""Spaces of actions: a box, one number, or several numbers."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np

from understudy.core.errors import SpecError
from understudy.core.memory import array_bytes, readable
from understudy.core.text import quoted

DEFAULT_WIDTH = DEFAULT_BATCH = 256
"""Hidden units of a layer, and the size of a minibatch, by default."""
LARGEST_BOUND = 1e37
"""Action bounds are at most this large, so that their difference is finite in float32."""
MOST_ACTIONS = 65_536
"""Discrete actions of a task. A policy's last layer has a column for each."""


def actions_memory(actions: int) -> str:
    """The memory that training a network of the default width with this many outputs needs, for a person.

    The last layer's weights, their gradient, Adam's two moments, and the outputs for a minibatch.
    """
    return readable(array_bytes((4 * DEFAULT_WIDTH + DEFAULT_BATCH, actions), np.float32))


@dataclass(frozen=True)
class Continuous:
    """A box of actions, with finite bounds for each dimension."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            try:
                bound = tuple(float(x) for x in getattr(self, name))
            except (TypeError, ValueError):
                given = quoted(repr(getattr(self, name)))
                raise SpecError(f"{name} is {given}: one number per action dimension is needed") from None
            object.__setattr__(self, name, bound)
        if len(self.low) != len(self.high) or not self.low:
            raise SpecError(
                f"action bounds need one low and one high per dimension, got {quoted(self.low)} and {quoted(self.high)}"
            )
        for i, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if not (max(abs(low), abs(high)) <= LARGEST_BOUND and low < high):
                raise SpecError(
                    f"action dimension {i} has bounds [{low}, {high}]: they must be finite and low < high, and at most "
                    f"{LARGEST_BOUND:g} in size"
                )
            if np.float32(low) == np.float32(high):
                raise SpecError(f"action dimension {i} has bounds [{low}, {high}]: they are equal in float32")

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.low),)

    def outside(self, actions: np.ndarray) -> np.ndarray:
        """Mask of numbers beyond the bounds, by more than rounding."""
        low, high = np.asarray(self.low, np.float32), np.asarray(self.high, np.float32)
        slack = 1e-5 * (high - low)
        return np.asarray((actions < low - slack) | (actions > high + slack))


@dataclass(frozen=True)
class Discrete:
    """Actions 0, ..., n - 1."""

    n: int

    def __post_init__(self) -> None:
        if not isinstance(self.n, SupportsIndex) or not 1 <= operator.index(self.n) <= MOST_ACTIONS:
            raise SpecError(
                f"a discrete action space has n = {quoted(repr(self.n))}: a whole number from 1 to {MOST_ACTIONS} is "
                f"needed (a network for {MOST_ACTIONS} takes about {actions_memory(MOST_ACTIONS)} to train)"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def outside(self, actions: np.ndarray) -> np.ndarray:
        """Mask of invalid actions."""
        return np.asarray((actions < 0) | (actions >= self.n) | (actions != np.floor(actions)))


@dataclass(frozen=True)
class MultiDiscrete:
    """Several discrete actions at once: number i is one of 0, ..., nvec[i] - 1."""

    nvec: tuple[int, ...]

    def __post_init__(self) -> None:
        counts = tuple(self.nvec) if isinstance(self.nvec, Iterable) else ()
        whole = [isinstance(n, SupportsIndex) and not isinstance(n, bool) and operator.index(n) >= 1 for n in counts]
        if not counts or not all(whole) or sum(counts) > MOST_ACTIONS:
            raise SpecError(
                f"a multi-discrete action space has nvec = {quoted(repr(self.nvec))}: whole numbers from 1, at most "
                f"{MOST_ACTIONS} in all, are needed"
            )
        object.__setattr__(self, "nvec", tuple(operator.index(n) for n in counts))

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    def outside(self, actions: np.ndarray) -> np.ndarray:
        """Mask of invalid numbers."""
        return np.asarray((actions < 0) | (actions >= np.array(self.nvec)) | (actions != np.floor(actions)))


ActionSpace = Continuous | Discrete | MultiDiscrete


def action_kind(space: ActionSpace) -> str:
    """The kind of actions, in words."""
    if isinstance(space, MultiDiscrete):
        return "multi-discrete"
    return "discrete" if isinstance(space, Discrete) else "continuous"
