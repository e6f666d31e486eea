"""Imitation learning by moment matching.

import understudy as us

demos = us.load("Pendulum", episodes=5)
result = us.imitate(us.bc(), demos, seeds=5)
action = result.policy(observation)
"""

from understudy.core import startup as startup

# isort: split
from understudy.core import jax_setup as jax_setup

# isort: split
from typing import Any

from understudy import rl
from understudy.algorithms import ALGORITHMS, available
from understudy.collect.recording import record
from understudy.collect.rollouts import rollout
from understudy.core.errors import UnderstudyError
from understudy.core.imports import allow_import
from understudy.core.types import Continuous, Discrete, MultiDiscrete, Spec
from understudy.core.version import __version__
from understudy.data import Demonstrations, load
from understudy.envs import Environment, Finite, Forest, GymnasiumEnvironment, Pendulum, Timestep, make
from understudy.evaluation.returns import Evaluation, evaluate
from understudy.experts.bundled import load_expert
from understudy.experts.expert import Expert
from understudy.experts.weights import policy_from_weights
from understudy.game import Algorithm, Card
from understudy.policies.actor import Actor
from understudy.policies.saved import load_policy
from understudy.studies import Study
from understudy.train.imitate import imitate
from understudy.train.learn import Learned, learn
from understudy.train.logs import Logs
from understudy.train.results import Result, load_run

__all__ = [
    "ALGORITHMS",
    "Actor",
    "Algorithm",
    "Card",
    "Continuous",
    "Demonstrations",
    "Discrete",
    "Environment",
    "Evaluation",
    "Expert",
    "Finite",
    "Forest",
    "GymnasiumEnvironment",
    "Learned",
    "Logs",
    "MultiDiscrete",
    "Pendulum",
    "Result",
    "Spec",
    "Study",
    "Timestep",
    "UnderstudyError",
    "__version__",
    "allow_import",
    "available",
    "evaluate",
    "imitate",
    "learn",
    "load",
    "load_expert",
    "load_policy",
    "load_run",
    "make",
    "policy_from_weights",
    "record",
    "rl",
    "rollout",
]


def __getattr__(name: str) -> Any:
    """`us.NAME` is the algorithm of that name: `us.bc`, `us.adril`."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    raise AttributeError(f"module 'understudy' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *ALGORITHMS})
