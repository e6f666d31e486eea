"""An expert that can be asked: what would you have done in this state?

On-Q algorithms ask at the states that the learner visits. An expert is a policy, or any function from a batch of
observations to a batch of actions. Every question is counted, and can be budgeted.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from understudy.actor import Actor, load_policy
from understudy.envs import Environment, HostEnvironment
from understudy.errors import NeedsError, SettingError, SpecError, check_whole
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
    """An expert from what a person has: an Expert, a policy, a saved one, a function, or "scripted"."""
    if isinstance(given, Expert):
        return given
    if isinstance(given, str) and given == "scripted":
        if not isinstance(env, Environment):
            raise NeedsError("expert is 'scripted': only the JAX environments have one; pass a policy or a function")
        return Expert(env.expert())
    if isinstance(given, str | os.PathLike):
        given = load_policy(given)
    if isinstance(given, Actor):
        return Expert(given.policy)
    if isinstance(given, Policy) or callable(given):
        return Expert(given)
    raise SettingError(f"expert is {given!r}: give a policy, a function of observations, or 'scripted'")
