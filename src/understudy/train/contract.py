"""Checks that an algorithm keeps to the protocol of the training loop. Errors name the algorithm.

`check_update` runs while a round is traced, so that it costs nothing afterwards; `check_moments` and `check_policy` run
once before training.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from understudy.core.errors import AlgorithmError, SettingError
from understudy.core.imports import load_name
from understudy.core.types import Continuous, Dataset, Info, Spec, State
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.game import Algorithm
from understudy.game.costs import check_fits
from understudy.game.costs import not_finite as cost_not_finite
from understudy.game.critics import as_vector
from understudy.game.features import not_finite, width_of
from understudy.game.user_code import calling
from understudy.policies import Normalized, Policy
from understudy.policies.combined import Ensemble
from understudy.policies.constructors import NetworkPolicy

SAMPLE = 32
"""How many demonstrated observations a fresh policy is checked on."""


def check_moments(algorithm: Algorithm, demonstrations: Demonstrations) -> None:
    """Raise unless the user's moment function fits the task and is finite at every demonstrated step."""
    if algorithm.moments is None:
        return
    spec = demonstrations.spec
    width_of(algorithm.moments, spec)
    steps = demonstrations.transitions()
    act = jax.vmap(as_vector, (0, None))(jnp.asarray(steps.act), spec.num_actions)
    bad = np.flatnonzero(not_finite(algorithm.moments, steps.obs, act))
    if len(bad):
        episode = int(np.searchsorted(np.cumsum(demonstrations.lengths), bad[0], side="right"))
        raise SettingError(
            f"moments(obs, act) is NaN or infinite at {len(bad):,} of {demonstrations.steps:,} demonstrated steps, the "
            f"first at step {int(steps.t[bad[0]])} of episode {episode} (both from 0)"
        )


def with_cost(
    algorithm: Algorithm, env: Environment | GymnasiumEnvironment | None, demonstrations: Demonstrations
) -> Algorithm:
    """The algorithm with its cost, or the environment's, as a function, if it needs one. Raises if none fits."""
    if "cost" not in algorithm.card.needs or env is None:
        return algorithm
    given = algorithm.cost
    cost = env.cost() if given is None else load_name(given, "cost") if isinstance(given, str) else given
    complete: Algorithm = replace(algorithm, cost=cost)  # type: ignore[call-arg]
    check_fits(cost, demonstrations.spec)
    bad = cost_not_finite(cost, demonstrations.observations, demonstrations.actions)
    if bad.any():
        raise SettingError(
            f"cost(obs, act), its gradient or its Hessian is NaN or infinite at {int(bad.sum()):,} of "
            f"{demonstrations.steps:,} demonstrated steps: it must be finite and twice differentiable"
        )
    return complete


def check_update(algorithm: Algorithm, state: State, returned: Any) -> tuple[State, Info]:
    """Raise unless `update` returned a state of the same structure and an `Info` with scalar metrics."""
    name = algorithm.card.name
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Info)):
        what = f"a tuple of {len(returned)}" if type(returned) is tuple else f"a {type(returned).__name__}"
        raise AlgorithmError(f"{name}.update returned {what}: return (state, Info(metrics))")
    new, info = returned
    before, after = (str(jax.tree.structure(tree)) for tree in (state, new))
    if before != after:
        raise AlgorithmError(
            f"{name}.update changed the structure of its state, from {_short(before)} to {_short(after)}: "
            "return the structure that init made"
        )
    paths = jax.tree_util.tree_leaves_with_path(state)
    for (path, old), leaf in zip(paths, jax.tree.leaves(new), strict=True):
        old, leaf = jnp.asarray(old), jnp.asarray(leaf)
        if old.shape != leaf.shape or old.dtype != leaf.dtype:
            raise AlgorithmError(
                f"{name}.update changed state{jax.tree_util.keystr(path)} from {old.dtype}{list(old.shape)} to "
                f"{leaf.dtype}{list(leaf.shape)}: keep shapes and dtypes"
            )
    for metric, value in info.metrics.items():
        if jnp.ndim(value) != 0:
            raise AlgorithmError(
                f"{name}.update returned metric '{metric}' of shape {jnp.shape(value)}: a scalar is needed, "
                "such as its mean"
            )
    return new, info


def check_policy(algorithm: Algorithm, spec: Spec, state: State, demonstrations: Dataset) -> None:
    """Raise if the policy's actions do not fit the environment.

    `state` is that of one run, on the host.
    """
    name = algorithm.card.name
    with calling(f"{name}.policy", type(algorithm).policy):
        policy = algorithm.policy(state)
    if not isinstance(policy, Policy):
        raise AlgorithmError(f"{name}.policy returned a {type(policy).__name__}: return a Policy")
    space = spec.action
    if isinstance(space, Continuous) and isinstance(policy, NetworkPolicy | Ensemble) and not _unit_box(space):
        raise AlgorithmError(
            f"{name}.policy returned a {type(policy).__name__}, whose actions are in [-1, 1]. The environment's are "
            f"from {space.low} to {space.high}: return Normalized(policy, state.normalization)"
        )
    obs = np.asarray(demonstrations.steps.obs[:SAMPLE])
    host: Any = jax.tree.map(np.asarray, policy)
    with calling(f"the policy of {name}.policy", type(policy).mode):
        act = np.asarray(host.mode(host.reset(np.random.default_rng(0), (len(obs),)), obs))
    if act.shape != (len(obs), *space.shape):
        raise AlgorithmError(
            f"{name}.policy returned actions of shape {act.shape[1:]} for one observation: {space.shape} is needed"
        )
    outside = space.outside(act) & np.isfinite(act)
    if outside.any():
        value = float(act[outside][0])
        hint = " Wrap the policy in Normalized" if not isinstance(policy, Normalized) else ""
        raise AlgorithmError(f"{name}.policy returned action {value:g}, which is outside the action space.{hint}")


def _unit_box(space: Continuous) -> bool:
    return all(low == -1 and high == 1 for low, high in zip(space.low, space.high, strict=True))


def _short(structure: str) -> str:
    text = structure.removeprefix("PyTreeDef(").removesuffix(")")
    return text if len(text) <= 80 else f"{text[:77]}..."
