"""Arrays of either kind, and the sources of randomness of both.

Acting in a simulator that is not written in JAX must not cross to an accelerator once a step, so policies run on NumPy
too. The same lines serve both: the arrays decide.
"""

from types import ModuleType
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Key

Array = Any
"""A JAX array, or a NumPy one on the host."""
Source = Key[jax.Array, ""] | np.random.Generator
"""Where random numbers come from: a key for JAX arrays, a generator for NumPy ones."""


class Light(eqx.Module):
    """A module whose methods are plain ones.

    Equinox makes a pytree of a method whenever it is looked up, so that it can be an argument of a compiled function.
    That takes 40 µs, several times in an action for which a network of 256 x 256 needs 20. None of ours is such an
    argument.

    It can be sent to another process any number of times. Equinox remembers whatever is being initialised, and takes
    what pickle makes for that until the end of the program: a worker that is sent a policy every turn would keep all.
    """

    if not TYPE_CHECKING:
        __getattribute__ = object.__getattribute__

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), vars(self))


def _again(kind: type, fields: dict[str, Any]) -> Any:
    """A module with these fields, as it was sent."""
    made: Any = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def namespace(*arrays: Array) -> ModuleType:
    """`jax.numpy` if any of them is a JAX array, else `numpy`."""
    return jnp if any(isinstance(array, jax.Array) for array in arrays) else np


def normal(source: Source, like: Array) -> Array:
    """Standard normal numbers of the shape and type of `like`."""
    if isinstance(source, np.random.Generator):
        return source.standard_normal(like.shape).astype(like.dtype)
    return jax.random.normal(source, like.shape, like.dtype)


def categorical(source: Source, logits: Array) -> Array:
    """One index for each row of `logits`, drawn with probability softmax(logits)."""
    if isinstance(source, np.random.Generator):
        return np.argmax(logits + source.gumbel(size=logits.shape), axis=-1)
    return jax.random.categorical(source, logits)


def softmax(logits: Array) -> Array:
    """exp(logits), normalised over the last axis."""
    xp = namespace(logits)
    powers = xp.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
