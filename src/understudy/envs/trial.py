"""A trial of a person's JAX environment: its spec and methods are traced once, so that a mistake is one line."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from understudy.core.errors import SpecError, UnderstudyError
from understudy.core.text import quoted
from understudy.core.types import Continuous, Spec
from understudy.envs.base import Environment, Timestep


def check_environment(env: Environment) -> None:
    """Raise SpecError unless the spec and the methods of an environment fit together. Nothing is computed."""
    if type(env).__module__.partition(".")[0] == "understudy":
        return
    spec = _tried(env, "spec", lambda: env.spec)
    if not isinstance(spec, Spec):
        needed = "understudy.Spec(obs_shape, action, horizon)"
        raise SpecError(f"{type(env).__name__}.spec is a {type(spec).__name__}: {needed} is needed")
    key = jax.eval_shape(lambda: jax.random.key(0))
    first = _tried(env, "reset(key)", lambda: jax.eval_shape(env.reset, key))
    if not isinstance(first, tuple) or len(first) != 2:
        raise SpecError(f"{type(env).__name__}.reset returned a {type(first).__name__}: (state, observation) is needed")
    state, obs = first
    _check_shape(env, "reset", "observation", obs, spec.obs_shape)
    act = np.zeros(spec.action.shape, np.float32 if isinstance(spec.action, Continuous) else np.int32)
    step = _tried(env, "step(state, act, key)", lambda: jax.eval_shape(env.step, state, act, key))
    if not isinstance(step, Timestep):
        needed = "understudy.Timestep(state, observation, reward, terminal)"
        raise SpecError(f"{type(env).__name__}.step returned a {type(step).__name__}: {needed} is needed")
    _check_shape(env, "step", "observation", step.obs, spec.obs_shape)
    _check_shape(env, "step", "reward", step.reward, ())
    _check_shape(env, "step", "terminal", step.terminal, ())
    if step.success is not None:
        _check_shape(env, "step", "success", step.success, ())
    _check_same_state(env, "step", step.state, state)


def check_set_state(env: Environment) -> None:
    """Raise SpecError unless `set_state` fits the environment, and NeedsError if there is none. Nothing is computed."""
    state, obs = jax.eval_shape(env.reset, jax.eval_shape(lambda: jax.random.key(0)))
    t = np.zeros((), np.int32)
    placed = _tried(env, "set_state(obs, t)", lambda: jax.eval_shape(env.set_state, obs, t))
    if not isinstance(placed, tuple) or len(placed) != 2:
        needed = "(state, observation) is needed"
        raise SpecError(f"{type(env).__name__}.set_state returned a {type(placed).__name__}: {needed}")
    _check_shape(env, "set_state", "observation", placed[1], env.spec.obs_shape)
    _check_same_state(env, "set_state", placed[0], state)


def _check_same_state(env: Environment, method: str, returned: Any, first: Any) -> None:
    """Raise unless the state has the shapes of that of `reset`."""
    before, after = (jax.tree.map(lambda x: x.shape, one) for one in (first, returned))
    if before != after:
        raise SpecError(
            f"{type(env).__name__}.{method} returned a state of shapes {quoted(after)}: the state of reset has "
            f"{quoted(before)}, and both must agree"
        )


def _tried(env: Environment, what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except UnderstudyError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise SpecError(f"{type(env).__name__}.{what} raised {type(error).__name__}: {quoted(reason, 300)}") from error


def _check_shape(env: Environment, method: str, what: str, value: Any, shape: tuple[int, ...]) -> None:
    found = getattr(value, "shape", None)
    if found != shape:
        raise SpecError(f"{type(env).__name__}.{method} returned the {what} {quoted(value)}: shape {shape} is needed")
