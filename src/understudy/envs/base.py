"""The interface of environments written in JAX: pure functions, so that a batch of episodes is one compiled program."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Bool, Float, Int, Key

from understudy.core.arrays import Array
from understudy.core.errors import NeedsError
from understudy.core.types import Spec
from understudy.game.costs import Cost
from understudy.policies import Policy

EnvState = Any
"""An environment's state: a pytree of arrays."""


class Timestep(NamedTuple):
    """The result of a step."""

    state: EnvState
    obs: Float[Array, " obs"]
    reward: Float[Array, ""]
    terminal: Bool[Array, ""]
    """Whether the new state is absorbing. Truncation at the horizon is not termination and is not set here."""
    success: Bool[Array, ""] | None = None
    """Whether the task is solved now; None: the environment does not say. An episode's last step counts."""


class Environment(eqx.Module):
    """Abstract base class: one episode at a time, for use under jit and vmap. Every subclass is final.

    Arrays of an environment, such as a forest's trees, are leaves of the pytree.
    """

    name: ClassVar[str] = ""
    """Default: the name of the class."""
    about: ClassVar[str] = ""
    """One line for `understudy envs`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.name:
            cls.name = cls.__name__

    @property
    @abstractmethod
    def spec(self) -> Spec: ...

    @abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[EnvState, Float[Array, " obs"]]: ...

    @abstractmethod
    def step(self, state: EnvState, act: Array, key: Key[Array, ""]) -> Timestep: ...

    def set_state(self, obs: Float[Array, " obs"], t: Int[Array, ""]) -> tuple[EnvState, Float[Array, " obs"]]:
        """The state that a demonstrated step `t` with this observation began in, and the observation of that state.

        Optional. Episodes can then begin at demonstrated steps (`start_share`).
        """
        raise NeedsError(
            f"{self.name} cannot be set to a state: define {self.name}.set_state(obs, t), which returns "
            "(state, observation) as reset does, or leave out start_share"
        )

    def expert(self) -> Policy:
        """The scripted expert, if there is one."""
        raise NeedsError(
            f"{self.name} has no scripted expert: pass expert=, or --expert in the shell: a policy, function or path"
        )

    def cost(self) -> Cost:
        """The cost c(s, a) as a function of observation and action, if there is one."""
        raise NeedsError(
            f"{self.name} has no cost of its own: pass cost=, a function of (obs, act), or --cost module:function"
        )
