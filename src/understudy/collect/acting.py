"""An expert that acts in an environment: to record demonstrations, or to be compared with policies."""

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from understudy.core.errors import check_not_negative
from understudy.core.types import Spec
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
