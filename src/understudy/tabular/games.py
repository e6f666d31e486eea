"""The three imitation games on a finite MDP, exact: payoffs, and the policy's responses.

    U(π, f) = Σ_{t, s, a} w_t(s, a) f_t(s, a),    w · T = occupancy of the learner's samples − that of the expert's

    moments        w · T                               linear in      policy's cost for a given f
    reward (U1)    d^π_t(s, a) − d^E_t(s, a)           d^π            f
    off-Q  (U2)    d^E_t(s) (π_t − π^E_t)(a | s)       π              f on the expert's states, each (t, s) on its own
    on-Q   (U3)    d^π_t(s) (π_t − π^E_t)(a | s)       d^π            f − E_{a ~ π_E} f

U3 is bilinear in occupancies, not in π: the cost f − E_{π_E} f is what makes it a planning problem like U1. The same
numbers come from the weighted pairs that sampled games take (`pair`), through `payoffs`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from understudy.core.errors import check_choice, check_not_negative
from understudy.core.types import Pair
from understudy.game import NEEDS, Moments, payoffs
from understudy.policies import Tabular, TimeIndexed
from understudy.tabular.mdp import (
    FiniteMDP,
    Table,
    best_response,
    causal_entropy,
    check_policy,
    check_single,
    check_table,
    collapse,
    exact,
    occupancy,
    samples,
    soft_response,
)


class Game(eqx.Module):
    """A game of given moments against a given expert."""

    moments: Moments = eqx.field(static=True)
    mdp: FiniteMDP
    expert: Table
    visited: Table
    """The expert's occupancy."""

    def __init__(self, moments: Moments, mdp: FiniteMDP, expert: Any):
        check_choice(tuple(NEEDS), moments=moments)
        check_single(mdp)
        if not isinstance(expert, jax.core.Tracer):
            check_policy(mdp, expert, "the expert")
            expert = np.asarray(expert, np.float64)
        self.moments, self.mdp, self.expert = moments, mdp, expert
        self.visited = occupancy(mdp, expert)

    def difference(self, policy: Table) -> Table:
        """w: what the payoff of π puts on each f_t(s, a)."""
        self._check(policy)
        return _difference(self, policy)

    def payoff(self, policy: Table, f: Table) -> Float[Array, ""]:
        """U(π, f)."""
        self._check(policy, f)
        return _payoff(self, policy, f)

    def pair(self, policy: Table) -> Pair:
        """The two sides as weighted samples, every (t, s, a) of them, made as for sampled games."""
        self._check(policy)
        return _pair(self, policy)

    def cost(self, f: Table) -> Table:
        """What the policy pays for a in s at t: U(π, f) is its expected sum, on the expert's states under off-Q moments
        and else on the policy's own, up to what π cannot change.
        """
        return _cost(self, f)

    def respond(self, f: Table, alpha: float | Array = 0.0) -> Table:
        """argmin over π of U(π, f) − α H(π), for α = 0 the best response.

        H is the causal entropy; under off-Q moments, which know the expert's states alone, E_{s ~ π_E} Σ_t H(π_t(s)).
        """
        self._check(f=f)
        if not isinstance(alpha, jax.Array):
            check_not_negative(alpha=alpha)
            if alpha == 0:
                return _best(self, f)
        return _lead(self, _cost(self, f), alpha)

    def _check(self, policy: Any = None, f: Any = None) -> None:
        """Name what is wrong with tables that a person gave; inside a compiled function there is nothing to look at."""
        if policy is not None and not isinstance(policy, jax.core.Tracer):
            check_policy(self.mdp, policy)
        if f is not None and not isinstance(f, jax.core.Tracer):
            check_table(self.mdp, f, "f")

    def lead(self, cost: Table, temperature: float | Array) -> Table:
        """argmin over π of the expected sum of `cost` − temperature · H(π): the regularised leader, where `cost` is the
        sum of those of several f.
        """
        return _lead(self, cost, temperature)

    def entropy(self, policy: Table) -> Float[Array, ""]:
        """The H of `respond`."""
        return _entropy(self, policy)

    def strategy(self, policy: Table) -> Table:
        """π in the representation in which the game is linear and averages are taken: d^π, or π itself for off-Q."""
        return policy if self.moments == "off-Q" else occupancy(self.mdp, policy)

    def policy(self, strategy: Table) -> Table:
        """The policy of a strategy, an average of several say."""
        return strategy if self.moments == "off-Q" else collapse(self.mdp, strategy)


@exact
def _difference(game: Game, policy: Table) -> Table:
    policy = jnp.asarray(policy)
    if game.moments == "reward":
        gap = occupancy(game.mdp, policy) - game.visited
    else:
        states = game.visited if game.moments == "off-Q" else occupancy(game.mdp, policy)
        gap = states.sum(-1, keepdims=True) * (policy - game.expert)
    return gap / game.mdp.horizon


@exact
def _payoff(game: Game, policy: Table, f: Table) -> Float[Array, ""]:
    return jnp.sum(_difference(game, policy) * f)


@exact
def _pair(game: Game, policy: Table) -> Pair:
    key = jax.random.key(0)  # nothing is drawn: tables are enumerated
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
    # Each (t, s) on its own: cost and entropy carry the same weight of the state, which drops out.
    return jax.nn.softmax(jnp.where(game.mdp.available, -cost / temperature, -jnp.inf), axis=-1)
