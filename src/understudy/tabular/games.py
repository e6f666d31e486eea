"""The three imitation games on a finite MDP, computed exactly: payoffs and the policy's responses.

    U(π, f) = Σ_{t, s, a} w_t(s, a) f_t(s, a)

    moments        w · T                               strategy x                 policy's cost for a given f
    reward (U1)    d^π_t(s, a) − d^E_t(s, a)           d^π_t(s, a)                f
    off-Q  (U2)    d^E_t(s) (π_t − π^E_t)(a | s)       d^E_t(s) π_t(a | s)        f − E_{a ~ π_E} f
    on-Q   (U3)    d^π_t(s) (π_t − π^E_t)(a | s)       d^π_t(s, a)                f − E_{a ~ π_E} f

Every payoff is linear in f and in the strategy x, so averages of policies are taken over strategies (`strategy`,
`policy`), and the cost of an action is ∂U/∂x. For off-Q moments each (t, s) is a separate problem. For the others
the policy plans. `pair` returns the same game as weighted samples, for the functions in `payoffs`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from understudy.core.arrays import Array
from understudy.core.errors import check_choice, check_not_negative
from understudy.core.types import Pair
from understudy.game import NEEDS, Moments, payoffs
from understudy.policies import Tabular, TimeIndexed
from understudy.tabular.compiling import exact
from understudy.tabular.mdp import FiniteMDP, Table, check_policy, check_single, check_table
from understudy.tabular.planning import best_response, causal_entropy, collapse, occupancy, samples, soft_response


class Game(eqx.Module):
    """The game of one kind of moments against one expert."""

    moments: Moments = eqx.field(static=True)
    mdp: FiniteMDP
    expert: Table
    visited: Table
    """The expert's occupancy d^E_t(s, a)."""

    def __init__(self, moments: Moments, mdp: FiniteMDP, expert: Any):
        check_choice(tuple(NEEDS), moments=moments)
        check_single(mdp)
        if not isinstance(expert, jax.core.Tracer):
            check_policy(mdp, expert, "the expert")
            expert = np.asarray(expert, np.float64)
        self.moments, self.mdp, self.expert = moments, mdp, expert
        self.visited = occupancy(mdp, expert)

    def strategy(self, policy: Table) -> Table:
        """x: the representation of π in which the payoff is linear."""
        if self.moments == "off-Q":
            return self.visited.sum(-1, keepdims=True) * policy
        return occupancy(self.mdp, policy)

    def policy(self, strategy: Table) -> Table:
        """The policy of a strategy, for example of an average of strategies."""
        return collapse(self.mdp, strategy)

    def weights(self, strategy: Table) -> Table:
        """w, the weight of each f_t(s, a) in the payoff, as a linear function of the strategy."""
        if self.moments == "reward":
            return (strategy - self.visited) / self.mdp.horizon
        return (strategy - strategy.sum(-1, keepdims=True) * self.expert) / self.mdp.horizon

    def difference(self, policy: Table) -> Table:
        """w for a policy."""
        self._check(policy)
        return _difference(self, policy)

    def payoff(self, policy: Table, f: Table) -> Float[Array, ""]:
        """U(π, f)."""
        self._check(policy, f)
        return _payoff(self, policy, f)

    def pair(self, policy: Table) -> Pair:
        """Both sides as weighted samples: every (t, s, a), in the form that sampled games use."""
        self._check(policy)
        return _pair(self, policy)

    def cost(self, f: Table) -> Table:
        """∂U/∂x: U(π, f) is the expected sum of these costs under π, up to a constant."""
        return _cost(self, f)

    def respond(self, f: Table, alpha: float | Array = 0.0) -> Table:
        """argmin over π of U(π, f) − α H(π). With α = 0 this is the best response.

        H is the causal entropy; for off-Q moments it is E_{s ~ π_E} Σ_t H(π_t(s)), on the expert's states.
        """
        self._check(f=f)
        if not isinstance(alpha, jax.Array):
            check_not_negative(alpha=alpha)
            if alpha == 0:
                return _best(self, f)
        return _lead(self, _cost(self, f), alpha)

    def lead(self, cost: Table, temperature: float | Array) -> Table:
        """argmin over π of the expected sum of `cost` − temperature · H(π).

        With the summed costs of several f this is the regularised leader.
        """
        return _lead(self, cost, temperature)

    def entropy(self, policy: Table) -> Float[Array, ""]:
        """The H of `respond`."""
        return _entropy(self, policy)

    def _check(self, policy: Any = None, f: Any = None) -> None:
        """Check tables that a user gave. Inside a compiled function they have no values to check."""
        if policy is not None and not isinstance(policy, jax.core.Tracer):
            check_policy(self.mdp, policy)
        if f is not None and not isinstance(f, jax.core.Tracer):
            check_table(self.mdp, f, "f")


@exact
def _difference(game: Game, policy: Table) -> Table:
    policy = jnp.asarray(policy)
    if game.moments == "reward":
        return game.weights(game.strategy(policy))
    # Equal to `weights`, but exactly 0 where the two policies agree.
    states = game.visited if game.moments == "off-Q" else occupancy(game.mdp, policy)
    return states.sum(-1, keepdims=True) * (policy - game.expert) / game.mdp.horizon


@exact
def _payoff(game: Game, policy: Table, f: Table) -> Float[Array, ""]:
    return jnp.sum(_difference(game, policy) * f)


@exact
def _pair(game: Game, policy: Table) -> Pair:
    key = jax.random.key(0)  # unused: a table's actions are enumerated, not drawn
    learner, expert = TimeIndexed(Tabular(jnp.asarray(policy))), TimeIndexed(Tabular(game.expert))
    if game.moments == "reward":
        return payoffs.reward(samples(game.mdp, policy), samples(game.mdp, game.expert))
    if game.moments == "off-Q":
        return payoffs.off_q(learner, samples(game.mdp, game.expert), key)
    return payoffs.on_q(samples(game.mdp, policy), expert, key)


@exact
def _cost(game: Game, f: Table) -> Table:
    f = jnp.asarray(f)
    if game.moments == "reward":
        return f / game.mdp.horizon
    return (f - jnp.sum(game.expert * f, axis=-1, keepdims=True)) / game.mdp.horizon


@exact
def _entropy(game: Game, policy: Table) -> Float[Array, ""]:
    policy = jnp.asarray(policy)
    if game.moments != "off-Q":
        return causal_entropy(game.mdp, policy)
    logs = jnp.where(policy > 0, policy * jnp.log(jnp.where(policy > 0, policy, 1.0)), 0.0)
    return -jnp.sum(game.visited.sum(-1) * logs.sum(-1))


@exact
def _best(game: Game, f: Table) -> Table:
    cost = game.cost(jnp.asarray(f))
    if game.moments != "off-Q":
        return best_response(game.mdp, cost)
    return jax.nn.one_hot(jnp.where(game.mdp.available, cost, jnp.inf).argmin(-1), game.mdp.actions, dtype=cost.dtype)


@exact
def _lead(game: Game, cost: Table, temperature: float | Array) -> Table:
    if game.moments != "off-Q":
        return soft_response(game.mdp, cost, temperature)
    # Cost and entropy of a state carry the same weight d^E_t(s), which cancels.
    return jax.nn.softmax(jnp.where(game.mdp.available, -cost / temperature, -jnp.inf), axis=-1)
