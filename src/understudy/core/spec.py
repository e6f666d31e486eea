"""A task's spec: the shape of observations, the actions, the horizon. Imports no JAX."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import numpy as np

from understudy.core.errors import SettingError, SpecError
from understudy.core.memory import array_bytes, readable
from understudy.core.parts import Parts, check_parts
from understudy.core.text import quoted

DEFAULT_WIDTH = DEFAULT_BATCH = 256
"""Hidden units of a layer, and the size of a minibatch, by default."""
LARGEST_BOUND = 1e37
"""Action bounds are at most this large, so that their difference is finite in float32."""
MOST_ACTIONS = 65_536
"""Discrete actions of a task. A policy's last layer has a column for each."""
MOST_STEPS = 10_000_000
"""Steps of an episode."""


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


ActionSpace = Continuous | Discrete


@dataclass(frozen=True)
class Spec:
    """A task's observations, actions, and horizon T."""

    obs_shape: tuple[int, ...]
    action: ActionSpace
    horizon: int
    policy_obs: tuple[int, ...] | None = None
    """Indices of the flat observation that the policy sees; None: all."""
    obs_parts: Parts = ()
    """Names and sizes of the parts of the flat observation, in order; empty: no names."""
    critic_obs: tuple[int, ...] | None = None
    """Indices of the flat observation that critics and moment functions see; None: all."""

    def __post_init__(self) -> None:
        check_parts(self.obs_parts, self.obs_size)
        for name in ("policy_obs", "critic_obs"):
            object.__setattr__(self, name, self._indices(name, getattr(self, name)))

    def _indices(self, name: str, given: Any) -> tuple[int, ...] | None:
        """Different indices of the observation, or None."""
        if given is None:
            return None
        seen = tuple(given) if isinstance(given, Iterable) else ()
        whole = all(isinstance(i, SupportsIndex) and not isinstance(i, bool) for i in seen)
        if not seen or not whole or len(set(seen)) < len(seen) or not all(0 <= i < self.obs_size for i in seen):
            raise SettingError(
                f"{name} is {given!r}: different whole numbers from 0 to {self.obs_size - 1} are needed, or None for "
                "the whole observation"
            )
        return tuple(operator.index(i) for i in seen)

    @property
    def obs_size(self) -> int:
        return int(np.prod(self.obs_shape))

    @property
    def num_actions(self) -> int | None:
        """The number of discrete actions; None if actions are continuous."""
        return self.action.n if isinstance(self.action, Discrete) else None

    @property
    def action_size(self) -> int:
        """The number of discrete actions, or the dimension of continuous ones: a network's outputs for an action."""
        return self.action.n if isinstance(self.action, Discrete) else len(self.action.low)

    def with_extra_obs(self, count: int) -> "Spec":
        """The same task with `count` more numbers at the end of the observation, visible to policy and critics."""
        size = self.obs_size + count
        both = (self.policy_obs, self.critic_obs)
        policy, critic = (None if seen is None else (*seen, *range(self.obs_size, size)) for seen in both)
        return replace(self, obs_shape=(size,), policy_obs=policy, critic_obs=critic, obs_parts=())
