"""The two loops of section 5: the policy runs no-regret (primal), or the moment function does (dual).

Both are functions of one round. Call them in a loop, a `lax.scan`, or an algorithm's `update`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from understudy.game.players import Memory, Player, Strategy

Payoff = Callable[[Strategy, Strategy, Key[Array, ""]], Float[Array, ""]]
"""U(policy, moment, key)."""


class Side(NamedTuple):
    """One side of a game between two rounds."""

    strategy: Strategy
    """The strategy it plays next. A best-responding side replaces it before the payoff is computed."""
    memory: Memory
    total: Strategy
    """The sum of the strategies it has played: divide by the number of rounds for the average."""


def new_side(player: Player, strategy: Strategy) -> Side:
    """A side before the first round, with its first strategy."""
    return Side(strategy, player.init(strategy), jax.tree.map(jnp.zeros_like, strategy))


def primal(
    payoff: Payoff, policy_player: Player, moment_player: Player, policy: Side, moment: Side, key: Key[Array, ""]
) -> tuple[Side, Side, Float[Array, ""]]:
    """One round in which the policy runs no-regret and the moment function best-responds (section 5.2).

    1. f_t ← best response to π_t          2. record U(π_t, f_t)          3. π_{t+1} ← no-regret move on U(·, f_t)

    Returns both sides and U(π_t, f_t).
    """
    f_key, value_key, pi_key = jax.random.split(key, 3)
    pi = policy.strategy
    f, f_memory, _ = moment_player.move(f_key, moment.strategy, moment.memory, lambda f, k: -payoff(pi, f, k))
    value = payoff(pi, f, value_key)
    next_pi, pi_memory, _ = policy_player.move(pi_key, pi, policy.memory, lambda x, k: payoff(x, f, k))
    policy = Side(next_pi, pi_memory, jax.tree.map(jnp.add, policy.total, pi))
    moment = Side(f, f_memory, jax.tree.map(jnp.add, moment.total, f))
    return policy, moment, value


def dual(
    payoff: Payoff, policy_player: Player, moment_player: Player, policy: Side, moment: Side, key: Key[Array, ""]
) -> tuple[Side, Side, Float[Array, ""]]:
    """One round in which the moment function runs no-regret and the policy best-responds (section 5.2).

    1. π_t ← best response to f_t          2. record U(π_t, f_t)          3. f_{t+1} ← no-regret move on −U(π_t, ·)

    This is `primal` with the sides exchanged and the payoff negated.
    """
    moment, policy, value = primal(
        lambda f, pi, k: -payoff(pi, f, k), moment_player, policy_player, moment, policy, key
    )
    return policy, moment, -value
