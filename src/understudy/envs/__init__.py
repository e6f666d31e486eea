"""Environments: pure JAX ones by name, and anything Gymnasium knows through a bridge."""

from typing import Any

from understudy.envs.base import Environment, Timestep
from understudy.envs.forest import Forest
from understudy.envs.host import HostEnvironment
from understudy.envs.pendulum import Pendulum
from understudy.errors import SpecError

JAX_ENVIRONMENTS: dict[str, type[Environment]] = {env.name: env for env in (Forest, Pendulum)}

__all__ = ["JAX_ENVIRONMENTS", "Environment", "Forest", "HostEnvironment", "Pendulum", "Timestep", "make"]


def make(env: Any) -> Environment | HostEnvironment:
    """An environment from its name, from a function that makes a Gymnasium one, or as it is."""
    if isinstance(env, Environment | HostEnvironment):
        return env
    if isinstance(env, str) and env in JAX_ENVIRONMENTS:
        return JAX_ENVIRONMENTS[env]()
    if isinstance(env, str) or callable(env):
        return HostEnvironment(env, known=tuple(JAX_ENVIRONMENTS))
    raise SpecError(
        f"env is a {type(env).__name__}: give a name, an environment of understudy, or a function making one"
    )
