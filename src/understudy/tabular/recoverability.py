"""Recoverability: what a single mistake can cost an expert, over a class of rewards, and what follows from it.

    H = sup over t, s, a and r in the class of |A_t(s, a)|,     A = Q^{π_E}_r − E_{a ~ π_E} Q^{π_E}_r

A is linear in r: the inner product of r with Δ, the occupancy that starts with a in s at t and goes on with π_E, less
the one that starts in s with π_E. The supremum is therefore a norm of Δ,

    class of rewards             sup |A_t(s, a)|                      LOOP       CLIFF     UNICYCLE
    |r_t(s, a)| ≤ 1              Σ_{t', s', a'} |Δ_{t'}(s', a')|      4          2T        2T
    |r_t(s)| ≤ 1                 Σ_{t', s'} |Σ_{a'} Δ_{t'}|           2          2(T−1)    2(T−1)
    {r, −r}, the paper's r       |⟨r, Δ⟩|                             1          T         T − 1
    r = φ·θ, ‖θ‖₂ ≤ R            R ‖⟨φ, Δ⟩‖₂

with the sum over t' inside the absolute value where rewards are the same at all times. The paper says that LOOP is
1-recoverable, which is true of its own reward alone, and that CLIFF is not H-recoverable for any H < T, which is true
of all of these. Its definition asks for |A| < H; H here is the supremum, which is attained.

Section 4.5's sufficient condition, that π_E forgets a mistake within H steps, bounds Δ to H steps of norm at most 2: it
implies 2H for rewards in [−1, 1], and not H (LOOP forgets within 2 steps and has 4).

The gap is −Σ_t E_{s ~ π} E_{a ~ π} A, and A has mean zero under π_E. With l_t(s) = Σ_a |π_E − π| this gives

    J(π_E) − J(π) ≤ H Σ_t E_{s ~ π} e_t(s),     e_t(s) = min_λ Σ_a |π − λ π_E|,     l / 2 ≤ e ≤ min(l, 1),

which is l / 2 for a deterministic expert and may be as much as l for others.

Cost. Over a box of rewards, and in `recovers_within`, a Δ is followed for each mistake: T S A mistakes, each T steps of
S A numbers (S² A where dynamics are a table of probabilities), so (T S A)² in all. An expert that is the same at all
times needs S A mistakes alone, those at time 0: with T − t steps left it is Δ's first T − t steps. CLIFF at T = 128, of
33,024 triples, takes 0.1 s on two cores once compiled, and 3 to 8 s where its expert changes in time. The other classes
take one backward pass for each reward or feature. A batch is one MDP after the other.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from understudy.core.errors import SpecError, check_positive
from understudy.tabular.classical.matching import numbers
from understudy.tabular.mdp import (
    FiniteMDP,
    Table,
    advantages,
    check_policy,
    check_table,
    exact,
    occupancy,
    over_batches,
)

SAME = 1e-12
"""How far, in L1, two distributions over states may be from each other and count as one."""
TOGETHER = 2**18
"""Numbers of all the Δ that are followed at once, at the most: they stay in the cache."""


class Recoverability(NamedTuple):
    """The constant H, and a mistake that attains it: action `action` in state `state` at time `time`."""

    constant: Any
    time: Any
    state: Any
    action: Any


class Mistakes(eqx.Module):
    """Which actions can be mistakes, and whether a mistake at t is one at time 0 with fewer steps left."""

    pairs: Int[np.ndarray, "n 2"]
    """The (s, a) that some MDP of a batch has."""
    alike: bool = eqx.field(static=True)
    """Whether the expert is the same at all times, as the dynamics are."""

    def __init__(self, mdp: FiniteMDP, expert: Any):
        table = np.asarray(expert)
        self.pairs = np.argwhere(np.asarray(mdp.available).reshape(-1, *mdp.shape[1:]).any(0))
        self.alike = bool((table == table[..., :1, :, :]).all())


class Rewards(eqx.Module):
    """Abstract: a class of rewards, closed under negation. Every subclass is final."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What a table calls it."""

    @abstractmethod
    def check(self, mdp: FiniteMDP) -> None:
        """A named error where the class does not fit the MDP."""

    @abstractmethod
    def largest(self, mdp: FiniteMDP, expert: Table, mistakes: Mistakes) -> Table:
        """sup over the class of |A_t(s, a)|, for the mistakes at least."""


class Bounded(Rewards):
    """Every reward in [−1, 1], of (t, s, a) or of less."""

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

    features: Float[Array, "t s a k"]

    @property
    def label(self) -> str:
        return f"the span of {self.features.shape[-1]} features"

    def check(self, mdp: FiniteMDP) -> None:
        wanted = (*mdp.available.shape[:-2], *mdp.shape)
        if self.features.shape[:-1] not in (wanted, wanted[:-3] + wanted[-2:]):
            raise SpecError(
                f"features have shape {self.features.shape}: {wanted} and k, with or without time, is needed"
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
    """H over the expert's Q-functions of a class of rewards, by default all those in [−1, 1], and where it is attained.

    Actions that a state does not have are no mistakes. Of equal mistakes it is the first.
    """
    rewards = all_rewards() if rewards is None else rewards
    check_policy(mdp, expert, "the expert")
    rewards.check(mdp)
    return Recoverability(*map(np.asarray, _largest(mdp, expert, rewards, Mistakes(mdp, expert))))


def _one_by_one(function: Callable[..., Any], mdp: FiniteMDP, *others: Any) -> Any:
    """The function of an MDP, or of each of a batch, one after the other."""
    if mdp.initial.ndim == 1:
        return function(mdp, *others)
    return jax.lax.map(lambda one: _one_by_one(function, *one), (mdp, *others))


@exact
def _largest(mdp: FiniteMDP, expert: Table, rewards: Rewards, mistakes: Mistakes) -> tuple[Array, ...]:
    def one(mdp: FiniteMDP, expert: Table, rewards: Rewards) -> tuple[Array, ...]:
        found = jnp.where(mdp.available, rewards.largest(mdp, expert, mistakes), 0.0)
        # Rounding must not choose among equal mistakes.
        first = jnp.argmax(found >= found.max() - SAME * mdp.horizon)
        return found.max(), *jnp.unravel_index(first, found.shape)

    found: tuple[Array, ...] = _one_by_one(one, mdp, jnp.asarray(expert), rewards)
    return found


def difference(mdp: FiniteMDP, expert: Table, t: Array, s: Array, a: Array) -> Table:
    """Δ_{t'}(s', a'): the occupancy from (t, s, a) on, with π_E after it, less the one from (t, s) on with π_E."""
    mistake = jnp.zeros(mdp.shape[1:]).at[s].set(jax.nn.one_hot(a, mdp.actions) - expert[t, s])

    def forward(state: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        now, policy = at
        delta = state[:, None] * policy + jnp.where(now == t, mistake, 0.0)
        return mdp.dynamics.push(delta), delta

    return jax.lax.scan(forward, jnp.zeros(mdp.states), (jnp.arange(mdp.horizon), expert))[1]


def over_mistakes(
    measure: Callable[[Table], Float[Array, " t"]], mdp: FiniteMDP, expert: Table, mistakes: Mistakes
) -> Table:
    """A measure of Δ for every (t, s, a) among the mistakes, and 0 for others.

    `measure` is that of Δ up to each time, as a sum over time is, and 0 as long as Δ is. The last is that of all Δ. One
    that an expert alike at all times makes at time 0 has, at T − t − 1, what the one at t has in all.
    """
    times = np.arange(1 if mistakes.alike else mdp.horizon)
    count, (s, a) = len(mistakes.pairs), mistakes.pairs.T
    every = (jnp.repeat(times, count), jnp.tile(s, len(times)), jnp.tile(a, len(times)))

    def one(mistake: tuple[Array, Array, Array]) -> Array:
        measured = measure(difference(mdp, expert, *mistake))
        return measured[::-1] if mistakes.alike else measured[-1]

    together = min(max(1, TOGETHER // int(np.prod(mdp.shape))), len(every[0]))
    found = jax.lax.map(one, every, batch_size=together)
    found = found.T if mistakes.alike else found.reshape(mdp.horizon, count)
    return jnp.zeros(mdp.shape, found.dtype).at[:, s, a].set(found)


@exact
def _recovers(mdp: FiniteMDP, expert: Table, mistakes: Mistakes) -> Array:
    def steps(delta: Table) -> Array:
        return jnp.cumsum(jnp.abs(delta.sum(-1)).sum(-1) > SAME)

    def one(mdp: FiniteMDP, expert: Table) -> Array:
        return 1 + jnp.where(mdp.available, over_mistakes(steps, mdp, expert, mistakes), 0).max()

    found: Array = _one_by_one(one, mdp, jnp.asarray(expert))
    return found


def recovers_within(mdp: FiniteMDP, expert: Any) -> Any:
    """Section 4.5's condition: the least H for which any action and then H − 1 of π_E's, from any s and t, lead to the
    same distribution over states as H of π_E's.

    Distributions that have met stay together. After the last step any are the same, so it is T where the expert does
    not recover.
    """
    check_policy(mdp, expert, "the expert")
    return np.asarray(_recovers(mdp, expert, Mistakes(mdp, expert)))


@exact
def classification_error(expert: Table, policy: Table) -> Float[Array, "t s"]:
    """l_t(s) = Σ_a |π_E(a | s) − π(a | s)|: twice the probability of an error where the expert is deterministic."""
    return jnp.abs(jnp.asarray(expert) - policy).sum(-1)


@exact
def advantage_error(expert: Table, policy: Table) -> Float[Array, "t s"]:
    """e_t(s) = min_λ Σ_a |π(a | s) − λ π_E(a | s)| = max −E_{a ~ π} A over |A| ≤ 1 with E_{a ~ π_E} A = 0.

    The sum is piecewise linear in λ, so that one of its corners, π(a | s) / π_E(a | s), is a minimum.
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
