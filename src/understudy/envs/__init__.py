"""Environments: pure JAX ones by name, and anything Gymnasium knows through a bridge."""

from typing import Any

import equinox as eqx

from understudy.core.errors import SpecError
from understudy.envs.base import Environment, Timestep
from understudy.envs.finite import Finite
from understudy.envs.forest import Forest
from understudy.envs.gymnasium import GymnasiumEnvironment
from understudy.envs.pendulum import Pendulum

JAX_ENVIRONMENTS: dict[str, type[Environment]] = {env.name: env for env in (Forest, Pendulum)}

__all__ = [
    "JAX_ENVIRONMENTS",
    "Environment",
    "Finite",
    "Forest",
    "GymnasiumEnvironment",
    "Pendulum",
    "Timestep",
    "make",
    "public_name",
]


def make(env: Any, horizon: int | None = None) -> Environment | GymnasiumEnvironment:
    """An environment from its name, from a function that makes a Gymnasium one, or as it is.

    `horizon` is where episodes of a Gymnasium environment are cut; by default its time limit, or 1000 if it has none.
    """
    if isinstance(env, Environment | GymnasiumEnvironment):
        return env
    if isinstance(env, str) and env in JAX_ENVIRONMENTS:
        return JAX_ENVIRONMENTS[env]()
    if isinstance(env, str) or callable(env):
        return GymnasiumEnvironment(env, tuple(JAX_ENVIRONMENTS), horizon)
    raise SpecError(
        f"env is a {type(env).__name__}: give a name, an environment of understudy, or a function making one"
    )


def public_name(env: Environment | GymnasiumEnvironment) -> str | None:
    """The name that makes this environment again, or None: a forest planted by hand, a function of the user's."""
    if isinstance(env, GymnasiumEnvironment):
        return env.name if env.registered else None
    default = JAX_ENVIRONMENTS[env.name]() if env.name in JAX_ENVIRONMENTS else None
    same = default is not None and type(default) is type(env) and eqx.tree_equal(default, env)
    return env.name if same else None
