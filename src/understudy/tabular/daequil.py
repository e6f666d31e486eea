"""The two losses of the on-Q game on a finite MDP, and what each asks of the policy class (supplement, DAeQuIL).

With f_i the critic's best response to round i's policy π_i,

    l_i(π)  = (1/T) Σ_t E_{s ~ d^{π_i}} [ E_{a ~ π} f_i(s, a) − E_{a ~ π_E} f_i(s, a) ]      on the history's states
    l'_i(π) = (1/T) Σ_t E_{s ~ d^π} [ E_{a ~ π} f_i(s, a) − E_{a ~ π_E} f_i(s, a) ]          on π's own: U3(π, f_i)

l_i can be minimised on states that were collected once; l'_i needs fresh ones after every step. Both are the payoff
sup_f U3(π_i, f) at π = π_i, so a no-regret sequence on either bounds the payoff by δ, plus what the best fixed policy
pays: nothing where π_E is in the class, else the ε of

    l_i:   some π' in the class has   max over d^π, over f, of E_{s ~ d^π} [ f(s, π') − f(s, π_E) ] ≤ ε
    l'_i:  some π' in the class has   max over f of E_{s ~ d^{π'}} [ f(s, π') − f(s, π_E) ] ≤ ε

the first of which asks more: π' must match on the states of any policy, not on its own alone. Here both are computed
for a π' that is given, not for the best of a class, and d^π is that of any policy of the MDP, in the class or not. The
ε of a class is the least over its members; for the first, where only the class's own d^π come up, at most that.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from understudy.core.errors import SettingError
from understudy.tabular.games import Game
from understudy.tabular.mdp import Table, best_response, check_policy, check_table, exact, occupancy
from understudy.tabular.moments import Box, Itself


def history_loss(game: Game, f: Any, collected: Any, policy: Any) -> Float[Array, ""]:
    """l_i(π), where `collected` is π_i, the policy whose states they are."""
    _check(game, {"the collected policy": collected, "the policy": policy}, {"f": f})
    return _history_loss(game, f, collected, policy)


@exact
def _history_loss(game: Game, f: Table, collected: Table, policy: Table) -> Float[Array, ""]:
    states = occupancy(game.mdp, jnp.asarray(collected)).sum(-1, keepdims=True)
    return jnp.sum(states * (jnp.asarray(policy) - game.expert) * jnp.asarray(f)) / game.mdp.horizon


def current_loss(game: Game, f: Any, policy: Any) -> Float[Array, ""]:
    """l'_i(π) = U3(π, f_i)."""
    _check(game, {"the policy": policy}, {"f": f})
    return game.payoff(policy, f)


def mismatch_on_own_states(game: Game, moments: Box, policy: Any) -> Float[Array, ""]:
    """The ε that l'_i asks of this π': sup_f U3(π', f)."""
    _check(game, {"the policy": policy}, {})
    return moments.sup(game.difference(policy))


def mismatch_on_any_states(game: Game, moments: Box, policy: Any) -> Float[Array, ""]:
    """The ε that l_i asks of this π': the largest over the state distributions of all policies of the MDP, exactly.

    Over a box of |f_t(s, a)| ≤ b_t(s, a) the best f pays b_t(s, ·) · |π' − π_E| in each state, however states are
    distributed, so the worst distribution is that of the policy with the largest sum of these along its way.
    """
    if not isinstance(moments.embed, Itself):
        raise SettingError(f"the class is '{moments.label}': this needs one box of time-dependent f, q_box say")
    _check(game, {"the policy": policy}, {"the class's bound": moments.bound})
    return _worst(game, moments.bound, policy)


@exact
def _worst(game: Game, bound: Table, policy: Table) -> Float[Array, ""]:
    paid = jnp.sum(bound * jnp.abs(jnp.asarray(policy) - game.expert), axis=-1, keepdims=True) / game.mdp.horizon
    paid = jnp.broadcast_to(paid, game.mdp.shape)
    return jnp.sum(occupancy(game.mdp, best_response(game.mdp, -paid)) * paid)


def _check(game: Game, policies: dict[str, Any], tables: dict[str, Any]) -> None:
    """A game of on-Q moments, and policies and tables of its MDP, or a named error (not under JAX's trace)."""
    if game.moments != "on-Q":
        raise SettingError(f"the game matches {game.moments} moments: these losses are those of on-Q ones")
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((game, policies, tables))):
        return
    for name, policy in policies.items():
        check_policy(game.mdp, policy, name)
    for name, table in tables.items():
        check_table(game.mdp, table, name)
