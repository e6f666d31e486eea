"""Players: how a side of the game moves, by a gradient step, a best response, or following the (regularised) leader.

A player is a pair of functions. `init(strategy)` returns its memory. `move(key, strategy, memory, loss)` returns the
next strategy, the memory and the value of the loss. A player minimises `loss(strategy, key)`, so the moment function's
player gets the negated payoff.
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
"""A pytree of arrays: what a player carries from one move to the next, such as an optimizer state."""
Loss = Callable[[Any, Key[Array, ""]], Any]
"""(strategy, key) ↦ a number, or (a number, anything) for players with `aux`."""


class Player(NamedTuple):
    init: Callable[[Strategy], Memory]
    move: Callable[[Key[Array, ""], Strategy, Memory, Loss], tuple[Strategy, Memory, Float[Array, ""]]]


def gradient(optimizer: optax.GradientTransformation, aux: bool = False) -> Player:
    """One optimizer step on the loss: x ← x − η ∇l(x).

    With `aux` the loss returns (number, anything), and a move returns both in place of the number.
    """

    def init(strategy: Strategy) -> Memory:
        return optimizer.init(eqx.filter(strategy, eqx.is_inexact_array))

    def move(key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss) -> tuple[Strategy, Memory, Any]:
        value, gradient = eqx.filter_value_and_grad(loss, has_aux=aux)(strategy, key)
        updates, memory = optimizer.update(gradient, memory, eqx.filter(strategy, eqx.is_inexact_array))
        return eqx.apply_updates(strategy, updates), memory, value

    return Player(init, move)


def repeat(player: Player, steps: int) -> Player:
    """`steps` moves of a player, each with a new key. The returned loss is their mean."""

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
    """The memory of an averaging player: the inner player's memory and the average of the strategies so far."""

    memory: Memory
    average: Strategy
    moves: Int[Array, ""]


def averaging(player: Player, decay: float | Array) -> Player:
    """A player that also keeps an exponential moving average of its strategies: x̄ ← d x̄ + (1 − d) x.

    The theory returns the average of a no-regret player's strategies, not the last one; for networks this averages the
    weights. d = min(decay, (1 + n) / (10 + n)) after n moves, so that the start soon has little weight. With decay 0
    it is the last strategy.
    """

    def init(strategy: Strategy) -> Memory:
        return Averaged(player.init(strategy), jax.tree.map(jnp.asarray, strategy), jnp.zeros((), jnp.int32))

    def move(key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss) -> tuple[Strategy, Memory, Any]:
        strategy, inner, value = player.move(key, strategy, memory.memory, loss)
        d = jnp.minimum(decay, (1 + memory.moves) / (10 + memory.moves))
        average = jax.tree.map(lambda mean, new: d * mean + (1 - d) * new, memory.average, strategy)
        return strategy, Averaged(inner, average, memory.moves + 1), value

    return Player(init, move)


def side_by_side(player: Player) -> Player:
    """Several strategies, stacked along the leading axis. Each moves on the same loss with its own key; the returned
    loss is their mean.
    """

    def move(key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss) -> tuple[Strategy, Memory, Any]:
        keys = jax.random.split(key, jax.tree.leaves(strategy)[0].shape[0])
        strategy, memory, value = jax.vmap(lambda k, x, m: player.move(k, x, m, loss))(keys, strategy, memory)
        return strategy, memory, jax.tree.map(lambda v: v.mean(0), value)

    return Player(jax.vmap(player.init), move)


def clip_from(step: float | Array, norm: float | Array) -> optax.GradientTransformation:
    """Clip gradients to a global norm, from the given step on."""

    def update(updates: Any, count: Array, params: Any = None) -> tuple[Any, Array]:
        size = jnp.sqrt(sum(jnp.vdot(u, u) for u in jax.tree.leaves(updates)))
        scale = jnp.where(count < step, 1.0, jnp.minimum(1.0, norm / jnp.maximum(size, 1e-12)))
        return jax.tree.map(lambda u: scale * u, updates), count + 1

    return optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update)


def best_response(
    optimizer: optax.GradientTransformation, steps: int, fresh: Callable[[Key[Array, ""]], Strategy]
) -> Player:
    """An approximate argmin: a new strategy `fresh(key)` in each round, trained for `steps` gradient steps."""
    trainer = repeat(gradient(optimizer), steps)

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        new_key, train_key, value_key = jax.random.split(key, 3)
        strategy = fresh(new_key)
        strategy, _, _ = trainer.move(train_key, strategy, trainer.init(strategy), loss)
        return strategy, memory, loss(strategy, value_key)

    return Player(lambda strategy: (), move)


class Costs(NamedTuple):
    """The memory of `follow_the_leader`."""

    total: Strategy
    """Σ c_i, the sum of all gradients."""
    squares: Float[Array, ""]
    """Σ max|c_i|²."""


TINY = 1e-12
"""The first sum of squared gradients, so that none divides by zero."""


def follow_the_leader(response: Callable[[Strategy, Float[Array, ""]], Strategy]) -> Player:
    """Follow the (regularised) leader on losses that are linear in the strategy: x ← response(Σ c_i, √(Σ max|c_i|²)).

    c_i is the gradient of round i's loss. `response(cost, scale)` returns argmin_x ⟨cost, x⟩ + R(x). The regulariser R
    may grow with `scale`, so that its strength fits losses of any size and any number of rounds.
    """

    def init(strategy: Strategy) -> Memory:
        return Costs(jax.tree.map(jnp.zeros_like, strategy), jnp.asarray(TINY))

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        value, cost = jax.value_and_grad(loss)(strategy, key)
        largest = jnp.max(jnp.stack([jnp.abs(leaf).max() for leaf in jax.tree.leaves(cost)]))
        memory = Costs(jax.tree.map(jnp.add, memory.total, cost), memory.squares + jnp.square(largest))
        return response(memory.total, jnp.sqrt(memory.squares)), memory, value

    return Player(init, move)


def linear_best_response(response: Callable[[Strategy], Strategy]) -> Player:
    """The exact best response to a loss that is linear in the strategy: x ← response(c), c its gradient."""

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        strategy = response(jax.grad(loss)(strategy, key))
        return strategy, memory, loss(strategy, key)

    return Player(lambda strategy: (), move)


def projected_gradient(project: Callable[[Strategy], Strategy], step: float | Array) -> Player:
    """Gradient descent that stays in a convex set: x ← project(x − step · c_n / √(Σ_{i ≤ n} ‖c_i‖²)).

    c_i is the gradient of round i's loss. The step size falls with the gradients' squares, so that none needs tuning.
    """

    def move(
        key: Key[Array, ""], strategy: Strategy, memory: Memory, loss: Loss
    ) -> tuple[Strategy, Memory, Float[Array, ""]]:
        value, cost = jax.value_and_grad(loss)(strategy, key)
        squares = memory + jnp.sum(jnp.square(cost))
        return project(strategy - step * cost / jnp.sqrt(squares)), squares, value

    return Player(lambda strategy: jnp.asarray(TINY), move)
