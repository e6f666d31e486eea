"""Environments written in JAX: pure functions of a state, so that a whole batch of episodes is one compiled program."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Bool, Float, Key

from understudy.core.arrays import Array
from understudy.core.types import Spec
from understudy.policies import Policy

EnvState = Any
"""An environment's state: a pytree of arrays."""


class Timestep(NamedTuple):
    """What a step returns."""

    state: EnvState
    obs: Float[Array, " obs"]
    reward: Float[Array, ""]
    terminal: Bool[Array, ""]
    """The new state is absorbing. Time limits are the horizon's business, not the environment's."""


class Environment(eqx.Module):
    """Abstract: one episode at a time, under jit and vmap; its arrays (a forest's trees) are leaves. Final below."""

    name: ClassVar[str]
    about: ClassVar[str]

    @property
    @abstractmethod
    def spec(self) -> Spec: ...

    @abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Float[Array, " obs"]]: ...

    @abstractmethod
    def step(self, state: EnvState, act: Array, key: Key[Array, ""]) -> Timestep: ...

    @abstractmethod
    def expert(self) -> Policy:
        """The scripted expert that its bundled demonstrations come from."""
