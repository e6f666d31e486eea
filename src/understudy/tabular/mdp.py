"""Finite-horizon MDPs by dynamic programming: values, occupancies and responses of time-dependent policies.

A policy is a table π[t, s, a], a reward or cost a table r[t, s, a]; times are 0..T-1. Every function here computes in
float64, takes NumPy or JAX arrays, and takes a batch of MDPs of one shape, stacked along leading axes, as readily as
one. `samples` turns an occupancy into the weighted (t, s, a) that `payoffs` takes, so that the exact games go through
the same code as the sampled ones.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from understudy.core.arrays import Array
from understudy.core.errors import SettingError, SpecError
from understudy.core.types import Samples

P = ParamSpec("P")
R = TypeVar("R")
Table = Float[Array, "t s a"]
CACHED = 2**16
"""Numbers of MDPs that are computed together on a CPU, at the most."""
ONE = 1e-9
"""How far a row of probabilities may be from summing to one."""


def exact(function: Callable[P, R], static: tuple[str, ...] = ()) -> Callable[P, R]:
    """Compile a function in float64, and leave the precision of the rest of the program as it is.

    What it returns are NumPy arrays (within another compiled function, JAX's): in JAX's hands, outside, they would fall
    to float32 at the next sum.
    """
    compiled = jax.jit(function, static_argnames=static)

    @wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            result = compiled(*args, **kwargs)
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(result))
        return result if traced else jax.device_get(result)

    return inside


POLICIES = {"policy": "the policy", "expert": "the expert", "valued": "the policy"}
TABLES = {"reward": "the reward", "cost": "the cost", "visited": "the occupancy", "f": "f", "g": "g"}
"""Parameters that `over_batches` checks, by name: [t, s, a] tables, of distributions over actions or of numbers."""


def over_batches(function: Callable[..., R]) -> Callable[..., R]:
    """Of an MDP and tables: exact, and for a batch of MDPs (leading axes on every argument) one result each.

    Tables are checked by their parameter's name, in the compiled program, which reads them anyway; single numbers serve
    all MDPs.
    """
    names = list(inspect.signature(function).parameters)[1:]

    def one(mdp: "FiniteMDP", *arguments: Array) -> tuple[R, Array]:
        fine = [_fine(mdp, name, argument) for name, argument in zip(names, arguments, strict=True)]
        return function(mdp, *arguments), jnp.stack([jnp.asarray(True), *fine])

    def mapped(mdp: "FiniteMDP", *arguments: Any) -> tuple[R, Array]:
        if mdp.initial.ndim == 1:
            return one(mdp, *arguments)
        arguments = tuple(jnp.broadcast_to(x, len(mdp.initial)) if jnp.ndim(x) == 0 else x for x in arguments)
        if jax.default_backend() != "cpu":
            return jax.vmap(mapped)(mdp, *arguments)
        # All at once, every time step would fetch every MDP's transitions from memory; a few at once stay in the cache.
        numbers = sum(leaf[0].size for leaf in jax.tree.leaves(mdp))
        return jax.lax.map(lambda each: mapped(*each), (mdp, *arguments), batch_size=max(1, CACHED // numbers))

    compiled = exact(lambda mdp, *arguments: mapped(mdp, *map(jnp.asarray, arguments)))

    @wraps(function)
    def inside(mdp: "FiniteMDP", *arguments: Any) -> R:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((mdp, arguments))):
            return compiled(mdp, *arguments)[0]
        for name, argument in zip(names, arguments, strict=True):
            if (name in POLICIES or name in TABLES) and np.shape(argument) != mdp.table:
                what = POLICIES.get(name) or TABLES[name]
                raise SpecError(
                    f"{what} has shape {np.shape(argument)}: (steps, states, actions) = {mdp.table} is needed"
                )
        result, fine = compiled(mdp, *arguments)
        if isinstance(fine, jax.core.Tracer):  # called inside another compiled function, with constants
            return result
        if not np.all(fine):
            for name, argument in zip(names, arguments, strict=True):
                if name in POLICIES:
                    check_policy(mdp, argument, POLICIES[name])
                elif name in TABLES:
                    check_table(mdp, argument, TABLES[name])
                elif name == "temperature":
                    raise SettingError(f"temperature is {argument}: a number above 0 is needed")
        return result

    return inside


def _fine(mdp: "FiniteMDP", name: str, argument: Array) -> Array:
    """Whether an argument is what its name says."""
    if name in POLICIES:
        sums = jnp.abs(argument.sum(-1) - 1).max() <= ONE
        return sums & (argument.min() >= 0) & jnp.all(jnp.where(mdp.available, True, argument == 0))
    if name in TABLES:
        return jnp.isfinite(argument).all()
    return jnp.asarray(argument > 0).all() if name == "temperature" else jnp.asarray(True)


class Dynamics(eqx.Module):
    """Abstract: where an action leads. Every subclass is final."""

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
    """The one state that follows, as an index: for large structured MDPs, which need no table of S × A × S."""

    index: Int[Array, "*b s a"]

    def expect(self, value: Float[Array, " s"]) -> Float[Array, "s a"]:
        return value[self.index]

    def push(self, visited: Float[Array, "s a"]) -> Float[Array, " s"]:
        return jnp.zeros(visited.shape[0], visited.dtype).at[self.index.ravel()].add(visited.ravel())


class FiniteMDP(eqx.Module):
    """States 0..S-1, actions 0..A-1, T steps. The reward is not part of it: imitation does not know it."""

    dynamics: Dynamics
    initial: Float[Array, "*b s"]
    available: Bool[Array, "*b s a"]
    """Which actions a state has."""
    horizon: int = eqx.field(static=True)

    def __init__(self, transitions: Any, initial: Any, horizon: int, available: Any = None):
        """`transitions` is P(s' | s, a), or an integer table (s, a) of the one state that follows."""
        transitions, initial = np.asarray(transitions), np.asarray(initial, np.float64)
        indexed = transitions.dtype.kind in "iu" and transitions.ndim == initial.ndim + 1
        if not indexed and (transitions.ndim != initial.ndim + 2 or transitions.shape[-1] != transitions.shape[-3]):
            raise SpecError(f"transitions have shape {transitions.shape}: (states, actions, states) is needed")
        table = transitions.shape if indexed else transitions.shape[:-1]
        if initial.shape != table[:-1]:
            raise SpecError(f"the initial distribution has shape {initial.shape}, the transitions' is {table[:-1]}")
        if isinstance(horizon, bool) or not isinstance(horizon, int | np.integer):
            raise SpecError(f"the horizon is {horizon}: a whole number of steps is needed, these MDPs end")
        if horizon < 1:
            raise SpecError(f"the horizon is {horizon}: at least one step is needed")
        allowed = np.ones(table, bool) if available is None else np.asarray(available, bool)
        if allowed.shape != table:
            raise SpecError(f"the available actions have shape {allowed.shape}: {table} is needed")
        if not allowed.any(-1).all():
            raise SpecError(f"state{_first(~allowed.any(-1))} has no action")
        check_distribution("the initial distribution", initial)
        if indexed:
            states = table[-2]
            if ((transitions < 0) | (transitions >= states)).any():
                bad = (transitions < 0) | (transitions >= states)
                raise SpecError(f"transitions{_first(bad)} is {transitions[bad][0]}: there are {states} states")
        else:
            check_distribution("transitions", np.asarray(transitions, np.float64))
        # NumPy's arrays, since JAX's would fall to float32 in the hands of a person who adds them up.
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
        """(T, S, A): that of a policy's or a reward's table."""
        return self.horizon, self.states, self.actions

    @property
    def table(self) -> tuple[int, ...]:
        """`shape`, for a batch of MDPs with its leading axes."""
        return (*self.available.shape[:-2], *self.shape)


def check_distribution(name: str, rows: Any) -> None:
    values = np.asarray(rows, np.float64)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise SpecError(f"{name}{_first(~(values >= 0) | ~np.isfinite(values))} is negative or not a number")
    off = abs(values.sum(-1) - 1)
    if not (off <= ONE).all():
        why = ": 32 bits are not exact enough, give float64" if off.max() < 1e-5 else ""
        raise SpecError(f"{name}{_first(off > ONE)} does not sum to one (off by {off.max():.2g}{why})")


def check_policy(mdp: FiniteMDP, policy: Any, name: str = "the policy") -> None:
    """A table of distributions over available actions, or a named error."""
    table = np.asarray(policy, np.float64)
    if table.shape != mdp.table:
        raise SpecError(f"{name} has shape {table.shape}: (steps, states, actions) = {mdp.table} is needed")
    check_distribution(name, table)
    outside = (table > 0) & ~np.broadcast_to(np.asarray(mdp.available)[..., None, :, :], table.shape)
    if outside.any():
        raise SpecError(f"{name}{_first(outside)} is positive, but that state does not have that action")


def check_table(mdp: FiniteMDP, table: Any, name: str = "the reward", bound: float | None = None) -> None:
    """A table of finite numbers within ±bound, or a named error."""
    values = np.asarray(table, np.float64)
    if values.shape != mdp.table:
        raise SpecError(f"{name} has shape {values.shape}: (steps, states, actions) = {mdp.table} is needed")
    if not np.isfinite(values).all():
        raise SpecError(f"{name}{_first(~np.isfinite(values))} is not a number")
    if bound is not None and (abs(values) > bound + ONE).any():
        bad = abs(values) > bound + ONE
        raise SpecError(f"{name}{_first(bad)} is {values[bad][0]}: the class allows {-bound} to {bound}")


def _first(bad: Any) -> str:
    return f" {[int(i) for i in np.argwhere(bad)[0]]}" if np.ndim(bad) else ""


def stack(mdps: Sequence[FiniteMDP]) -> FiniteMDP:
    """Several MDPs of one shape as a batch."""
    kinds = {(mdp.table, jax.tree.structure(mdp)) for mdp in mdps}
    if len(kinds) != 1:
        raise SpecError(f"MDPs of {len(kinds)} shapes, {sorted(str(shape) for shape, _ in kinds)}: one is needed")
    return jax.tree.map(lambda *leaves: np.stack(leaves), *mdps)


def check_single(mdp: FiniteMDP) -> None:
    """Refuse a batch, where one MDP is meant."""
    if mdp.initial.ndim != 1:
        raise SpecError(f"a batch of {mdp.initial.shape[:-1]} MDPs: this is for one at a time")


@over_batches
def q_values(mdp: FiniteMDP, reward: Table, policy: Table) -> Table:
    """Q^π_t(s, a) = r_t(s, a) + E_{s'} E_{a' ~ π_{t+1}} Q^π_{t+1}(s', a')."""

    def backward(value: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        reward_t, policy_t = at
        q = reward_t + mdp.dynamics.expect(value)
        return jnp.sum(policy_t * q, axis=-1), q

    return jax.lax.scan(backward, jnp.zeros_like(mdp.initial), (reward, policy), reverse=True)[1]


@over_batches
def values(mdp: FiniteMDP, reward: Table, policy: Table) -> Float[Array, "t s"]:
    """V^π_t(s) = E_{a ~ π_t(s)} Q^π_t(s, a)."""
    return jnp.sum(policy * q_values(mdp, reward, policy), axis=-1)


@over_batches
def advantages(mdp: FiniteMDP, reward: Table, policy: Table) -> Table:
    """A^π_t(s, a) = Q^π_t(s, a) − V^π_t(s)."""
    q = q_values(mdp, reward, policy)
    return q - jnp.sum(policy * q, axis=-1, keepdims=True)


@over_batches
def occupancy(mdp: FiniteMDP, policy: Table) -> Table:
    """d_t(s, a): the probability of being in s and taking a at time t."""

    def forward(state: Array, policy_t: Array) -> tuple[Array, Array]:
        visited = state[:, None] * policy_t
        return mdp.dynamics.push(visited), visited

    return jax.lax.scan(forward, mdp.initial, policy)[1]


@over_batches
def performance(mdp: FiniteMDP, reward: Table, policy: Table) -> Float[Array, ""]:
    """J(π) = E Σ_t r_t(s_t, a_t)."""
    return jnp.sum(occupancy(mdp, policy) * reward)


@over_batches
def imitation_gap(mdp: FiniteMDP, reward: Table, expert: Table, policy: Table) -> Float[Array, ""]:
    """J(π_E) − J(π), as Σ_t E_{s ~ π} Σ_a (π_E − π)(a | s) A^{π_E}_t(s, a): a difference of returns loses digits."""
    visited = occupancy(mdp, policy).sum(-1, keepdims=True)
    return jnp.sum(visited * (expert - policy) * advantages(mdp, reward, expert))


@over_batches
def samples(mdp: FiniteMDP, policy: Table) -> Samples:
    """Every (t, s, a), weighted by d_t(s, a) / T: an exact expectation (1/T) Σ_t E f_t(s_t, a_t)."""
    visited = occupancy(mdp, policy)
    t, s, a = (index.ravel() for index in jnp.indices(visited.shape))
    return Samples(t, s, a, visited.ravel() / mdp.horizon)


@over_batches
def causal_entropy(mdp: FiniteMDP, policy: Table) -> Float[Array, ""]:
    """H(π) = −E_π Σ_t log π_t(a_t | s_t)."""
    visited = occupancy(mdp, policy)
    return -jnp.sum(jnp.where(policy > 0, visited * jnp.log(jnp.where(policy > 0, policy, 1.0)), 0.0))


@over_batches
def uniform(mdp: FiniteMDP) -> Table:
    """The policy that picks any available action."""
    return jnp.broadcast_to(mdp.available / mdp.available.sum(-1, keepdims=True), mdp.shape)


@over_batches
def best_response(mdp: FiniteMDP, cost: Table) -> Table:
    """argmin_π E_π Σ_t cost_t(s_t, a_t), by backward induction; of equal actions the first."""

    def backward(value: Array, cost_t: Array) -> tuple[Array, Array]:
        q = jnp.where(mdp.available, cost_t + mdp.dynamics.expect(value), jnp.inf)
        return q.min(-1), jax.nn.one_hot(q.argmin(-1), mdp.actions, dtype=q.dtype)

    return jax.lax.scan(backward, jnp.zeros_like(mdp.initial), cost, reverse=True)[1]


@over_batches
def soft_response(mdp: FiniteMDP, cost: Table, temperature: Float[Array, ""]) -> Table:
    """argmin_π E_π Σ_t cost_t(s_t, a_t) − α H(π), α the temperature and H the causal entropy: a soft backward pass,

    π_t(a | s) ∝ exp(−Q_t(s, a) / α),   Q_t = cost_t + E V_{t+1},   V_t = −α log Σ_a exp(−Q_t / α)
    """

    def backward(value: Array, cost_t: Array) -> tuple[Array, Array]:
        q = cost_t + mdp.dynamics.expect(value)
        logits = jnp.where(mdp.available, -q / temperature, -jnp.inf)
        return -temperature * jax.nn.logsumexp(logits, axis=-1), jax.nn.softmax(logits, axis=-1)

    return jax.lax.scan(backward, jnp.zeros_like(mdp.initial), cost, reverse=True)[1]


@over_batches
def collapse(mdp: FiniteMDP, visited: Table) -> Table:
    """The one policy whose occupancy is `visited`, a mixture's Σ_i w_i d^{π_i} say: π_t(a | s) = d_t(s, a) / d_t(s).

    Where d_t(s) is zero any action is right, and it takes each alike. (Syed and Schapire, 2008.)
    """
    total = visited.sum(-1, keepdims=True)
    return jnp.where(total > 0, visited / jnp.where(total > 0, total, 1.0), uniform(mdp))


def mixture(mdp: FiniteMDP, policies: Any, weights: Any) -> Table:
    """The policy with the occupancy of a mixture: one of the policies, drawn with `weights` once an episode."""
    check_single(mdp)
    for index, policy in enumerate(policies):
        check_policy(mdp, policy, f"policy {index}")
    check_distribution("weights", weights)
    if np.shape(weights) != (len(policies),):
        raise SpecError(f"weights have shape {np.shape(weights)} for {len(policies)} policies")
    visited = np.stack([occupancy(mdp, policy) for policy in policies])
    return collapse(mdp, np.tensordot(np.asarray(weights, np.float64), visited, axes=1))
