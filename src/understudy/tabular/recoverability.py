"""Recoverability: the largest cost of a single mistake for the expert, over a class of rewards.

    H = sup over t, s, a and r in the class of |A_t(s, a)|,     A = Q^{π_E}_r − E_{a ~ π_E} Q^{π_E}_r

A is linear in r: it is the inner product of r with Δ. Δ is the occupancy after action a in s at t, with π_E afterwards,
minus the occupancy of π_E from s at t. The supremum is therefore a norm of Δ:

    class of rewards             sup |A_t(s, a)|                      LOOP       CLIFF     UNICYCLE
    |r_t(s, a)| ≤ 1              Σ_{t', s', a'} |Δ_{t'}(s', a')|      4          2T        2T
    |r_t(s)| ≤ 1                 Σ_{t', s'} |Σ_{a'} Δ_{t'}|           2          2(T−1)    2(T−1)
    {r, −r}, the paper's r       |⟨r, Δ⟩|                             1          T         T − 1
    r = φ·θ, ‖θ‖₂ ≤ R            R ‖⟨φ, Δ⟩‖₂

For stationary rewards the sum over t' is inside the absolute value. The paper says that LOOP is 1-recoverable, which
holds only for its own reward, and that CLIFF is not H-recoverable for any H < T, which holds for all these classes. Its
definition requires |A| < H; here H is the supremum, which is attained.

Section 4.5 has a sufficient condition: π_E recovers from a mistake within H steps. Then Δ has H nonzero steps of norm
at most 2. For rewards in [−1, 1] this implies 2H-recoverability, not H (LOOP recovers within 2 steps and has 4).

The gap is −Σ_t E_{s ~ π} E_{a ~ π} A, and A has mean zero under π_E. With l_t(s) = Σ_a |π_E − π| this gives

    J(π_E) − J(π) ≤ H Σ_t E_{s ~ π} e_t(s),     e_t(s) = min_λ Σ_a |π − λ π_E|,     l / 2 ≤ e ≤ min(l, 1).

e is l / 2 for a deterministic expert and at most l for others.

Run time. For a box of rewards, and for `recovers_within`, Δ is computed for each of T S A mistakes. Each takes T steps
of S A numbers (S² A with a table of probabilities), so (T S A)² in all. A stationary expert needs only the S A
mistakes at time 0, because a mistake at t has the first T − t steps of the same Δ. CLIFF at T = 128 (33,024 triples)
takes 0.1 s on two cores after compilation, and 3 to 8 s with a time-dependent expert. The other classes take one
backward pass for each reward or feature. The MDPs of a batch are computed one after the other.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Num

from understudy.core.arrays import Array
from understudy.core.errors import SpecError, check_positive
from understudy.tabular.classical.matching import numbers
from understudy.tabular.compiling import exact, over_batches
from understudy.tabular.mdp import FiniteMDP, Table, check_policy, check_table
from understudy.tabular.planning import advantages, occupancy

EQUAL = 1e-12
"""Two state distributions count as equal up to this L1 distance."""
BATCH_NUMBERS = 2**18
"""The maximal number of entries of all Δ that are computed together, so that they fit in the CPU cache."""


class Recoverability(NamedTuple):
    """The constant H, and a mistake that attains it: `action` in `state` at `time`."""

    constant: Any
    time: Any
    state: Any
    action: Any


class Mistakes(eqx.Module):
    """The actions that can be mistakes, and whether the expert is stationary."""

    pairs: Int[np.ndarray, "n 2"]
    """The (s, a) that are available in at least one MDP of the batch."""
    stationary: bool = eqx.field(static=True)
    """Whether the expert is the same at all times."""

    def __init__(self, mdp: FiniteMDP, expert: Any):
        table = np.asarray(expert)
        self.pairs = np.argwhere(np.asarray(mdp.available).reshape(-1, *mdp.shape[1:]).any(0))
        self.stationary = bool((table == table[..., :1, :, :]).all())


class Rewards(eqx.Module):
    """Abstract: a class of rewards, closed under negation. Every subclass is final."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The name in tables."""

    @abstractmethod
    def check(self, mdp: FiniteMDP) -> None:
        """Raise if the class does not fit the MDP."""

    @abstractmethod
    def largest(self, mdp: FiniteMDP, expert: Table, mistakes: Mistakes) -> Table:
        """sup over the class of |A_t(s, a)|, at least for the mistakes."""


class Bounded(Rewards):
    """All rewards in [−1, 1]: functions of (t, s, a), without a with `of_state`, without t with `stationary`."""

    of_state: bool = eqx.field(static=True)
    stationary: bool = eqx.field(static=True)

    @property
    def label(self) -> str:
        return f"all {'stationary ' * self.stationary}rewards {'of state ' * self.of_state}in [−1, 1]"

    def check(self, mdp: FiniteMDP) -> None:
        return

    def largest(self, mdp: FiniteMDP, expert: Table, mistakes: Mistakes) -> Table:
        def norms(delta: Table) -> Float[Array, " t"]:
            delta = (delta.sum(-1) if self.of_state else delta).reshape(mdp.horizon, -1)
            return jnp.abs(delta.cumsum(0)).sum(-1) if self.stationary else jnp.abs(delta).sum(-1).cumsum()

        return over_mistakes(norms, mdp, expert, mistakes)


class PlusMinus(Rewards):
    """r and −r."""

    reward: Table

    @property
    def label(self) -> str:
        return "{r, −r}"

    def check(self, mdp: FiniteMDP) -> None:
        check_table(mdp, self.reward)

    def largest(self, mdp: FiniteMDP, expert: Table, mistakes: Mistakes) -> Table:
        return jnp.abs(advantages(mdp, self.reward, expert))


class Spanned(Rewards):
    """r = φ·θ with ‖θ‖₂ ≤ R: the features are R φ[t, s, a, k]."""

    features: Float[Array, "*table k"]

    @property
    def label(self) -> str:
        return f"the span of {self.features.shape[-1]} features"

    def check(self, mdp: FiniteMDP) -> None:
        wanted = (*mdp.available.shape[:-2], *mdp.shape)
        if self.features.shape[:-1] not in (wanted, wanted[:-3] + wanted[-2:]):
            raise SpecError(
                f"features have shape {self.features.shape}: {(*wanted, 'k')} is needed, with or without the time axis"
            )

    def largest(self, mdp: FiniteMDP, expert: Table, mistakes: Mistakes) -> Table:
        features = jnp.broadcast_to(self.features, (*mdp.shape, self.features.shape[-1]))
        each = jax.vmap(lambda reward: advantages(mdp, reward, expert), -1, -1)(features)
        return jnp.linalg.norm(each, axis=-1)


def all_rewards(stationary: bool = False) -> Bounded:
    """|r_t(s, a)| ≤ 1, or |r(s, a)| ≤ 1 if stationary."""
    return Bounded(of_state=False, stationary=stationary)


def state_rewards(stationary: bool = False) -> Bounded:
    """|r_t(s)| ≤ 1, or |r(s)| ≤ 1 if stationary."""
    return Bounded(of_state=True, stationary=stationary)


def plus_minus(reward: Any) -> PlusMinus:
    """{r, −r}, for r[t, s, a]."""
    with jax.enable_x64(True):
        return PlusMinus(jnp.asarray(reward, float))


def spanned(features: Any, radius: float = 1.0) -> Spanned:
    """{φ·θ: ‖θ‖₂ ≤ radius}, for φ[s, a, k] or φ[t, s, a, k]."""
    check_positive(radius=radius)
    table = radius * numbers(features, "features")
    with jax.enable_x64(True):
        return Spanned(jnp.asarray(table))


def recoverability(mdp: FiniteMDP, expert: Any, rewards: Rewards | None = None) -> Recoverability:
    """H for a class of rewards (default: all in [−1, 1]), and the first mistake that attains it.

    Unavailable actions are not mistakes.
    """
    rewards = all_rewards() if rewards is None else rewards
    check_policy(mdp, expert, "the expert")
    rewards.check(mdp)
    return Recoverability(*map(np.asarray, _largest(mdp, expert, rewards, Mistakes(mdp, expert))))


def _one_by_one(function: Callable[..., Any], mdp: FiniteMDP, *others: Any) -> Any:
    """Apply the function to an MDP, or to each MDP of a batch, one after the other."""
    if mdp.initial.ndim == 1:
        return function(mdp, *others)
    return jax.lax.map(lambda one: _one_by_one(function, *one), (mdp, *others))


@exact
def _largest(mdp: FiniteMDP, expert: Table, rewards: Rewards, mistakes: Mistakes) -> tuple[Array, ...]:
    def one(mdp: FiniteMDP, expert: Table, rewards: Rewards) -> tuple[Array, ...]:
        found = jnp.where(mdp.available, rewards.largest(mdp, expert, mistakes), 0.0)
        # A tolerance, so that rounding does not choose among equal mistakes.
        first = jnp.argmax(found >= found.max() - EQUAL * mdp.horizon)
        return found.max(), *jnp.unravel_index(first, found.shape)

    found: tuple[Array, ...] = _one_by_one(one, mdp, jnp.asarray(expert), rewards)
    return found


def difference(mdp: FiniteMDP, expert: Table, t: Array, s: Array, a: Array) -> Table:
    """Δ_{t'}(s', a'): the occupancy after (t, s, a), with π_E afterwards, minus that of π_E from (t, s)."""
    mistake = jnp.zeros(mdp.shape[1:]).at[s].set(jax.nn.one_hot(a, mdp.actions) - expert[t, s])

    def forward(state: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        now, policy = at
        delta = state[:, None] * policy + jnp.where(now == t, mistake, 0.0)
        return mdp.dynamics.push(delta), delta

    return jax.lax.scan(forward, jnp.zeros(mdp.states), (jnp.arange(mdp.horizon), expert))[1]


def over_mistakes(
    measure: Callable[[Table], Num[Array, " t"]], mdp: FiniteMDP, expert: Table, mistakes: Mistakes
) -> Num[Array, "t s a"]:
    """A measure of Δ for every mistake (t, s, a), and 0 elsewhere.

    `measure(Δ)` is cumulative in time: entry t' is the measure of Δ up to t', and the last is that of all Δ. It is 0
    while Δ is 0. For a stationary expert, a mistake at t has the measure of the mistake at time 0 up to T − t − 1.
    """
    times = np.arange(1 if mistakes.stationary else mdp.horizon)
    count, (s, a) = len(mistakes.pairs), mistakes.pairs.T
    every = (jnp.repeat(times, count), jnp.tile(s, len(times)), jnp.tile(a, len(times)))

    def one(mistake: tuple[Array, Array, Array]) -> Array:
        measured = measure(difference(mdp, expert, *mistake))
        return measured[::-1] if mistakes.stationary else measured[-1]

    batch_size = min(max(1, BATCH_NUMBERS // int(np.prod(mdp.shape))), len(every[0]))
    found = jax.lax.map(one, every, batch_size=batch_size)
    found = found.T if mistakes.stationary else found.reshape(mdp.horizon, count)
    return jnp.zeros(mdp.shape, found.dtype).at[:, s, a].set(found)


@exact
def _recovers(mdp: FiniteMDP, expert: Table, mistakes: Mistakes) -> Array:
    def steps(delta: Table) -> Array:
        return jnp.cumsum(jnp.abs(delta.sum(-1)).sum(-1) > EQUAL)

    def one(mdp: FiniteMDP, expert: Table) -> Array:
        return 1 + jnp.where(mdp.available, over_mistakes(steps, mdp, expert, mistakes), 0).max()

    found: Array = _one_by_one(one, mdp, jnp.asarray(expert))
    return found


def recovers_within(mdp: FiniteMDP, expert: Any) -> Any:
    """Section 4.5's condition: the smallest H such that, from any s and t, any action followed by H − 1 actions of π_E
    leads to the same state distribution as H actions of π_E.

    Distributions that are equal once stay equal. It is T if the expert does not recover within the horizon.
    """
    check_policy(mdp, expert, "the expert")
    return np.asarray(_recovers(mdp, expert, Mistakes(mdp, expert)))


@exact
def classification_error(expert: Float[Array, "*b a"], policy: Float[Array, "*b a"]) -> Float[Array, "*b"]:
    """l_t(s) = Σ_a |π_E(a | s) − π(a | s)|: twice the error probability if the expert is deterministic."""
    return jnp.abs(jnp.asarray(expert) - policy).sum(-1)


@exact
def advantage_error(expert: Float[Array, "*b a"], policy: Float[Array, "*b a"]) -> Float[Array, "*b"]:
    """e_t(s) = min_λ Σ_a |π(a | s) − λ π_E(a | s)| = max −E_{a ~ π} A over |A| ≤ 1 with E_{a ~ π_E} A = 0.

    The sum is piecewise linear and convex in λ, so one of its corners π(a | s) / π_E(a | s) is a minimum.
    """
    expert, policy = jnp.asarray(expert), jnp.asarray(policy)
    corners = jnp.where(expert > 0, policy / jnp.where(expert > 0, expert, 1.0), 1.0)
    errors = jnp.abs(policy[..., None, :] - corners[..., :, None] * expert[..., None, :]).sum(-1)
    return errors.min(-1)


@over_batches
def error_bound(mdp: FiniteMDP, expert: Table, policy: Table, constant: Float[Array, ""]) -> Float[Array, ""]:
    """H Σ_t E_{s ~ π} e_t(s) ≥ J(π_E) − J(π), for an H-recoverable expert; at most H Σ_t E_{s ~ π} l_t(s)."""
    visited = occupancy(mdp, policy).sum(-1)
    return constant * jnp.sum(visited * advantage_error(expert, policy))
