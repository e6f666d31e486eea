"""Approximate equilibria of the three games on a finite MDP, primal and dual (section 5), with an exact certificate.

    primal: the policy runs no-regret                      dual: the moment function runs no-regret
    1. for n = 1, 2, ...                                   1. for n = 1, 2, ...
    2.     π_n ← argmin ⟨Σ_{i<n} c_i, π⟩ − τ_n H(π)        2.     f_n ← project(f_{n−1} + η_n ∇_f U(π_{n−1}, f))
    3.     f_n ← argmax_f U(π_n, f)                        3.     π_n ← argmin_π U(π, f_n) − α H(π)
    4. π̂ = the average of π_n, f̂ that of f_n               4. f̂ = the average of f_n, π̂ = argmin_π U(π, f̂) − α H(π)
    5. until δ(π̂, f̂) ≤ δ                                   5. until δ(π̂, f̂) ≤ δ

The certificate

    δ(π̂, f̂) = sup_f U(π̂, f) − inf_π U(π, f̂)

is computed exactly, without sampling. If the policies include the expert, the game's value is 0. Then
sup_f U(π̂, f) ≤ δ, and section 4 bounds the gap. The loops and players are those of `game`: `follow_the_leader`,
`linear_best_response` and `projected_gradient`. Payoffs are linear in the strategies of `Game.strategy`, so
the regularised leader is one soft backward pass on the sum of all costs (a softmax for off-Q moments).

Deviations: the theorem's primal returns the best iterate. This one returns the average, because f̂ certifies it too.
τ_n grows with √(Σ max|c_i|²), and η_n falls with √(Σ ‖∇_i‖²), so no horizon or class needs its own step size.
`Solution.proof_bound` is the corresponding number in the proofs; nothing runs for that long. For the primal it is the
regret bound of FTRL, R(N) ≤ G √(2 N T ln|A|), because the relative entropy of trajectories is strongly convex in their
total variation. For the dual it is the paper's 1/δ'; its N is an unspecified polynomial of that.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from understudy.core.arrays import Array
from understudy.core.errors import SpecError, check_choice, check_not_negative, check_positive, check_whole
from understudy.game.players import TINY, follow_the_leader, linear_best_response, projected_gradient
from understudy.game.solvers import Side as GameSide
from understudy.game.solvers import dual, new_side, primal
from understudy.tabular.compiling import exact
from understudy.tabular.games import Game
from understudy.tabular.mdp import Table
from understudy.tabular.moments import MomentClass

Side = Literal["primal", "dual"]
PACE = 0.5
"""τ_n over √(Σ max|c_i|²)."""
STRIDE = 0.03
"""η_n over the radius of the class and √(Σ ‖slope_i‖²)."""
CHECK_EVERY = 10
"""Rounds between two certificates."""


class Solution(NamedTuple):
    policy: Table
    f: Table
    certificate: float
    """sup_f U(π̂, f) − inf_π U(π, f̂)."""
    payoff: float
    """sup_f U(π̂, f)."""
    delta: float
    """The requested certificate."""
    iterations: int
    certificates: np.ndarray
    """(iteration, certificate) at every check."""
    proof_bound: float
    """The number in the proofs, see `proof_bound_label`."""
    label: str

    @property
    def met(self) -> bool:
        """Whether the certificate is at most δ. False if the iterations ran out."""
        return self.certificate <= self.delta

    @property
    def proof_bound_label(self) -> str:
        """The meaning of `proof_bound`: sufficient iterations (primal), or the paper's 1/δ' (dual)."""
        if ", primal, " in self.label:
            return "FTRL's bound 2G²T ln|A|/δ²"
        return "1/δ' (the proof's N is a polynomial of it)"

    def __str__(self) -> str:
        verdict = "certified" if self.met else f"NOT met after {self.iterations} iterations"
        return (
            f"{self.label}: δ = {self.certificate:.2g} (requested {self.delta:g}, {verdict}) "
            f"in {self.iterations} iterations; {self.proof_bound_label} is {self.proof_bound:.2g}"
        )


def solve(
    game: Game,
    moments: MomentClass,
    side: Side = "primal",
    delta: float = 0.05,
    alpha: float | None = None,
    max_iterations: int = 20_000,
) -> Solution:
    """Find a δ-approximate equilibrium, confirmed by its certificate.

    It stops after `max_iterations`, rounded up to a multiple of 10. `alpha` is the dual's entropy weight. Its default,
    δ / (2 T ln|A|), costs at most half of δ; the proof's value is `proof_alpha(game, delta)`.
    """
    check_choice(("primal", "dual"), side=side)
    check_positive(delta=delta)
    check_whole(1, max_iterations=max_iterations)
    if _shape(moments) != game.mdp.shape:
        raise SpecError(
            f"the class '{moments.label}' has functions of shape {_shape(moments)}, the MDP has (T, S, A) = "
            f"{game.mdp.shape}: make the class from this MDP"
        )
    horizon, _, actions = game.mdp.shape
    if alpha is None:
        alpha = delta / (2 * horizon * math.log(max(actions, 2)))
    check_not_negative(alpha=alpha)
    max_checks = -(-max_iterations // CHECK_EVERY)
    if side == "primal":
        proof_bound = 2 * payoff_range(game, moments) ** 2 * horizon * math.log(max(actions, 2)) / delta**2
    else:
        check_positive(alpha=alpha)
        proof_bound = 1 / proof_delta(game, delta, 2 * payoff_range(game, moments))
    last, count, certificates = _solve(game, moments, delta, alpha, side=side, max_checks=max_checks)
    policy, f, certificate, payoff = last
    done = int(count)
    steps = CHECK_EVERY * np.arange(1, done + 1)
    return Solution(
        policy,
        f,
        float(certificate),
        float(payoff),
        delta,
        done * CHECK_EVERY,
        np.stack([steps, certificates[:done]], axis=1),
        proof_bound,
        f"{game.moments} moments, {side}, {moments.label}",
    )


def proof_alpha(game: Game, delta: float) -> float:
    """α = δ / (2 T (ln|A| + ln|S|)), as the proof of the theorem sets it."""
    horizon, states, actions = game.mdp.shape
    return delta / (2 * horizon * (math.log(max(actions, 2)) + math.log(states)))


def proof_delta(game: Game, delta: float, q_range: float = 1.0) -> float:
    """δ' = δ² α / (32 Q_M²): the precision that the proof needs in the regularised game. Q_M is 1 for F_r/2."""
    return delta**2 * proof_alpha(game, delta) / (32 * q_range**2)


def _shape(moments: MomentClass) -> tuple[int, ...]:
    with jax.enable_x64(True):
        return tuple(jax.eval_shape(moments.embed, jnp.zeros(moments.embed.shape)).shape)


def payoff_range(game: Game, moments: MomentClass) -> float:
    """G, a bound on the sum of costs: (1/T) Σ_t max |f_t|, or twice that for costs f − E_{π_E} f."""
    return float(moments.size.mean()) * (1 if game.moments == "reward" else 2)


@exact
def certificate(game: Game, moments: MomentClass, policy: Table, f: Table) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """δ(π̂, f̂) = sup_f U(π̂, f) − inf_π U(π, f̂), and its first term."""
    most = moments.sup(game.difference(policy))
    return most - game.payoff(game.respond(f), f), most


@exact
def regularised_certificate(
    game: Game, moments: MomentClass, policy: Table, f: Table, alpha: Float[Array, ""]
) -> Float[Array, ""]:
    """The certificate of the game U(π, f) − α H(π): the δ of the entropy regularisation lemma."""
    best = game.respond(f, jnp.asarray(alpha))
    most = moments.sup(game.difference(policy)) - alpha * game.entropy(policy)
    return most - (game.payoff(best, f) - alpha * game.entropy(best))


def lemma_bound(game: Game, delta: float, alpha: float, q_range: float = 1.0) -> float:
    """Entropy regularisation lemma: sup_f U(π̂, f) ≤ Q_M √(2δ/α) + α T (ln|A| + ln|S|).

    δ is the certificate of π̂ in the regularised game.
    """
    horizon, states, actions = game.mdp.shape
    return q_range * math.sqrt(2 * delta / alpha) + alpha * horizon * (math.log(actions) + math.log(states))


class _Check(NamedTuple):
    """π̂ and f̂ after some iterations, their certificate, and its first term."""

    policy: Table
    f: Table
    certificate: Float[Array, ""]
    payoff: Float[Array, ""]


Sides = tuple[GameSide, GameSide]
"""The policy's side and the moment function's. Their strategies are the x of `Game` and the parameter θ."""


def _rounds(
    game: Game, moments: MomentClass, alpha: float | Array, side: Side
) -> tuple[Sides, Callable[[Sides], Sides], Callable[[Sides, Array], _Check]]:
    """The sides before round 1, a round (lines 2 and 3), and π̂ and f̂ after n rounds with their certificate (line 4)."""

    def payoff(x: Table, theta: Array, key: Array) -> Float[Array, ""]:
        return jnp.sum(game.weights(x) * moments.embed(theta))

    def leader(cost: Table, scale: float | Array) -> Table:
        return game.strategy(game.lead(cost, PACE * scale))

    theta, x = jnp.zeros(moments.embed.shape), jnp.zeros(game.mdp.shape)
    if side == "primal":
        policy_player = follow_the_leader(leader)
        moment_player = linear_best_response(lambda cost: moments.corner(-cost))
        x = leader(x, math.sqrt(TINY))
    else:
        policy_player = linear_best_response(lambda cost: game.strategy(game.lead(cost, alpha)))
        moment_player = projected_gradient(moments.project, STRIDE * moments.radius)
    one_round = primal if side == "primal" else dual

    def play(sides: Sides) -> Sides:
        return one_round(payoff, policy_player, moment_player, *sides, jax.random.key(0))[:2]  # nothing is random

    def check(sides: Sides, n: Array) -> _Check:
        policy, moment = sides
        f = moments.embed(moment.total / n)
        pi = game.policy(policy.total / n) if side == "primal" else game.respond(f, alpha)
        return _Check(pi, f, *certificate(game, moments, pi, f))

    return (new_side(policy_player, x), new_side(moment_player, theta)), play, check


@partial(exact, static=("side", "max_checks"))
def _solve(
    game: Game, moments: MomentClass, delta: float | Array, alpha: float | Array, side: Side, max_checks: int
) -> tuple[_Check, Int[Array, ""], Float[Array, " checks"]]:
    """Play CHECK_EVERY rounds at a time until the certificate is at most δ."""
    sides, play, check = _rounds(game, moments, alpha, side)

    def unfinished(carry: tuple[Sides, _Check, Array, Array]) -> Array:
        _, last, checks, _ = carry
        return (last.certificate > delta) & (checks < max_checks)

    def body(carry: tuple[Sides, _Check, Array, Array]) -> tuple[Sides, _Check, Array, Array]:
        sides, _, checks, certificates = carry
        sides = jax.lax.fori_loop(0, CHECK_EVERY, lambda _, now: play(now), sides)
        last = check(sides, (checks + 1) * CHECK_EVERY)
        return sides, last, checks + 1, certificates.at[checks].set(last.certificate)

    first = check(sides, jnp.asarray(1))._replace(certificate=jnp.asarray(jnp.inf))
    start = sides, first, jnp.asarray(0), jnp.zeros(max_checks)
    _, last, checks, certificates = jax.lax.while_loop(unfinished, body, start)  # lines 1 and 5
    return last, checks, certificates


class Trace(NamedTuple):
    """Every round of a solver: entry n − 1 of each array is of round n."""

    policies: Float[Array, "n t s a"]
    """π̂_n, what `solve` returns after n rounds."""
    fs: Float[Array, "n t s a"]
    """f̂_n."""
    certificates: Float[Array, " n"]
    payoffs: Float[Array, " n"]
    """sup_f U(π̂_n, f)."""
    played_policies: Float[Array, "n t s a"]
    """π_n, the policy's move in the round."""
    played_fs: Float[Array, "n t s a"]
    """f_n."""


def trace(game: Game, moments: MomentClass, side: Side, iterations: int, alpha: float) -> Trace:
    """The rounds that `solve` plays, one by one and without stopping. `alpha` is the dual's entropy weight."""
    check_choice(("primal", "dual"), side=side)
    check_whole(1, iterations=iterations)
    check_positive(alpha=alpha)
    return _trace(game, moments, alpha, side=side, iterations=iterations)


@partial(exact, static=("side", "iterations"))
def _trace(game: Game, moments: MomentClass, alpha: float | Array, side: Side, iterations: int) -> Trace:
    start, play, check = _rounds(game, moments, alpha, side)

    def one(before: Sides, n: Array) -> tuple[Sides, Trace]:
        after = play(before)
        # The side that runs no-regret has already moved on to the next round.
        moved = (before[0], after[1]) if side == "primal" else (after[0], before[1])
        played = game.policy(moved[0].strategy), moments.embed(moved[1].strategy)
        return after, Trace(*check(after, n), *played)

    return jax.lax.scan(one, start, jnp.arange(1, iterations + 1))[1]
