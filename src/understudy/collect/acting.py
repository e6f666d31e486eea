"""What acts in an environment beside a learner: an expert, to record or to be compared with, and random actions."""

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from understudy.core.errors import check_not_negative
from understudy.core.types import Continuous, Discrete, Spec
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.experts.expert import Expert, as_expert
from understudy.experts.functions import Function
from understudy.policies import Policy
from understudy.policies.networks import Activation


@dataclass(frozen=True)
class ActingExpert:
    """An expert, and whether it acts deterministically."""

    expert: Expert
    deterministic: bool
    spec: Spec
    """Of the environment that it acts in."""

    @property
    def policy(self) -> Policy | None:
        """The expert as a policy, which can be sent to a worker; None if it is a function."""
        return self.expert.policy

    def source(self, seed: int) -> Policy | Function:
        """The policy, or a function of a batch of observations whose answers are checked."""
        if self.expert.policy is not None:
            return self.expert.policy
        random = np.random.default_rng(seed)
        return lambda obs: self.expert.query(obs, self.spec, random)


def acting_expert(
    given: Any,
    env: Environment | GymnasiumEnvironment,
    deterministic: bool | None = None,
    timeout: float = 0.0,
    activation: Activation | None = None,
    normalization: str | os.PathLike[str] | None = None,
) -> ActingExpert:
    """The expert that `as_expert` makes of `given`. Actions without bounds stay without: nothing clips an expert's.

    By default a scripted expert acts stochastically and any other deterministically. `timeout` limits the seconds in
    which a function answers a batch of observations (0: no limit).
    """
    check_not_negative(expert_timeout=timeout)
    expert = as_expert(given, env, activation, normalization)
    if timeout:
        expert = replace(expert, timeout=timeout)
    if deterministic is None:
        scripted = given is None or (isinstance(given, str) and given == "scripted")
        deterministic = expert.deterministic if scripted else True
    free = env.without_bounds() if isinstance(env, GymnasiumEnvironment) else env
    return ActingExpert(expert, bool(deterministic), free.spec)


def uniform_actions(space: Any, random: np.random.Generator) -> Any:
    """A function from a batch of observations to uniformly random actions."""

    def act(obs: np.ndarray) -> np.ndarray:
        if isinstance(space, Continuous):
            low, high = np.asarray(space.low), np.asarray(space.high)
            return random.uniform(low, high, (len(obs), len(low))).astype(np.float32)
        if isinstance(space, Discrete):
            return random.integers(space.n, size=len(obs)).astype(np.int32)
        return random.integers(space.nvec, size=(len(obs), len(space.nvec))).astype(np.int32)

    return act
