"""Finite-horizon MDPs, single or in batches, and checks of tables on them.

A policy is a table π[t, s, a]; a reward or cost is a table r[t, s, a]; times are 0..T-1. A batch is several MDPs of
equal shape, stacked along leading axes.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from understudy.core.arrays import Array
from understudy.core.errors import SpecError

Table = Float[Array, "*batch t s a"]
"""A number for each (t, s, a), for one MDP or a batch."""
TOLERANCE = 1e-9
"""The allowed error of a sum of probabilities."""


class Dynamics(eqx.Module):
    """Abstract: the transitions of an MDP. Every subclass is final."""

    @abstractmethod
    def expect(self, value: Float[Array, " s"]) -> Float[Array, "s a"]:
        """E_{s' | s, a} value(s')."""

    @abstractmethod
    def push(self, visited: Float[Array, "s a"]) -> Float[Array, " s"]:
        """The distribution of s' when (s, a) is distributed as `visited`."""


class Dense(Dynamics):
    """P(s' | s, a) as a table."""

    probabilities: Float[Array, "*b s a s"]

    def expect(self, value: Float[Array, " s"]) -> Float[Array, "s a"]:
        return self.probabilities @ value

    def push(self, visited: Float[Array, "s a"]) -> Float[Array, " s"]:
        return visited.ravel() @ self.probabilities.reshape(-1, self.probabilities.shape[-1])


class Successors(Dynamics):
    """Deterministic transitions as indices of the next state, for large MDPs without a table of S × A × S."""

    index: Int[Array, "*b s a"]

    def expect(self, value: Float[Array, " s"]) -> Float[Array, "s a"]:
        return value[self.index]

    def push(self, visited: Float[Array, "s a"]) -> Float[Array, " s"]:
        return jnp.zeros(visited.shape[0], visited.dtype).at[self.index.ravel()].add(visited.ravel())


class FiniteMDP(eqx.Module):
    """States 0..S-1, actions 0..A-1, T steps. It has no reward, because imitation algorithms do not get one."""

    dynamics: Dynamics
    initial: Float[Array, "*b s"]
    available: Bool[Array, "*b s a"]
    """The mask of available actions in each state."""
    horizon: int = eqx.field(static=True)

    def __init__(self, transitions: Any, initial: Any, horizon: int, available: Any = None):
        """`transitions` is P(s' | s, a), or an integer table (s, a) of next states for deterministic dynamics."""
        transitions, initial = np.asarray(transitions), np.asarray(initial, np.float64)
        indexed = transitions.dtype.kind in "iu" and transitions.ndim == initial.ndim + 1
        if not indexed and (transitions.ndim != initial.ndim + 2 or transitions.shape[-1] != transitions.shape[-3]):
            raise SpecError(f"transitions have shape {transitions.shape}: (states, actions, states) is needed")
        table = transitions.shape if indexed else transitions.shape[:-1]
        if initial.shape != table[:-1]:
            raise SpecError(f"the initial distribution has shape {initial.shape}: {table[:-1]} is needed")
        if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer):
            raise SpecError(f"the horizon is {horizon}: a whole number of steps is needed")
        if horizon < 1:
            raise SpecError(f"the horizon is {horizon}: at least one step is needed")
        allowed = np.ones(table, bool) if available is None else np.asarray(available, bool)
        if allowed.shape != table:
            raise SpecError(f"the available actions have shape {allowed.shape}: {table} is needed")
        if not allowed.any(-1).all():
            raise SpecError(f"state{_first(~allowed.any(-1))} has no available action: every state needs one")
        check_distribution("the initial distribution", initial)
        if indexed:
            states = table[-2]
            if ((transitions < 0) | (transitions >= states)).any():
                bad = (transitions < 0) | (transitions >= states)
                raise SpecError(
                    f"transitions{_first(bad)} is {transitions[bad][0]}: a state from 0 to {states - 1} is needed"
                )
        else:
            check_distribution("transitions", np.asarray(transitions, np.float64))
        # NumPy arrays, because JAX would convert them to float32 in the next operation.
        self.dynamics = Successors(transitions.astype(np.int32)) if indexed else Dense(transitions.astype(np.float64))
        self.initial, self.available = initial, allowed
        self.horizon = int(horizon)

    @property
    def states(self) -> int:
        return int(self.available.shape[-2])

    @property
    def actions(self) -> int:
        return int(self.available.shape[-1])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(T, S, A): the shape of a policy or reward table."""
        return self.horizon, self.states, self.actions

    @property
    def table(self) -> tuple[int, ...]:
        """`shape` with the leading axes of a batch."""
        return (*self.available.shape[:-2], *self.shape)


def check_distribution(name: str, rows: Any) -> None:
    """Raise unless every row is a probability distribution."""
    values = np.asarray(rows, np.float64)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise SpecError(
            f"{name}{_first(~(values >= 0) | ~np.isfinite(values))} is negative or not finite: a probability is needed"
        )
    off = abs(values.sum(-1) - 1)
    if not (off <= TOLERANCE).all():
        why = ": pass float64, float32 is not exact enough" if off.max() < 1e-5 else ""
        raise SpecError(f"{name}{_first(off > TOLERANCE)} does not sum to one (off by {off.max():.2g}{why})")


def check_policy(mdp: FiniteMDP, policy: Any, name: str = "the policy") -> None:
    """Raise unless the policy is a table of distributions over available actions."""
    table = np.asarray(policy, np.float64)
    if table.shape != mdp.table:
        raise SpecError(f"{name} has shape {table.shape}: (steps, states, actions) = {mdp.table} is needed")
    check_distribution(name, table)
    outside = (table > 0) & ~np.broadcast_to(np.asarray(mdp.available)[..., None, :, :], table.shape)
    if outside.any():
        raise SpecError(f"{name}{_first(outside)} is positive, but the action is not available in that state: use 0")


def check_table(mdp: FiniteMDP, table: Any, name: str = "the reward", bound: float | None = None) -> None:
    """Raise unless the table has finite numbers within ±bound."""
    values = np.asarray(table, np.float64)
    if values.shape != mdp.table:
        raise SpecError(f"{name} has shape {values.shape}: (steps, states, actions) = {mdp.table} is needed")
    if not np.isfinite(values).all():
        raise SpecError(f"{name}{_first(~np.isfinite(values))} is not finite")
    if bound is not None and (abs(values) > bound + TOLERANCE).any():
        bad = abs(values) > bound + TOLERANCE
        raise SpecError(f"{name}{_first(bad)} is {values[bad][0]}: numbers from {-bound} to {bound} are allowed")


def _first(bad: Any) -> str:
    return f" {[int(i) for i in np.argwhere(bad)[0]]}" if np.ndim(bad) else ""


def stack(mdps: Sequence[FiniteMDP]) -> FiniteMDP:
    """Stack MDPs of equal shape to a batch."""
    kinds = {(mdp.table, jax.tree.structure(mdp)) for mdp in mdps}
    if len(kinds) != 1:
        raise SpecError(f"MDPs of {len(kinds)} shapes, {sorted(str(shape) for shape, _ in kinds)}: one shape is needed")
    return jax.tree.map(lambda *leaves: np.stack(leaves), *mdps)


def check_single(mdp: FiniteMDP) -> None:
    """Raise if the MDP is a batch."""
    if mdp.initial.ndim != 1:
        raise SpecError(f"mdp is a batch of {mdp.initial.shape[:-1]} MDPs: pass a single one")
