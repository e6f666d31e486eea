"""An expert that can be asked: what would you have done in this state?

On-Q algorithms ask at the states that the learner visits. An expert is a policy, or any function from a batch of
observations to a batch of actions. Every question is counted, and can be budgeted.
"""

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from understudy.actor import Actor, check_fits, load_policy
from understudy.envs import Environment, HostEnvironment
from understudy.errors import NeedsError, SpecError, check_whole
from understudy.policies import Policy
from understudy.types import Discrete, Spec

Function = Callable[[np.ndarray], np.ndarray]
"""A batch of observations to a batch of actions."""


@dataclass(frozen=True)
class Expert:
    """Who is asked, and how often at the most."""

    source: Policy | Function
    limit: int | None = None
    """Queries that each run may make."""

    def budget(self, queries: int) -> "Expert":
        """The same expert with a limit on each run's queries: a round is shortened to fit, and the run then ends."""
        check_whole(1, queries=queries)
        return replace(self, limit=queries)

    @property
    def policy(self) -> Policy | None:
        """The expert as a policy that can be asked inside a compiled program, or None."""
        return self.source if isinstance(self.source, Policy) else None

    def ask(self, obs: np.ndarray, spec: Spec, random: np.random.Generator) -> np.ndarray:
        """Its actions in a batch of states."""
        if isinstance(self.source, Policy):
            carry = self.source.reset(random, (len(obs),))
            answer = np.asarray(self.source.draw(carry, obs, random))
        else:
            answer = np.asarray(self.source(obs))
        if answer.shape != (len(obs), *spec.action.shape):
            raise SpecError(
                f"the expert answered with shape {answer.shape} to {len(obs)} states: "
                f"{(len(obs), *spec.action.shape)} is needed"
            )
        if not np.isfinite(answer).all():
            raise SpecError(f"the expert answered with {int((~np.isfinite(answer)).sum())} NaN or infinite numbers")
        return answer.astype(np.int32 if isinstance(spec.action, Discrete) else np.float32)


def as_expert(given: Any, env: Environment | HostEnvironment) -> Expert:
    """An expert from whatever a person has, see `resolve`."""
    return given if isinstance(given, Expert) else Expert(resolve(given, env))


def resolve(given: Any, env: Environment | HostEnvironment) -> Policy | Function:
    """Who acts: a policy, a function, a saved policy or run, "module:function", or the environment's own script.

    None and "scripted" stand for the last.
    """
    if given is None or given == "scripted":
        if isinstance(env, Environment):
            return env.expert()
        raise NeedsError(f"{env.name} has no scripted expert: pass expert= a saved policy, or 'module:function'")
    if isinstance(given, str) and ":" in given and not Path(given).exists():
        module, _, name = given.partition(":")
        try:
            return cast("Function", getattr(importlib.import_module(module), name))
        except (ImportError, AttributeError) as error:
            raise NeedsError(f"expert '{given}' cannot be imported ({error}): give 'module:function'") from error
    if isinstance(given, str | os.PathLike):
        given = load_policy(given)
    if isinstance(given, Actor):
        check_fits(given, env)
        return given.policy
    if isinstance(given, Policy) or callable(given):
        return cast("Policy | Function", given)
    raise SpecError(f"expert is a {type(given).__name__}: give a policy, a function, or a path")
