"""The two losses of the on-Q game on a finite MDP, and what each assumes of the policy class (supplement, DAeQuIL).

With f_i the critic's best response to round i's policy π_i,

    l_i(π)  = (1/T) Σ_t E_{s ~ d^{π_i}} [ E_{a ~ π} f_i(s, a) − E_{a ~ π_E} f_i(s, a) ]     on the collected states
    l'_i(π) = (1/T) Σ_t E_{s ~ d^π} [ E_{a ~ π} f_i(s, a) − E_{a ~ π_E} f_i(s, a) ]         on π's states: U3(π, f_i)

l_i can be minimised on states that were collected once; l'_i needs new states after every step. At π = π_i both equal
the payoff sup_f U3(π_i, f). A no-regret sequence on either loss bounds the payoff by δ plus the loss of the best fixed
policy. That loss is 0 if π_E is in the class, else at most the ε of

    l_i:   some π' in the class has   max over d^π, over f, of E_{s ~ d^π} [ f(s, π') − f(s, π_E) ] ≤ ε
    l'_i:  some π' in the class has   max over f of E_{s ~ d^{π'}} [ f(s, π') − f(s, π_E) ] ≤ ε

The first is the stronger assumption: π' must match the expert on the states of every policy, not only on its own. The
functions here compute both for a given π'. The ε of a class is the minimum over its policies. For l_i, d^π is that of
any policy of the MDP; with a smaller class the maximum, and so ε, may be smaller.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from understudy.core.arrays import Array
from understudy.core.errors import SettingError
from understudy.tabular.compiling import exact
from understudy.tabular.games import Game
from understudy.tabular.mdp import Table, check_policy, check_table
from understudy.tabular.moments import Box, Itself
from understudy.tabular.planning import best_response, occupancy


def history_loss(game: Game, f: Any, collected: Any, policy: Any) -> Float[Array, ""]:
    """l_i(π). `collected` is π_i, the policy that visited the states."""
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
    """The ε of l'_i for this π': sup_f U3(π', f)."""
    _check(game, {"the policy": policy}, {})
    return moments.sup(game.difference(policy))


def mismatch_on_any_states(game: Game, moments: Box, policy: Any) -> Float[Array, ""]:
    """The ε of l_i for this π': the exact maximum over the state distributions of all policies of the MDP.

    Over a box |f_t(s, a)| ≤ b_t(s, a), the best f gives b_t(s, ·) · |π' − π_E| in every state, whatever the state
    distribution. The worst distribution is therefore that of the policy that maximises the sum of these numbers.
    """
    if not isinstance(moments.embed, Itself):
        raise SettingError(f"the class is '{moments.label}': a box of time-dependent f is needed, such as q_box(mdp)")
    _check(game, {"the policy": policy}, {"the class's bound": moments.bound})
    return _worst(game, moments.bound, policy)


@exact
def _worst(game: Game, bound: Table, policy: Table) -> Float[Array, ""]:
    cost = jnp.sum(bound * jnp.abs(jnp.asarray(policy) - game.expert), axis=-1, keepdims=True) / game.mdp.horizon
    cost = jnp.broadcast_to(cost, game.mdp.shape)
    return jnp.sum(occupancy(game.mdp, best_response(game.mdp, -cost)) * cost)


def _check(game: Game, policies: dict[str, Any], tables: dict[str, Any]) -> None:
    """Raise unless the game has on-Q moments and the tables fit its MDP. Traced arrays are not checked."""
    if game.moments != "on-Q":
        raise SettingError(f"the game has {game.moments} moments: make it with Game('on-Q', ...)")
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((game, policies, tables))):
        return
    for name, policy in policies.items():
        check_policy(game.mdp, policy, name)
    for name, table in tables.items():
        check_table(game.mdp, table, name)
