"""Finite-horizon MDPs by dynamic programming: values, occupancies and performance of time-dependent policies.

A policy here is a table π[t, s, a]; `samples` turns its occupancy into the weighted (t, s, a) that `payoffs` takes, so
that the exact games go through the same code as the sampled ones.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from understudy.errors import SpecError
from understudy.types import Samples

P = ParamSpec("P")
R = TypeVar("R")
Table = Float[Array, "t s a"]


def exact(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function in float64, and leave the precision of the rest of the program as it is."""

    @wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return inside


class FiniteMDP(eqx.Module):
    """States 0..S-1, actions 0..A-1, T steps. The reward is not part of it: imitation does not know it."""

    transitions: Float[Array, "s a s"]
    initial: Float[Array, " s"]
    horizon: int = eqx.field(static=True)

    def __init__(self, transitions: Any, initial: Any, horizon: int):
        transitions, initial = np.asarray(transitions, np.float64), np.asarray(initial, np.float64)
        if transitions.ndim != 3 or transitions.shape[0] != transitions.shape[2]:
            raise SpecError(f"transitions have shape {transitions.shape}: (states, actions, states) is needed")
        if initial.shape != transitions.shape[:1]:
            raise SpecError(f"the initial distribution has shape {initial.shape}, there are {len(transitions)} states")
        if horizon < 1:
            raise SpecError(f"the horizon is {horizon}: at least one step is needed")
        for name, rows in (("transitions", transitions), ("the initial distribution", initial)):
            if not (np.isfinite(rows).all() and (rows >= 0).all()):
                raise SpecError(f"{name}{_first(~(rows >= 0))} is negative or not a number")
            if not np.allclose(rows.sum(-1), 1, rtol=0, atol=1e-9):
                raise SpecError(f"{name}{_first(abs(rows.sum(-1) - 1) > 1e-9)} does not sum to one")
        with jax.enable_x64(True):
            self.transitions, self.initial = jnp.asarray(transitions), jnp.asarray(initial)
        self.horizon = horizon


def _first(bad: np.ndarray) -> str:
    return f" {[int(i) for i in np.argwhere(bad)[0]]}" if np.ndim(bad) else ""


@exact
def q_values(mdp: FiniteMDP, reward: Table, policy: Table) -> Table:
    """Q^π_t(s, a) = r_t(s, a) + E_{s'} E_{a' ~ π_{t+1}} Q^π_{t+1}(s', a')."""

    def backward(value: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        reward_t, policy_t = at
        q = reward_t + mdp.transitions @ value
        return jnp.sum(policy_t * q, axis=-1), q

    _, q = jax.lax.scan(backward, jnp.zeros_like(mdp.initial), (reward, policy), reverse=True)
    return q


@exact
def occupancy(mdp: FiniteMDP, policy: Table) -> Table:
    """d_t(s, a): the probability of being in s and taking a at time t."""

    def forward(state: Array, policy_t: Array) -> tuple[Array, Array]:
        visited = state[:, None] * policy_t
        return jnp.einsum("sa,sax->x", visited, mdp.transitions), visited

    return jax.lax.scan(forward, mdp.initial, policy)[1]


@exact
def performance(mdp: FiniteMDP, reward: Table, policy: Table) -> Float[Array, ""]:
    """J(π) = E Σ_t r_t(s_t, a_t)."""
    return jnp.sum(occupancy(mdp, policy) * reward)


@exact
def imitation_gap(mdp: FiniteMDP, reward: Table, expert: Table, policy: Table) -> Float[Array, ""]:
    """J(π_E) − J(π)."""
    return performance(mdp, reward, expert) - performance(mdp, reward, policy)


@exact
def samples(mdp: FiniteMDP, policy: Table) -> Samples:
    """Every (t, s, a), weighted by d_t(s, a) / T: an exact expectation (1/T) Σ_t E f_t(s_t, a_t)."""
    visited = occupancy(mdp, policy)
    t, s, a = (index.ravel() for index in jnp.indices(visited.shape))
    return Samples(t, s, a, visited.ravel() / mdp.horizon)
