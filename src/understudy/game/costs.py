"""Costs c(s, a) of a task, for algorithms that compute their own expert. They are checked like moment functions."""

from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Bool, Float

from understudy.core.arrays import Array
from understudy.core.errors import SettingError
from understudy.core.types import Spec
from understudy.game.features import check_features
from understudy.game.user_code import explain

Cost = Callable[[Array, Array], Float[Array, ""]]
"""c(s, a): one observation and one action as vectors, in the environment's units ↦ a number. The smaller the better."""
CostSetting = Annotated[Cost | str | None, tyro.conf.arg(constructor=str | None, metavar="MODULE:FUNCTION")]
"""A setting that is a cost, or its name; the command line takes the name."""
RULE = "cost(obs, act) must return a number computed with jax.numpy"


def check_cost(cost: Cost | str | None) -> None:
    """Raise unless the setting is None, a name "module:function", or a function of two arguments."""
    if isinstance(cost, str):
        module, colon, name = cost.partition(":")
        if not (module and colon and name):
            raise SettingError(f"cost is {cost!r}: give a function of (obs, act), or its name, module:function")
        return
    check_features(cost, "cost")


def check_fits(cost: Cost, spec: Spec) -> None:
    """Raise unless the function takes the task's observations and actions and returns a floating-point scalar."""
    try:
        found = jax.eval_shape(cost, jnp.zeros(spec.obs_shape), jnp.zeros(spec.action_size))
    except (Exception, SystemExit) as error:
        raise SettingError(f"{RULE}; {explain(error, cost)}") from error
    shape, kind = getattr(found, "shape", None), getattr(found, "dtype", None)
    if shape is None or kind is None:
        raise SettingError(f"{RULE}; it returned a {type(found).__name__}")
    if shape != ():
        raise SettingError(f"{RULE}; it returned an array of shape {shape}: sum it, as in jnp.square(x).sum()")
    if not jnp.issubdtype(kind, jnp.floating):
        raise SettingError(f"{RULE}; it returned {kind} numbers: floats are needed, since gradients pass through")


def not_finite(cost: Cost, obs: Array, act: Array) -> Bool[np.ndarray, " n"]:
    """At which rows the cost, its gradient or its Hessian is NaN or infinite."""

    def bad(s: Array, a: Array) -> Array:
        sides = (cost, jax.grad(cost, (0, 1)), jax.hessian(cost, (0, 1)))
        return ~jnp.stack([jnp.isfinite(leaf).all() for side in sides for leaf in jax.tree.leaves(side(s, a))]).all()

    return np.asarray(jax.jit(jax.vmap(bad))(jnp.asarray(obs), jnp.asarray(act)))


def squares(obs: Float[Array, " obs"], act: Float[Array, " act"]) -> Float[Array, ""]:
    """‖s‖² + ‖a‖²: go to the origin, and stay there."""
    return jnp.square(obs).sum() + jnp.square(act).sum()
