"""Features φ(s, a) that a user chooses: the moments to match. They are checked before training and whenever traced."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from understudy.core.errors import SettingError, UnderstudyError
from understudy.core.types import Spec
from understudy.game.user_code import check_function, explain

Features = Callable[[Array, Array], Float[Array, " k"]]
"""φ(s, a): one observation and one action as vectors ↦ a vector. A discrete action is a vector of probabilities."""
RULE = "moments(obs, act) must return a vector of numbers computed with jax.numpy"


def state_action(obs: Array, act: Array) -> Float[Array, " k"]:
    """The default features: state and action."""
    return jnp.concatenate([obs, act])


def visible(obs: Float[Array, "... obs"], seen: tuple[int, ...] | None) -> Float[Array, "... obs"]:
    """The observation as a critic sees it (`Spec.critic_obs`): other numbers than those at `seen` are 0. None: all."""
    if seen is None:
        return obs
    return jnp.where(np.isin(np.arange(obs.shape[-1]), seen), obs, 0)


def check_features(features: Any, name: str = "moments") -> None:
    """Raise unless the setting is None or a function of two arguments that can be a part of a compiled program."""
    check_function(("obs", "act"), **{name: features})


def evaluate(features: Features, obs: Array, act: Array, width: int | None = None) -> Float[Array, " k"]:
    """φ(s, a), checked: a vector of `width` floating-point numbers (None: any number of them)."""
    with _explained(features):
        found: Any = features(obs, act)
    if not isinstance(found, jax.Array | np.ndarray):
        raise SettingError(f"{RULE}; it returned {_words(found)}")
    if found.ndim != 1 or found.shape[0] == 0:
        raise SettingError(f"{RULE}; it returned an array of shape {found.shape}{_vector_hint(found.ndim)}")
    if not jnp.issubdtype(found.dtype, jnp.floating):
        raise SettingError(
            f"{RULE}; it returned {found.dtype} numbers: floats are needed, since gradients pass through"
        )
    if width is not None and found.shape[0] != width:
        raise SettingError(f"{RULE}; it returned {found.shape[0]} numbers after {width} before: keep one length")
    return jnp.asarray(found)


def width_of(features: Features, spec: Spec) -> int:
    """The number of features. Raises if the function does not fit the task."""
    obs, act = jnp.zeros(spec.obs_shape), jnp.zeros(spec.action_size)
    try:
        shaped = jax.eval_shape(lambda s, a: evaluate(features, s, a), obs, act)
    except SettingError as error:
        if spec.num_actions is None:
            raise
        raise SettingError(f"{error}; act is a vector of {spec.num_actions} probabilities") from error
    return int(shaped.shape[0])


def not_finite(features: Features, obs: Array, act: Array) -> Bool[np.ndarray, " n"]:
    """At which rows φ is NaN or infinite. Actions are vectors."""
    return ~np.isfinite(_rows(features, obs, act)).all(axis=1)


def largest(features: Features, obs: Array, act: Array) -> float:
    """The largest |φ| of all rows."""
    return float(np.abs(_rows(features, obs, act)).max())


def gradient_not_finite(features: Features, obs: Array, act: Array) -> Bool[np.ndarray, " n"]:
    """At which rows the gradient of φ by state and action is NaN or infinite."""

    def bad(s: Array, a: Array) -> Array:
        parts = jax.jacrev(lambda *x: evaluate(features, *x), argnums=(0, 1))(s, a)
        return ~jnp.stack([jnp.isfinite(part).all() for part in parts]).all()

    return np.asarray(jax.jit(jax.vmap(bad))(jnp.asarray(obs), jnp.asarray(act)))


def _rows(features: Features, obs: Array, act: Array) -> Float[np.ndarray, "n k"]:
    with _explained(features):  # an array that was stored in an earlier call is found only now
        return np.asarray(jax.jit(jax.vmap(lambda s, a: evaluate(features, s, a)))(jnp.asarray(obs), jnp.asarray(act)))


@contextmanager
def _explained(features: Features) -> Iterator[None]:
    """Errors of the user's function become one line."""
    try:
        yield
    except UnderstudyError:
        raise
    except (Exception, SystemExit) as error:
        raise SettingError(f"{RULE}; {explain(error, features)}") from error


def _words(found: Any) -> str:
    if found is None:
        return "None: does it lack a return?"
    if isinstance(found, bool | int | float | complex | np.generic):
        return f"the number {found!r}: put it in jnp.array([...])"
    if isinstance(found, tuple | list):
        return f"a {type(found).__name__} of {len(found)}: join its parts with jnp.concatenate or jnp.stack"
    return f"a {type(found).__name__}"


def _vector_hint(dimensions: int) -> str:
    return {0: ", a scalar: use jnp.stack([...])", 1: ""}.get(dimensions, ": use jnp.ravel")
