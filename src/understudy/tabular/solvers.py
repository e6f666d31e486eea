"""Equilibria of the three games on a finite MDP, primal and dual (section 5), each with an exact certificate.

    primal: the policy runs no-regret                      dual: the moment function runs no-regret
    1. for n = 1, 2, ...                                   1. for n = 1, 2, ...
    2.     π_n ← argmin ⟨Σ_{i<n} c_i, π⟩ − τ_n H(π)        2.     f_n ← project(f_{n−1} + η_n ∇_f U(π_{n−1}, f))
    3.     f_n ← argmax_f U(π_n, f)                        3.     π_n ← argmin_π U(π, f_n) − α H(π)
    4. π̂ = the average of π_n, f̂ that of f_n               4. f̂ = the average of f_n, π̂ = argmin_π U(π, f̂) − α H(π)
    5. until δ(π̂, f̂) ≤ δ                                   5. until δ(π̂, f̂) ≤ δ

with the certificate

    δ(π̂, f̂) = sup_f U(π̂, f) − inf_π U(π, f̂)

computed exactly: no approximation, no sampling. A game whose policies include the expert has the value 0, so that
sup_f U(π̂, f) ≤ δ, and the bounds of section 4 turn that into one on the gap. U1 and U3 are bilinear in occupancies, so
the regularised leader among policies is one soft backward pass on the sum of costs so far, and averages are taken over
occupancies (`Game.strategy`). U2 decouples over (t, s).

Deviations: the theorem's primal returns the best iterate; here the average is returned, whose f̂ certifies it too.
τ_n grows with √(Σ max|c_i|²), and η_n falls with the slopes seen, so that no horizon or class needs its own step size.
What the proofs ask for stands beside the iterations that were needed, and is never run: for the primal the regret bound
of FTRL, R(N) ≤ G √(2 N T ln|A|), since trajectories' relative entropy is strongly convex in their total variation; for
the dual the paper's 1/δ', of which N is a polynomial that it leaves open.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from understudy.core.errors import SpecError, check_choice, check_not_negative, check_positive, check_whole
from understudy.tabular.games import Game
from understudy.tabular.mdp import Table, exact
from understudy.tabular.moments import MomentClass

Side = Literal["primal", "dual"]
PACE = 0.5
"""τ_n over √(Σ max|c_i|²)."""
STRIDE = 0.03
"""η_n over the radius of the class and √(Σ ‖slope_i‖²)."""
CHECKS = 10
"""Iterations between two certificates."""


class Solution(NamedTuple):
    policy: Table
    f: Table
    certificate: float
    """sup_f U(π̂, f) − inf_π U(π, f̂)."""
    payoff: float
    """sup_f U(π̂, f)."""
    delta: float
    """What was asked for."""
    iterations: int
    history: np.ndarray
    """(iteration, certificate) at every check."""
    asked: float
    """What the proofs ask for, see `asked_for`."""
    label: str

    @property
    def met(self) -> bool:
        return self.certificate <= self.delta

    @property
    def asked_for(self) -> str:
        """What `asked` is: iterations that suffice for the primal; for the dual the paper goes no further than 1/δ'."""
        if ", primal, " in self.label:
            return "FTRL's bound 2G²T ln|A|/δ²"
        return "1/δ', of which the proof's N is a polynomial"

    def __str__(self) -> str:
        verdict = "certified" if self.met else f"NOT met after {self.iterations} iterations"
        return (
            f"{self.label}: δ = {self.certificate:.2g} (asked {self.delta:g}, {verdict}) "
            f"in {self.iterations} iterations; {self.asked_for} is {self.asked:.2g}"
        )


def solve(
    game: Game,
    moments: MomentClass,
    side: Side = "primal",
    delta: float = 0.05,
    alpha: float | None = None,
    max_iterations: int = 20_000,
) -> Solution:
    """A δ-approximate equilibrium, by certificate.

    At most `max_iterations`, rounded up to a multiple of 10. `alpha` is the dual's entropy weight: by default
    δ / (2 T ln|A|), which costs half of δ at the most; the proof's is `proof_alpha(game, delta)`.
    """
    check_choice(("primal", "dual"), side=side)
    check_positive(delta=delta)
    check_whole(1, max_iterations=max_iterations)
    if _shape(moments) != game.mdp.shape:
        raise SpecError(f"the class '{moments.label}' is one of another MDP: (T, S, A) = {game.mdp.shape} is needed")
    horizon, _, actions = game.mdp.shape
    if alpha is None:
        alpha = delta / (2 * horizon * math.log(max(actions, 2)))
    check_not_negative(alpha=alpha)
    rounds = -(-max_iterations // CHECKS)
    if side == "primal":
        found = _primal(game, moments, delta, rounds=rounds)
        asked = 2 * payoff_range(game, moments) ** 2 * horizon * math.log(max(actions, 2)) / delta**2
    else:
        check_positive(alpha=alpha)
        found = _dual(game, moments, delta, alpha, rounds=rounds)
        asked = 1 / proof_delta(game, delta, 2 * payoff_range(game, moments))
    policy, f, certificate, payoff, checks, history = jax.device_get(found)
    done = int(checks)
    steps = CHECKS * np.arange(1, done + 1)
    return Solution(
        policy,
        f,
        float(certificate),
        float(payoff),
        delta,
        done * CHECKS,
        np.stack([steps, history[:done]], axis=1),
        asked,
        f"{game.moments} moments, {side}, {moments.label}",
    )


def proof_alpha(game: Game, delta: float) -> float:
    """α = δ / (2 T (ln|A| + ln|S|)), as the proof of the theorem sets it."""
    horizon, states, actions = game.mdp.shape
    return delta / (2 * horizon * (math.log(max(actions, 2)) + math.log(states)))


def proof_delta(game: Game, delta: float, q_range: float = 1.0) -> float:
    """δ' = δ² α / (32 Q_M²), which the proof asks of the regularised game, with its α; Q_M is 1 for F_r/2."""
    return delta**2 * proof_alpha(game, delta) / (32 * q_range**2)


def _shape(moments: MomentClass) -> tuple[int, ...]:
    with jax.enable_x64(True):
        return tuple(jax.eval_shape(moments.embed, jnp.zeros(moments.embed.shape)).shape)


def payoff_range(game: Game, moments: MomentClass) -> float:
    """G = (1/T) Σ_t max |f_t|, twice that where E_{π_E} f is taken off: the most that costs can add up to."""
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
    """The certificate of the game U(π, f) − α H(π), whose δ the entropy regularisation lemma speaks of."""
    best = game.respond(f, jnp.asarray(alpha))
    most = moments.sup(game.difference(policy)) - alpha * game.entropy(policy)
    return most - (game.payoff(best, f) - alpha * game.entropy(best))


def lemma_bound(game: Game, delta: float, alpha: float, q_range: float = 1.0) -> float:
    """Entropy regularisation lemma: sup_f U(π̂, f) ≤ Q_M √(2δ/α) + α T (ln|A| + ln|S|) where π̂ is δ-good with −α H."""
    horizon, states, actions = game.mdp.shape
    return q_range * math.sqrt(2 * delta / alpha) + alpha * horizon * (math.log(actions) + math.log(states))


Found = tuple[Table, Table, Array, Array, Int[Array, ""], Float[Array, " checks"]]


HandedOver = tuple[Table, Table, Array, Array]
"""π̂, f̂, their certificate, and its first term."""


def _iterate(
    step: Callable[[Any, Array], Any],
    hand_over: Callable[[Any, Array], HandedOver],
    start: Any,
    delta: float | Array,
    rounds: int,
) -> Found:
    """CHECKS steps at a time, until what is handed over has its certificate."""

    def going(carry: tuple[Any, HandedOver, Array, Array]) -> Array:
        _, found, checks, _ = carry
        return (found[2] > delta) & (checks < rounds)

    def body(carry: tuple[Any, HandedOver, Array, Array]) -> tuple[Any, HandedOver, Array, Array]:  # line 1
        state, _, checks, history = carry
        state = jax.lax.fori_loop(0, CHECKS, lambda i, s: step(s, checks * CHECKS + i + 1), state)
        found = hand_over(state, (checks + 1) * CHECKS)
        return state, found, checks + 1, history.at[checks].set(found[2])

    first = (*hand_over(start, jnp.asarray(1))[:2], jnp.asarray(jnp.inf), jnp.asarray(jnp.inf))
    _, found, checks, history = jax.lax.while_loop(
        going, body, (start, first, jnp.asarray(0), jnp.zeros(rounds))
    )  # line 5
    return *found, checks, history


class _Primal(NamedTuple):
    cost: Table
    squares: Array
    strategies: Table
    functions: Table


@partial(exact, static=("rounds",))
def _primal(game: Game, moments: MomentClass, delta: float, rounds: int) -> Found:
    def step(state: _Primal, n: Array) -> _Primal:
        policy = game.lead(state.cost, PACE * jnp.sqrt(state.squares))  # line 2
        f = moments.best(game.difference(policy))  # line 3
        cost = game.cost(f)
        return _Primal(
            state.cost + cost,
            state.squares + jnp.square(jnp.abs(cost).max()),
            state.strategies + game.strategy(policy),
            state.functions + f,
        )

    def hand_over(state: _Primal, n: Array) -> tuple[Table, Table, Array, Array]:  # line 4
        policy, f = game.policy(state.strategies / n), state.functions / n
        return policy, f, *certificate(game, moments, policy, f)

    zero = jnp.zeros(game.mdp.shape)
    return _iterate(step, hand_over, _Primal(zero, jnp.asarray(1e-12), zero, zero), delta, rounds)


class _Dual(NamedTuple):
    theta: Array
    squares: Array
    thetas: Array


@partial(exact, static=("rounds",))
def _dual(game: Game, moments: MomentClass, delta: float, alpha: float | Array, rounds: int) -> Found:
    def step(state: _Dual, n: Array) -> _Dual:
        policy = game.respond(moments.embed(state.theta), alpha)  # line 3
        slope = moments.adjoint(game.difference(policy))
        squares = state.squares + jnp.sum(jnp.square(slope))
        theta = moments.project(state.theta + STRIDE * moments.radius * slope / jnp.sqrt(squares))  # line 2
        return _Dual(theta, squares, state.thetas + state.theta)

    def hand_over(state: _Dual, n: Array) -> tuple[Table, Table, Array, Array]:  # line 4
        f = moments.embed(state.thetas / n)
        policy = game.respond(f, alpha)
        return policy, f, *certificate(game, moments, policy, f)

    zero = jnp.zeros(moments.embed.shape)
    return _iterate(step, hand_over, _Dual(zero, jnp.asarray(1e-12), zero), delta, rounds)
