"""Decorators that compile functions in float64 and map them over batches of MDPs."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from understudy.core.arrays import Array
from understudy.core.errors import SettingError, SpecError
from understudy.tabular.mdp import TOLERANCE, FiniteMDP, check_policy, check_table

P = ParamSpec("P")
R = TypeVar("R")
BATCH_NUMBERS = 2**16
"""The maximal number of entries of all MDPs that are computed together on a CPU, so that they fit in its cache."""


def exact(function: Callable[P, R], static: tuple[str, ...] = ()) -> Callable[P, R]:
    """Compile a function in float64. The precision of the rest of the program does not change.

    It returns NumPy arrays (JAX arrays inside another compiled function), because JAX would convert float64 arrays to
    float32 in the next operation outside.
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
"""The parameters that `over_batches` checks: tables [t, s, a] of distributions over actions, and of finite numbers."""


def over_batches(function: Callable[..., R]) -> Callable[..., R]:
    """Decorate a function of an MDP and tables: compile it with `exact`, and map it over a batch of MDPs.

    In a batch every table has leading axes; single numbers are used for all MDPs. Tables are checked by their
    parameter's name. The check is part of the compiled program, which reads the tables anyway.
    """
    names = list(inspect.signature(function).parameters)[1:]

    def one(mdp: FiniteMDP, *arguments: Array) -> tuple[R, Array]:
        fine = [_fine(mdp, name, argument) for name, argument in zip(names, arguments, strict=True)]
        return function(mdp, *arguments), jnp.stack([jnp.asarray(True), *fine])

    def mapped(mdp: FiniteMDP, *arguments: Any) -> tuple[R, Array]:
        if mdp.initial.ndim == 1:
            return one(mdp, *arguments)
        arguments = tuple(jnp.broadcast_to(x, len(mdp.initial)) if jnp.ndim(x) == 0 else x for x in arguments)
        if jax.default_backend() != "cpu":
            return jax.vmap(mapped)(mdp, *arguments)
        # A few MDPs at a time: their transitions stay in the cache over all time steps.
        numbers = sum(leaf[0].size for leaf in jax.tree.leaves(mdp))
        return jax.lax.map(lambda each: mapped(*each), (mdp, *arguments), batch_size=max(1, BATCH_NUMBERS // numbers))

    compiled = exact(lambda mdp, *arguments: mapped(mdp, *map(jnp.asarray, arguments)))

    @wraps(function)
    def inside(mdp: FiniteMDP, *arguments: Any) -> R:
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


def _fine(mdp: FiniteMDP, name: str, argument: Array) -> Array:
    """Whether an argument has valid values for its name."""
    if name in POLICIES:
        sums = jnp.abs(argument.sum(-1) - 1).max() <= TOLERANCE
        return sums & (argument.min() >= 0) & jnp.all(jnp.where(mdp.available, True, argument == 0))
    if name in TABLES:
        return jnp.isfinite(argument).all()
    return jnp.asarray(argument > 0).all() if name == "temperature" else jnp.asarray(True)
