"""Environments: Forest, Pendulum and finite MDPs written in JAX, and any environment of Gymnasium.

Imports core, policies, game and tabular. Public: `make`, which returns an `Environment` (JAX) or a
`GymnasiumEnvironment`; `Forest`, `Pendulum`, `Finite`; `public_name`.
"""

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
    """Make an environment from its name or from a function that returns a Gymnasium environment.

    An environment of understudy is returned unchanged. `horizon` truncates the episodes of a Gymnasium environment; the
    default is its time limit, or 1000 steps if it has none.
    """
    if isinstance(env, Environment | GymnasiumEnvironment):
        return env
    if isinstance(env, str) and env in JAX_ENVIRONMENTS:
        return JAX_ENVIRONMENTS[env]()
    if isinstance(env, str) or callable(env):
        return GymnasiumEnvironment(env, tuple(JAX_ENVIRONMENTS), horizon)
    raise SpecError(
        f"env is a {type(env).__name__}: pass a name, an environment of understudy, or a function that makes a "
        "Gymnasium environment"
    )


def public_name(env: Environment | GymnasiumEnvironment) -> str | None:
    """The name from which `make` makes an equal environment, or None (a custom forest, a user's function)."""
    if isinstance(env, GymnasiumEnvironment):
        return env.name if env.registered else None
    default = JAX_ENVIRONMENTS[env.name]() if env.name in JAX_ENVIRONMENTS else None
    same = default is not None and type(default) is type(env) and eqx.tree_equal(default, env)
    return env.name if same else None
