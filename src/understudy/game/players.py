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
from jaxtyping import Array, Float, Int, Key

Strategy = Any
"""A pytree of arrays: a policy, a moment function, a point of a simplex."""
Memory = Any
"""A pytree of arrays: what a player remembers."""
Loss = Callable[[Any, Key[Array, ""]], Any]
"""Strategy and key to a number (and, where a player says so, anything beside it)."""


class Player(NamedTuple):
    init: Callable[[Strategy], Memory]
    move: Callable[[Key[Array, ""], Strategy, Memory, Loss], tuple[Strategy, Memory, Float[Array, ""]]]


def gradient(optimizer: optax.GradientTransformation, aux: bool = False) -> Player:
    """One step of the optimiser on the loss: x ← x − η ∇l(x).

    With `aux` the loss returns a number and anything else, and a move returns the two in place of the number.
    """

    def init(strategy: Strategy) -> Memory:
        return optimizer.init(eqx.filter(strategy, eqx.is_inexact_array))

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        value, gradient = eqx.filter_value_and_grad(loss, has_aux=aux)(strategy, key)
        updates, memory = optimizer.update(gradient, memory, eqx.filter(strategy, eqx.is_inexact_array))
        return eqx.apply_updates(strategy, updates), memory, value

    return Player(init, move)


def repeat(player: Player, steps: int) -> Player:
    """`steps` moves of a player, each with a fresh key; the loss it saw is their mean."""

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        def step(carry: tuple[Strategy, Memory], k: Array) -> tuple[tuple[Strategy, Memory], Array]:
            strategy, memory, value = player.move(k, *carry, loss)
            return (strategy, memory), value

        (strategy, memory), values = jax.lax.scan(step, (strategy, memory), jax.random.split(key, steps))
        return strategy, memory, values.mean()

    return Player(player.init, move)


class Averaged(NamedTuple):
    """What an averaging player remembers: its own memory, and the average of its strategies so far."""

    memory: Memory
    average: Strategy
    moves: Int[Array, ""]


def averaging(player: Player, decay: float | Array) -> Player:
    """A player that also keeps an exponential average of its strategies: x̄ ← d x̄ + (1 − d) x.

    The theory hands over the average of a no-regret player's strategies, not the last; for networks this is an average
    of weights. d is min(decay, (1 + n) / (10 + n)) after n moves, so that the start is soon forgotten; decay 0 keeps
    the last strategy.
    """

    def init(strategy: Strategy) -> Memory:
        return Averaged(player.init(strategy), jax.tree.map(jnp.asarray, strategy), jnp.zeros((), jnp.int32))

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        strategy, inner, value = player.move(key, strategy, memory.memory, loss)
        d = jnp.minimum(decay, (1 + memory.moves) / (10 + memory.moves))
        average = jax.tree.map(lambda mean, new: d * mean + (1 - d) * new, memory.average, strategy)
        return strategy, Averaged(inner, average, memory.moves + 1), value

    return Player(init, move)


def side_by_side(player: Player) -> Player:
    """Several strategies, stacked along their arrays' leading axis, that each move by the same loss with a key of their
    own; the loss they saw is their mean.
    """

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        keys = jax.random.split(key, jax.tree.leaves(strategy)[0].shape[0])
        strategy, memory, value = jax.vmap(lambda k, x, m: player.move(k, x, m, loss))(keys, strategy, memory)
        return strategy, memory, jax.tree.map(lambda v: v.mean(0), value)

    return Player(jax.vmap(player.init), move)


def clip_from(step: float | Array, norm: float | Array) -> optax.GradientTransformation:
    """Scale gradients down to a global norm, from the given step on."""

    def update(updates: Any, count: Array, params: Any = None) -> tuple[Any, Array]:
        size = jnp.sqrt(sum(jnp.vdot(u, u) for u in jax.tree.leaves(updates)))
        scale = jnp.where(count < step, 1.0, jnp.minimum(1.0, norm / jnp.maximum(size, 1e-12)))
        return jax.tree.map(lambda u: scale * u, updates), count + 1

    return optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update)


def best_response(
    optimizer: optax.GradientTransformation, steps: int, fresh: Callable[[Key[Array, ""]], Strategy]
) -> Player:
    """A new strategy each round, trained from `fresh(key)` for `steps` steps: argmin as far as gradients find it."""
    trainer = repeat(gradient(optimizer), steps)

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
