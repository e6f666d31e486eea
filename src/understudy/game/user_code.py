"""Errors of functions that a user wrote and JAX traces, in one line: the cause, the file and the line."""

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from understudy.core.errors import AlgorithmError, SettingError, UnderstudyError
from understudy.core.text import quoted

MISTAKES: tuple[tuple[type[Exception], str], ...] = (
    (jax.errors.TracerArrayConversionError, "it calls NumPy on an array that JAX traces: use jax.numpy"),
    (jax.errors.TracerBoolConversionError, "it uses `if`, `and`, `or` or `while` on an array: use jnp.where"),
    (jax.errors.NonConcreteBooleanIndexError, "it indexes by a mask, so its shape depends on values: use jnp.where"),
    (jax.errors.TracerIntegerConversionError, "it uses an array as a Python integer: use jax.numpy"),
    (jax.errors.ConcretizationTypeError, "it uses an array as a Python number: use jax.numpy"),
    (jax.errors.UnexpectedTracerError, "it uses an array that it stored in an earlier call: compute it in each call"),
)
"""JAX's errors and the usual mistake behind each. The first that fits counts."""


def explain(error: BaseException, function: Any) -> str:
    """What went wrong when JAX traced a user's function, and where."""
    for kind, mistake in MISTAKES:
        if isinstance(error, kind):
            return f"{mistake}{_place(error, function)}"
    # Typed by a person: the first line of a message says what is wrong, the others are advice about JAX.
    first = (str(error).strip().splitlines() or [""])[0]
    return f"it raised {type(error).__name__}: {quoted(first)}{_place(error, function)}"


@contextmanager
def calling(name: str, function: Any) -> Iterator[None]:
    """Errors of an algorithm's method, such as "mine.update", become an `AlgorithmError` that names it."""
    try:
        yield
    except (UnderstudyError, OverflowError):  # the latter: an array larger than any machine, see `train.sizes`
        raise
    except Exception as error:
        raise AlgorithmError(f"{name} failed: {explain(error, function)}") from error


def check_function(arguments: tuple[str, ...], **settings: Any) -> None:
    """Raise unless every setting is None or a function of these arguments that can be a part of a compiled program."""
    wanted = ", ".join(arguments)
    for name, function in settings.items():
        if function is None:
            continue
        if not callable(function):
            raise SettingError(f"{name} is {function!r}: give a function of ({wanted})")
        try:
            hash(function)
        except TypeError:
            kind = type(function).__name__
            raise SettingError(f"{name} is a {kind} that has no hash: put it in a function") from None
        taken = parameters(function, len(arguments))
        if taken is not None:
            raise SettingError(f"{name} takes {taken}: give a function of ({wanted})")


def yes_or_no(name: str, function: Callable[..., Any], *inputs: Any) -> Bool[Array, ""]:
    """The answer of a user's function `name` at one state, as a boolean scalar."""
    rule = f"{name} must return one boolean computed with jax.numpy"
    try:
        found: Any = function(*inputs)
    except UnderstudyError:
        raise
    except Exception as error:
        raise SettingError(f"{rule}; {explain(error, function)}") from error
    if not isinstance(found, bool | np.bool_ | np.ndarray | jax.Array):
        raise SettingError(f"{rule}; it returned a {type(found).__name__}")
    if jnp.shape(found) != () or jnp.asarray(found).dtype != bool:
        given = jnp.asarray(found)
        raise SettingError(f"{rule}; it returned {given.dtype} of shape {given.shape}: compare, as in obs[0] > 1")
    return jnp.asarray(found)


def parameters(function: Callable[..., Any], count: int) -> str | None:
    """The parameters of a function that cannot be called with `count` arguments; None if it can, or if unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return None
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return quoted(signature)
    return None


def _place(error: BaseException, function: Any) -> str:
    """The innermost line of the function's own file in the traceback."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    return f" ({quoted(Path(own[-1].filename).name)}, line {own[-1].lineno})" if own else ""
