"""An expert that can be asked: what would you have done in this state?

On-Q algorithms ask at the states that the learner visits. An expert is a policy, or any function from a batch of
observations to a batch of actions. Every question is counted, and can be budgeted. Some algorithms ask another: what is
this action worth, if you act after it? A query is a state that the expert is asked about, by either question.
"""

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Key

from understudy.core.arrays import Array
from understudy.core.errors import NeedsError, SpecError, check_whole, unknown
from understudy.core.types import ActionSpace, Discrete, Spec
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.envs.values import MonteCarlo, Values
from understudy.experts.bundled import bundled_experts, load_expert
from understudy.experts.weights import holds_weights, policy_from_weights
from understudy.policies import Policy
from understudy.policies.actor import Actor, check_fits
from understudy.policies.saved import load_policy

Function = Callable[[np.ndarray], np.ndarray]
"""A batch of observations to a batch of actions."""
ValueFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Batches of observations and actions to Q^{π_E}(s, a), a number each."""


@dataclass(frozen=True)
class Expert:
    """Who is asked, and how often at the most."""

    source: Policy | Function
    limit: int | None = None
    """Queries that each run may make."""
    deterministic: bool = False
    """A policy answers with its mode, not with a draw."""
    values: Values | ValueFunction | None = None
    """What an action is worth if this expert acts after it; None: as `source.values` says, or by trying."""

    def budget(self, queries: int) -> "Expert":
        """The same expert with a limit on each run's queries: a round is shortened to fit, and the run then ends."""
        check_whole(1, queries=queries)
        return replace(self, limit=queries)

    @property
    def policy(self) -> Policy | None:
        """The expert as a policy that can be asked inside a compiled program, or None."""
        return self.source if isinstance(self.source, Policy) else None

    def ask(self, obs: np.ndarray, spec: Spec, random: np.random.Generator, t: np.ndarray | None = None) -> np.ndarray:
        """Its actions in a batch of states, each at its time step (by default the first)."""
        if isinstance(self.source, Policy):
            carry = self.source.reset(random, (len(obs),))
            carry = carry if t is None else carry._replace(t=t)
            mode = self.deterministic
            answer = np.asarray(self.source.mode(carry, obs) if mode else self.source.draw(carry, obs, random))
        else:
            answer = np.asarray(self.source(obs))
        if answer.shape != (len(obs), *spec.action.shape):
            raise SpecError(
                f"the expert answered with shape {answer.shape} to {len(obs)} states: "
                f"{(len(obs), *spec.action.shape)} is needed"
            )
        if not np.isfinite(answer).all():
            raise SpecError(f"the expert answered with {int((~np.isfinite(answer)).sum())} NaN or infinite numbers")
        _check_range(answer, spec.action)
        return answer.astype(np.int32 if isinstance(spec.action, Discrete) else np.float32)

    def appraise(self, obs: np.ndarray, act: np.ndarray) -> np.ndarray:
        """Q^{π_E}(s, a) of a batch of states and actions, by the function that the expert offers."""
        value = np.asarray(cast("ValueFunction", self.values)(obs, act))
        if value.shape != (len(obs),):
            raise SpecError(
                f"the expert's values have shape {value.shape} for {len(obs)} states: {(len(obs),)} is needed"
            )
        if not np.isfinite(value).all():
            raise SpecError(f"the expert's values have {int((~np.isfinite(value)).sum())} NaN or infinite numbers")
        return value.astype(np.float32)

    def with_values(self, env: Environment | GymnasiumEnvironment, title: str) -> "Expert":
        """The same expert with a way to its action values: the one it offers, or else letting it act.

        The latter takes an environment that can be set back to a state, and an expert that can act in it.
        """
        offered = getattr(self.source, "values", None) if self.values is None else self.values
        if offered is None and isinstance(env, Environment) and self.policy is not None:
            offered = MonteCarlo(env, self.policy, self.deterministic)
        inside = isinstance(env, Environment) and self.policy is not None
        if offered is None or (isinstance(offered, Values) and not inside):
            raise NeedsError(
                f"{title} matches the on-Q moment f = −Q of the expert, which needs the expert's action values: pass "
                f"expert= a policy in a JAX environment, or Expert(..., values=) a function of (obs, act)"
            )
        return replace(self, values=offered)


def _check_range(answer: np.ndarray, space: ActionSpace) -> None:
    """Refuse actions that the environment does not have."""
    bad = space.outside(answer)
    if bad.any():
        low, high = ((0,), (space.n - 1,)) if isinstance(space, Discrete) else (space.low, space.high)
        ends = [", ".join(f"{end:g}" for end in side) for side in (low, high)]
        raise SpecError(
            f"the expert answered with {int(bad.sum())} actions outside the range, the first "
            f"{answer[bad][0]:g}: actions are from {ends[0]} to {ends[1]}"
        )


def answer(expert: Policy, deterministic: bool, t: Int[Array, ""], obs: Array, key: Key[jax.Array, ""]) -> Array:
    """The expert's action in one state at time t, inside a compiled program: a question by itself, so that a mixture
    draws its component for each.
    """
    carry = expert.reset(jax.random.fold_in(key, 2))._replace(t=t)
    return jnp.asarray(expert.mode(carry, obs) if deterministic else expert.draw(carry, obs, key))


def as_expert(given: Any, env: Environment | GymnasiumEnvironment) -> Expert:
    """An expert from whatever a person has: a policy, a function, a saved policy or run, an npz of plain weights
    (`weights`), "module:function", the environment's own script ("scripted"), or the trained one that is
    bundled for it ("bundled", or its name). None stands for the script, or else the bundled one.

    What was trained or saved answers with its mode. A script, or a bare policy, draws its answers.
    """
    if isinstance(given, Expert):
        return given
    if given is None and isinstance(env, GymnasiumEnvironment) and env.name in bundled_experts():
        given = "bundled"
    if given is None or given == "scripted":
        if isinstance(env, Environment):
            return Expert(env.expert())
        raise NeedsError(
            f"{env.name} has no scripted expert{' and none is bundled' if given is None else ''}: give "
            f"{'bundled, ' if env.name in bundled_experts() else ''}a saved policy, or 'module:function'"
        )
    if isinstance(given, str) and not Path(given).exists():
        if given == "bundled":
            given = load_expert(env.name)
        elif given in bundled_experts():
            given = load_expert(given)
        elif given.isidentifier():
            known = ["scripted", "bundled", *bundled_experts()]
            raise unknown(
                "expert", given, known, "Or give a saved policy's file, a run's directory, or 'module:function'."
            )
    if isinstance(given, str) and ":" in given and not Path(given).exists():
        module, _, name = given.partition(":")
        try:
            return Expert(cast("Function", getattr(importlib.import_module(module), name)))
        except (ImportError, AttributeError) as error:
            raise NeedsError(f"expert '{given}' cannot be imported ({error}): give 'module:function'") from error
    if isinstance(given, str | os.PathLike):
        given = policy_from_weights(given, env) if holds_weights(given) else load_policy(given)
    if isinstance(given, Actor):
        check_fits(given, env)
        return Expert(given.policy, deterministic=True)
    if isinstance(given, Policy) or callable(given):
        return Expert(cast("Policy | Function", given))
    raise SpecError(f"expert is a {type(given).__name__}: give a policy, a function, or a path")
