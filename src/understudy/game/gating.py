"""Calls of an algorithm's gate, with checks while they are traced. Errors name the algorithm and its method."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from understudy.core.errors import AlgorithmError
from understudy.core.types import State
from understudy.game.algorithm import Algorithm
from understudy.game.user_code import calling


def start_gate(algorithm: Algorithm, state: State, index: Array, key: Key[Array, ""]) -> Any:
    """The gate's memory at the start of an episode, as arrays."""
    name = f"{algorithm.card.name}.start_gate"
    with calling(name, type(algorithm).start_gate):
        carry = algorithm.start_gate(state, index, key)
    try:
        return jax.tree.map(jnp.asarray, carry)
    except (TypeError, ValueError) as error:
        raise AlgorithmError(f"{name} returned a {type(carry).__name__}: return a pytree of arrays") from error


def decide(
    algorithm: Algorithm, state: State, carry: Any, obs: Array, act: Array, key: Key[Array, ""]
) -> tuple[Any, Bool[Array, ""], Bool[Array, ""]]:
    """The gate's memory, whether it queries the expert here, and whether the expert acts here."""
    name = f"{algorithm.card.name}.gate"
    with calling(name, type(algorithm).gate):
        returned: Any = algorithm.gate(state, carry, obs, act, key)
    if not isinstance(returned, tuple) or len(returned) != 3:
        what = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else f"a {type(returned).__name__}"
        raise AlgorithmError(f"{name} returned {what}: return (memory, query, expert_acts)")
    memory = returned[0]
    _check_memory(name, carry, memory)
    flags = [_flag(name, what, value) for what, value in zip(("query", "expert_acts"), returned[1:], strict=True)]
    return memory, flags[0], flags[1]


def tell(
    algorithm: Algorithm, state: State, carry: Any, obs: Array, act: Array, answer: Array, acted: Bool[Array, ""]
) -> Any:
    """The gate's memory after a step: unchanged unless the expert acted."""
    if type(algorithm).expert_acted is Algorithm.expert_acted:
        return carry
    name = f"{algorithm.card.name}.expert_acted"
    with calling(name, type(algorithm).expert_acted):
        memory = algorithm.expert_acted(state, carry, obs, act, answer)
    _check_memory(name, carry, memory)
    return jax.tree.map(lambda new, old: jnp.where(acted, new, old), memory, carry)


def _check_memory(name: str, carry: Any, memory: Any) -> None:
    before, after = (str(jax.tree.map(_shape, tree)) for tree in (carry, memory))
    if before != after:
        raise AlgorithmError(f"{name} changed its memory from {before} to {after}: keep what start_gate returned")


def _flag(name: str, what: str, value: Any) -> Bool[Array, ""]:
    if not isinstance(value, bool | jax.Array) or jnp.shape(value) != () or jnp.asarray(value).dtype != bool:
        shown = f"a {type(value).__name__}" if not isinstance(value, jax.Array) else _shape(value)
        raise AlgorithmError(f"{name} returned {shown} for {what}: a boolean scalar is needed")
    return jnp.asarray(value)


def _shape(leaf: Any) -> str:
    array = jnp.asarray(leaf)
    return f"{array.dtype}{list(array.shape)}"
