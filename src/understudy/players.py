"""How a side of the game moves: by a gradient step, by a best response, or by following the regularised leader.

A player is a pair of functions. `init(strategy)` makes what it remembers; `move(key, strategy, memory, loss)` returns
its next strategy, its memory and the loss it saw. It always minimises: hand the moment function's player the negated
payoff. `loss(strategy, key)` is a number.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

Strategy = Any
"""A pytree of arrays: a policy, a moment function, a point of a simplex."""
Memory = Any
"""A pytree of arrays: what a player remembers."""
Loss = Callable[[Any, Key[Array, ""]], Float[Array, ""]]


class Player(NamedTuple):
    init: Callable[[Strategy], Memory]
    move: Callable[[Key[Array, ""], Strategy, Memory, Loss], tuple[Strategy, Memory, Float[Array, ""]]]


def gradient(optimizer: optax.GradientTransformation, steps: int = 1) -> Player:
    """`steps` steps of the optimiser on the loss, each with a fresh key: x ← x − η ∇l(x)."""

    def init(strategy: Strategy) -> Memory:
        return optimizer.init(eqx.filter(strategy, eqx.is_inexact_array))

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        def step(carry: tuple[Strategy, Memory], k: Array) -> tuple[tuple[Strategy, Memory], Array]:
            strategy, memory = carry
            value, gradient = eqx.filter_value_and_grad(loss)(strategy, k)
            updates, memory = optimizer.update(gradient, memory, eqx.filter(strategy, eqx.is_inexact_array))
            return (eqx.apply_updates(strategy, updates), memory), value

        (strategy, memory), values = jax.lax.scan(step, (strategy, memory), jax.random.split(key, steps))
        return strategy, memory, values.mean()

    return Player(init, move)


def best_response(
    optimizer: optax.GradientTransformation, steps: int, fresh: Callable[[Key[Array, ""]], Strategy]
) -> Player:
    """A new strategy each round, trained from `fresh(key)` for `steps` steps: argmin as far as gradients find it."""
    trainer = gradient(optimizer, steps)

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        new_key, train_key, value_key = jax.random.split(key, 3)
        strategy = fresh(new_key)
        strategy, _, _ = trainer.move(train_key, strategy, trainer.init(strategy), loss)
        return strategy, memory, loss(strategy, value_key)

    return Player(lambda strategy: (), move)


def follow_the_leader(response: Callable[[Strategy], Strategy]) -> Player:
    """Follow the (regularised) leader on losses linear in the strategy: x ← response(Σ of all costs so far).

    `response(cost)` returns argmin_x ⟨cost, x⟩ + R(x). With `vertex` this is follow-the-leader and, on the last cost
    alone, the exact best response; with `entropic(rate)` it is multiplicative weights.
    """

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        value, cost = jax.value_and_grad(loss)(strategy, key)
        memory = jax.tree.map(jnp.add, memory, cost)
        return response(memory), memory, value

    return Player(lambda strategy: jax.tree.map(jnp.zeros_like, strategy), move)


def linear_best_response(response: Callable[[Strategy], Strategy]) -> Player:
    """The exact best response to a linear loss: x ← response(the current cost), forgetting the past."""

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        strategy = response(jax.grad(loss)(strategy, key))
        return strategy, memory, loss(strategy, key)

    return Player(lambda strategy: (), move)


def multiplicative_weights(rate: float) -> Player:
    """x_i ∝ exp(−rate · Σ costs_i): no-regret over a simplex, with regret at most ln(n)/rate + rate·N/8 in N rounds."""
    return follow_the_leader(entropic(rate))


def vertex(cost: Float[Array, " n"]) -> Float[Array, " n"]:
    """argmin over the simplex of ⟨cost, x⟩."""
    return jax.nn.one_hot(jnp.argmin(cost), cost.shape[0], dtype=cost.dtype)


def entropic(rate: float) -> Callable[[Float[Array, " n"]], Float[Array, " n"]]:
    """argmin over the simplex of ⟨cost, x⟩ − H(x) / rate."""
    return lambda cost: jax.nn.softmax(-rate * cost)
