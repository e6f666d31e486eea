"""The demonstrations of a call that names none: the bundled ones, or episodes of the expert that it names.

Bundled demonstrations come from the scripted expert of a JAX environment, or the bundled expert of a Gymnasium one.
They are used if that expert is named, or none. For any other expert, its own episodes are recorded, and so are those of
a bundled expert whose demonstrations would be too large to bundle. They depend only on the expert, the environment and
`SEED`, so that a resumed run records the same ones.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from understudy.collect.recording import record
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core.errors import NeedsError
from understudy.core.notices import notice
from understudy.core.statistics import Sample, interval
from understudy.core.types import Continuous
from understudy.data import Demonstrations, bundled, load
from understudy.envs import JAX_ENVIRONMENTS, Environment, GymnasiumEnvironment, make_unfinished
from understudy.experts.bundled import bundled_experts
from understudy.experts.expert import Expert
from understudy.experts.files import KINDS

EPISODES = 25
"""Recorded episodes by default."""
EXPLORED = 5
"""Episodes of random actions, where there is nothing to imitate."""
SEED = 1_000_003
"""Seed of the recorded episodes. It is not 0, so that `evaluate` starts in other states."""


def names_another_expert(env: str | None, expert: Any) -> bool:
    """Whether an expert is named from which the bundled demonstrations of a task were not recorded."""
    if expert is None:
        return False
    if env is None or env not in bundled() or not isinstance(expert, str):
        return True
    if env in JAX_ENVIRONMENTS:
        return expert != "scripted"
    return expert != "bundled" and (expert != env or Path(env).exists())  # a path comes before a bundled expert


def records_expert(env: str | None, task: str | None, expert: Any) -> bool:
    """Whether a call that names no demonstrations records an expert first.

    `env` is the public name of the environment, and `task` its name if arguments or wrappers change it.
    """
    if expert is None:
        return task is not None and task not in bundled() and task in bundled_experts()
    return names_another_expert(env, expert)


def demonstrations_of(env: str | Environment | GymnasiumEnvironment) -> Demonstrations:
    """The demonstrations that are bundled for a task."""
    if not isinstance(env, str) or env not in bundled():
        known = make_unfinished(env).name  # raises if the name is unknown
        raise NeedsError(
            f"{known} has no bundled demonstrations: give a file, one of {', '.join(bundled())}, or an expert to "
            f"record them from: {KINDS}"
        )
    return load(env)


def record_demonstrations(
    env: Environment | GymnasiumEnvironment,
    expert: Expert,
    episodes: int | None = None,
    workers: int | None = None,
    step_timeout: float = STEP_TIMEOUT,
) -> Demonstrations:
    """Record episodes of an expert, and say so in one line with their return. Queries of a budget are not counted."""
    count = EPISODES if episodes is None else episodes
    recorded = record(
        env, expert, count, SEED, deterministic=expert.deterministic, workers=workers, step_timeout=step_timeout
    )
    print(
        f"No demonstrations are named: recorded {count} episodes of {expert.name} in {env.name} (seed {SEED}), mean "
        f"return {interval(Sample.of(recorded.returns))} (95% interval over episodes)",
        file=sys.stderr,
        flush=True,
    )
    return recorded


def explored(
    env: Environment | GymnasiumEnvironment, workers: int | None = None, step_timeout: float = STEP_TIMEOUT
) -> Demonstrations:
    """Episodes of uniformly random actions, for an algorithm that needs no demonstrations: they scale observations."""
    space, random = env.spec.action, np.random.default_rng(SEED)
    assert isinstance(space, Continuous)

    def act(obs: np.ndarray) -> np.ndarray:
        return random.uniform(space.low, space.high, (len(obs), len(space.low))).astype(np.float32)

    notice(
        f"no demonstrations are named: {EXPLORED} episodes of random actions in {env.name} scale the observations, and "
        "nothing is held out"
    )
    return record(env, act, EXPLORED, SEED, deterministic=True, workers=workers, step_timeout=step_timeout)
