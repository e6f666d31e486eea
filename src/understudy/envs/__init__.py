"""Environments: Forest, Pendulum and finite MDPs written in JAX, and any environment of Gymnasium.

Imports core, policies, game and tabular. Public: `make`, which returns an `Environment` (JAX) or a
`GymnasiumEnvironment`; `Forest`, `Pendulum`, `Finite`; `NamedEnv`, an environment by name; `public_name`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
from gymnasium import Env as GymEnv  # the name gymnasium is that of our own module here

from understudy.core.errors import SettingError, SpecError
from understudy.core.text import quoted
from understudy.envs.base import Environment, Timestep
from understudy.envs.finite import Finite
from understudy.envs.forest import Forest
from understudy.envs.gymnasium import GymnasiumEnvironment
from understudy.envs.making import Maker, Wrap
from understudy.envs.naming import NamedEnv
from understudy.envs.output import redirected
from understudy.envs.pendulum import Pendulum
from understudy.envs.stepping import made
from understudy.envs.trial import check_environment

JAX_ENVIRONMENTS: dict[str, type[Environment]] = {env.name: env for env in (Forest, Pendulum)}

__all__ = [
    "JAX_ENVIRONMENTS",
    "Environment",
    "Finite",
    "Forest",
    "GymnasiumEnvironment",
    "NamedEnv",
    "Pendulum",
    "Timestep",
    "make",
    "make_unfinished",
    "named_env",
    "public_name",
]


def make(
    env: Any, horizon: int | None = None, env_args: Mapping[str, Any] | None = None, wrap: Sequence[Wrap] = ()
) -> Environment | GymnasiumEnvironment:
    """Make an environment.

    Args:
        env: A name ("CartPole-v1", "module:Id-v0", "module:function"), a function or a class that makes an environment,
            or an environment. One of Gymnasium is copied: from its `spec` if it has one, else by deepcopy; if neither
            works, its episodes run one after the other. An environment of understudy is returned unchanged.
        horizon: Steps after which an episode of a Gymnasium environment is truncated. Default: its time limit. It is
            needed if there is none.
        env_args: Keyword arguments of the function, the class or the id.
        wrap: Wrappers, from the inside out: classes, or names "module:Class".
    """
    found = make_unfinished(env, horizon, env_args, wrap)
    if isinstance(found, GymnasiumEnvironment):
        found.checked_horizon()
    return found


def make_unfinished(
    env: Any, horizon: int | None = None, env_args: Mapping[str, Any] | None = None, wrap: Sequence[Wrap] = ()
) -> Environment | GymnasiumEnvironment:
    """As `make`, but a Gymnasium environment may lack a horizon, which demonstrations or a policy may know."""
    if isinstance(env, NamedEnv):
        env, horizon, env_args, wrap = env.name, env.horizon, env.args, env.wrap
    if isinstance(env, str) and env in JAX_ENVIRONMENTS:
        env = JAX_ENVIRONMENTS[env]
    if isinstance(env, Environment | GymnasiumEnvironment):
        if env_args or wrap:
            given = f"env_args is {quoted(dict(env_args))}" if env_args else f"wrap is {quoted(list(wrap))}"
            raise SettingError(f"{given}, and {env.name} is made already: pass its name or a function")
        found: Any = env
    elif isinstance(env, str | GymEnv) or callable(env):
        maker = Maker(env, env_args, wrap, tuple(JAX_ENVIRONMENTS))
        with redirected(maker.quiet):
            found = made(maker.name, maker)
            if not isinstance(found, Environment):
                return made(maker.name, lambda: GymnasiumEnvironment(maker, found, horizon))
        if wrap:
            raise SettingError(f"wrap is {quoted(list(wrap))}: wrappers are for environments of Gymnasium")
    else:
        raise SpecError(
            f"env is a {type(env).__name__}: pass a name, an environment, or a function that makes a Gymnasium "
            "environment"
        )
    if isinstance(found, GymnasiumEnvironment):
        return found if horizon is None else found.with_horizon(horizon)
    check_environment(found)
    if horizon is not None and horizon != found.spec.horizon:
        raise SettingError(f"horizon is {horizon!r}: {found.name} has {found.spec.horizon} steps, which cannot change")
    return found


def public_name(env: Environment | GymnasiumEnvironment) -> str | None:
    """The name from which `make` makes an equal environment, or None (a custom forest, a user's function)."""
    if isinstance(env, GymnasiumEnvironment):
        return None if env.named is None or env.named.args or env.named.wrap else env.named.name
    default = JAX_ENVIRONMENTS[env.name]() if env.name in JAX_ENVIRONMENTS else None
    same = default is not None and type(default) is type(env) and eqx.tree_equal(default, env)
    return env.name if same else None


def named_env(given: Any, env: Environment | GymnasiumEnvironment) -> NamedEnv | None:
    """How a later command makes the environment `env`, which was made from `given`; None: it has no name."""
    if isinstance(env, GymnasiumEnvironment):
        return env.named
    if isinstance(given, NamedEnv):
        return given
    name = given if isinstance(given, str) else public_name(env)
    return None if name is None else NamedEnv(name)
