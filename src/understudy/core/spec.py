"""A task's spec: the shape of observations, the actions, the horizon. Imports no JAX."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

import numpy as np

from understudy.core.actions import (
    DEFAULT_BATCH,
    DEFAULT_WIDTH,
    LARGEST_BOUND,
    MOST_ACTIONS,
    ActionSpace,
    Continuous,
    Discrete,
    MultiDiscrete,
    action_kind,
    actions_memory,
)
from understudy.core.errors import SettingError
from understudy.core.parts import Parts, check_parts

__all__ = [
    "DEFAULT_BATCH",
    "DEFAULT_WIDTH",
    "LARGEST_BOUND",
    "MOST_ACTIONS",
    "MOST_STEPS",
    "ActionSpace",
    "Continuous",
    "Discrete",
    "MultiDiscrete",
    "Spec",
    "action_kind",
    "actions_memory",
]
MOST_STEPS = 10_000_000
"""Steps of an episode."""


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

    def __repr__(self) -> str:
        """Without the critic's inputs where it sees all: the digests that name a study's cells contain this text."""
        fields = {name: value for name, value in vars(self).items() if name != "critic_obs" or value is not None}
        return f"Spec({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

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
        """The number of discrete actions; None if actions are continuous or multi-discrete."""
        return self.action.n if isinstance(self.action, Discrete) else None

    @property
    def action_size(self) -> int:
        """The number of discrete actions, or the dimension of continuous ones: a network's outputs for an action."""
        if isinstance(self.action, MultiDiscrete):
            return sum(self.action.nvec)
        return self.action.n if isinstance(self.action, Discrete) else len(self.action.low)

    def with_extra_obs(self, count: int) -> "Spec":
        """The same task with `count` more numbers at the end of the observation, visible to policy and critics."""
        size = self.obs_size + count
        both = (self.policy_obs, self.critic_obs)
        policy, critic = (None if seen is None else (*seen, *range(self.obs_size, size)) for seen in both)
        return replace(self, obs_shape=(size,), policy_obs=policy, critic_obs=critic, obs_parts=())
