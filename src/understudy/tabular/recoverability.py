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
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from understudy.errors import SpecError, check_positive
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
TOGETHER = 256
"""How many mistakes are followed at once: a Δ each is in memory."""


class Recoverability(NamedTuple):
    """The constant H, and a mistake that attains it: action `action` in state `state` at time `time`."""

    constant: Any
    time: Any
    state: Any
    action: Any


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
    def largest(self, mdp: FiniteMDP, expert: Table) -> Table:
        """sup over the class of |A_t(s, a)|."""


class Bounded(Rewards):
    """Every reward in [−1, 1], of (t, s, a) or of less."""

    of_state: bool = eqx.field(static=True)
    stationary: bool = eqx.field(static=True)

    @property
    def label(self) -> str:
        return f"all {'stationary ' * self.stationary}rewards {'of state ' * self.of_state}in [−1, 1]"

    def check(self, mdp: FiniteMDP) -> None:
        return

    def largest(self, mdp: FiniteMDP, expert: Table) -> Table:
        def norm(delta: Table) -> Array:
            delta = delta.sum(-1) if self.of_state else delta
            return jnp.abs(delta.sum(0) if self.stationary else delta).sum()

        return over_mistakes(norm, mdp, expert)


class PlusMinus(Rewards):
    """r and −r."""

    reward: Table

    @property
    def label(self) -> str:
        return "{r, −r}"

    def check(self, mdp: FiniteMDP) -> None:
        check_table(mdp, self.reward)

    def largest(self, mdp: FiniteMDP, expert: Table) -> Table:
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

    def largest(self, mdp: FiniteMDP, expert: Table) -> Table:
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
    table = np.asarray(features, np.float64)
    if not np.isfinite(table).all():
        raise SpecError(f"features {[int(i) for i in np.argwhere(~np.isfinite(table))[0]]} is not a number")
    with jax.enable_x64(True):
        return Spanned(jnp.asarray(radius * table))


def recoverability(mdp: FiniteMDP, expert: Any, rewards: Rewards | None = None) -> Recoverability:
    """H over the expert's Q-functions of a class of rewards, by default all those in [−1, 1], and where it is attained.

    Actions that a state does not have are no mistakes. Of equal mistakes it is the first.
    """
    rewards = all_rewards() if rewards is None else rewards
    check_policy(mdp, expert, "the expert")
    rewards.check(mdp)
    return Recoverability(*map(np.asarray, _largest(rewards, mdp, expert)))


@exact
def _largest(rewards: Rewards, mdp: FiniteMDP, expert: Table) -> tuple[Array, ...]:
    def one(rewards: Rewards, mdp: FiniteMDP, expert: Table) -> tuple[Array, ...]:
        if mdp.initial.ndim > 1:
            return jax.vmap(one)(rewards, mdp, expert)
        found = jnp.where(mdp.available, rewards.largest(mdp, expert), 0.0)
        # Rounding must not choose among equal mistakes.
        first = jnp.argmax(found >= found.max() - SAME * mdp.horizon)
        return found.max(), *jnp.unravel_index(first, found.shape)

    return one(rewards, mdp, jnp.asarray(expert))


def difference(mdp: FiniteMDP, expert: Table, t: Array, s: Array, a: Array) -> Table:
    """Δ_{t'}(s', a'): the occupancy from (t, s, a) on, with π_E after it, less the one from (t, s) on with π_E."""
    mistake = jnp.zeros(mdp.shape[1:]).at[s].set(jax.nn.one_hot(a, mdp.actions) - expert[t, s])

    def forward(state: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        now, policy = at
        delta = state[:, None] * policy + jnp.where(now == t, mistake, 0.0)
        return mdp.dynamics.push(delta), delta

    return jax.lax.scan(forward, jnp.zeros(mdp.states), (jnp.arange(mdp.horizon), expert))[1]


def over_mistakes(measure: Callable[[Table], Array], mdp: FiniteMDP, expert: Table) -> Table:
    """`measure` of Δ for every (t, s, a)."""

    def one(mistake: Array) -> Array:
        return measure(difference(mdp, expert, *mistake))

    mistakes = jnp.indices(mdp.shape).reshape(3, -1).T
    return jax.lax.map(one, mistakes, batch_size=min(TOGETHER, len(mistakes))).reshape(mdp.shape)


@over_batches
def _recovers(mdp: FiniteMDP, expert: Table) -> Array:
    def steps(delta: Table) -> Array:
        return 1 + jnp.sum(jnp.abs(delta.sum(-1)).sum(-1) > SAME)

    return jnp.where(mdp.available, over_mistakes(steps, mdp, expert), 1).max()


def recovers_within(mdp: FiniteMDP, expert: Any) -> Any:
    """Section 4.5's condition: the least H for which any action and then H − 1 of π_E's, from any s and t, lead to the
    same distribution over states as H of π_E's.

    Distributions that have met stay together. After the last step any are the same, so it is T where the expert does
    not recover.
    """
    check_policy(mdp, expert, "the expert")
    return np.asarray(_recovers(mdp, expert))


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
