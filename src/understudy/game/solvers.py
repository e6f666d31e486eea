"""The two idealised loops of section 5: the policy runs no-regret (primal), or the moment function does (dual)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jaxtyping import Array, Float, Key

from understudy.game.players import Player, Strategy


class Play(NamedTuple):
    """The iterates of a game, stacked by round, and the payoff U(π^t, f^t) of each."""

    policies: Strategy
    moments: Strategy
    payoffs: Float[Array, " n"]


Payoff = Callable[[Strategy, Strategy, Key[Array, ""]], Float[Array, ""]]


def primal(
    payoff: Payoff,
    policy: Strategy,
    policy_player: Player,
    moment: Strategy,
    moment_player: Player,
    rounds: int,
    key: Key[Array, ""],
) -> Play:
    """The policy runs no-regret, the moment function best-responds (section 5.2).

    1. f^t ← best response to π^t          2. record U(π^t, f^t)          3. π^{t+1} ← no-regret move on U(·, f^t)
    """

    def round_(carry: tuple[Strategy, ...], k: Array) -> tuple[tuple[Strategy, ...], tuple[Strategy, Strategy, Array]]:
        policy, policy_memory, moment, moment_memory = carry
        f_key, value_key, pi_key = jax.random.split(k, 3)
        played = policy
        moment, moment_memory, _ = moment_player.move(
            f_key, moment, moment_memory, lambda f, key: -payoff(played, f, key)
        )
        value = payoff(played, moment, value_key)
        policy, policy_memory, _ = policy_player.move(
            pi_key, policy, policy_memory, lambda pi, key: payoff(pi, moment, key)
        )
        return (policy, policy_memory, moment, moment_memory), (played, moment, value)

    start = (policy, policy_player.init(policy), moment, moment_player.init(moment))
    _, iterates = jax.lax.scan(round_, start, jax.random.split(key, rounds))
    return Play(*iterates)


def dual(
    payoff: Payoff,
    policy: Strategy,
    policy_player: Player,
    moment: Strategy,
    moment_player: Player,
    rounds: int,
    key: Key[Array, ""],
) -> Play:
    """The moment function runs no-regret, the policy best-responds (section 5.2): `primal` with the sides exchanged."""
    play = primal(lambda f, pi, k: -payoff(pi, f, k), moment, moment_player, policy, policy_player, rounds, key)
    return Play(policies=play.moments, moments=play.policies, payoffs=-play.payoffs)
