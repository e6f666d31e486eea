"""Functions that take NumPy or JAX arrays, and random numbers for both.

Policies also act in simulators that are not written in JAX. There the same code runs on NumPy arrays, because sending
every observation to an accelerator would be slow.
"""

from types import ModuleType
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Key

from understudy.core import jax_setup as jax_setup  # before JAX is used

Array = Any
"""A JAX or a NumPy array."""
Source = Key[jax.Array, ""] | np.random.Generator
"""A source of random numbers: a key for JAX arrays, a generator for NumPy arrays."""


class Light(eqx.Module):
    """An Equinox module with plain methods.

    Equinox wraps a method in a pytree at every attribute access, so that it can be passed to a compiled function. This
    takes 40 µs, several times per action; a 256 x 256 network needs 20 µs. No method of ours is passed that way.

    It also pickles without a memory leak. Equinox keeps a reference to every module whose `__init__` has not run, and
    pickle does not run it, so a worker that receives a policy for every update would keep all of them.
    """

    if not TYPE_CHECKING:
        __getattribute__ = object.__getattribute__

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), vars(self))


def _rebuild(kind: type, fields: dict[str, Any]) -> Any:
    """Make a module from its fields without calling `__init__`."""
    module: Any = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(module, name, value)
    return module


def namespace(*arrays: Array) -> ModuleType:
    """Return `jax.numpy` if any argument is a JAX array, else `numpy`."""
    return jnp if any(isinstance(array, jax.Array) for array in arrays) else np


def normal(source: Source, like: Array) -> Array:
    """Draw standard normal numbers with the shape and dtype of `like`."""
    if isinstance(source, np.random.Generator):
        return source.standard_normal(like.shape).astype(like.dtype)
    return jax.random.normal(source, like.shape, like.dtype)


def categorical(source: Source, logits: Array) -> Array:
    """Draw one index for each row of `logits` with probability softmax(logits)."""
    if isinstance(source, np.random.Generator):
        return np.argmax(logits + source.gumbel(size=logits.shape), axis=-1)
    return jax.random.categorical(source, logits)
