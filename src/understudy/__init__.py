"""Imitation learning by moment matching.

import understudy as us

demos = us.load("Pendulum", episodes=5)
result = us.imitate(us.bc(), demos, seeds=5)
action = result.policy(observation)

The names below are imported when they are first used, so that `understudy.deploy` does not import JAX.
"""

from understudy.core import startup as startup

# isort: split
from understudy.core import jax_variables as jax_variables

# isort: split
import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from understudy.core.version import __version__

if TYPE_CHECKING:
    from understudy import rl
    from understudy.algorithms import ALGORITHMS, available
    from understudy.collect.recording import record
    from understudy.collect.rollouts import rollout
    from understudy.console.launch import console
    from understudy.core.errors import UnderstudyError
    from understudy.core.imports import allow_import
    from understudy.core.types import Continuous, Discrete, MultiDiscrete, Spec
    from understudy.data import Demonstrations, load
    from understudy.diagnosis.advice import Advice, advise
    from understudy.diagnosis.diagnose import diagnose
    from understudy.diagnosis.measures import Diagnosis
    from understudy.envs import Environment, Finite, Forest, GymnasiumEnvironment, Pendulum, Timestep, make
    from understudy.evaluation.certificate import Certificate, Certificates
    from understudy.evaluation.certificates import certify
    from understudy.evaluation.returns import Evaluation, evaluate
    from understudy.evaluation.video import record_video
    from understudy.experts.bundled import load_expert
    from understudy.experts.expert import Expert
    from understudy.experts.sb3 import policy_from_sb3
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
    "Advice",
    "Algorithm",
    "Card",
    "Certificate",
    "Certificates",
    "Continuous",
    "Demonstrations",
    "Diagnosis",
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
    "advise",
    "allow_import",
    "available",
    "certify",
    "console",
    "diagnose",
    "evaluate",
    "imitate",
    "learn",
    "load",
    "load_expert",
    "load_policy",
    "load_run",
    "make",
    "policy_from_sb3",
    "policy_from_weights",
    "record",
    "record_video",
    "rl",
    "rollout",
]

_MODULES = {
    "ALGORITHMS": "algorithms",
    "Actor": "policies.actor",
    "Advice": "diagnosis.advice",
    "Algorithm": "game",
    "Card": "game",
    "Certificate": "evaluation.certificate",
    "Certificates": "evaluation.certificate",
    "Continuous": "core.types",
    "Demonstrations": "data",
    "Diagnosis": "diagnosis.measures",
    "Discrete": "core.types",
    "Environment": "envs",
    "Evaluation": "evaluation.returns",
    "Expert": "experts.expert",
    "Finite": "envs",
    "Forest": "envs",
    "GymnasiumEnvironment": "envs",
    "Learned": "train.learn",
    "Logs": "train.logs",
    "MultiDiscrete": "core.types",
    "Pendulum": "envs",
    "Result": "train.results",
    "Spec": "core.types",
    "Study": "studies",
    "Timestep": "envs",
    "UnderstudyError": "core.errors",
    "advise": "diagnosis.advice",
    "allow_import": "core.imports",
    "available": "algorithms",
    "certify": "evaluation.certificates",
    "console": "console.launch",
    "diagnose": "diagnosis.diagnose",
    "evaluate": "evaluation.returns",
    "imitate": "train.imitate",
    "learn": "train.learn",
    "load": "data",
    "load_expert": "experts.bundled",
    "load_policy": "policies.saved",
    "load_run": "train.results",
    "make": "envs",
    "policy_from_sb3": "experts.sb3",
    "policy_from_weights": "experts.weights",
    "record": "collect.recording",
    "record_video": "evaluation.video",
    "rollout": "collect.rollouts",
}
"""Where the public names are defined."""


def __getattr__(name: str) -> Any:
    """A public name or a room, imported now. `us.NAME` is also the algorithm of that name: `us.bc`, `us.adril`."""
    if name in _MODULES:
        found = getattr(importlib.import_module(f"understudy.{_MODULES[name]}"), name)
    elif not name.startswith("_") and importlib.util.find_spec(f"understudy.{name}") is not None:
        found = importlib.import_module(f"understudy.{name}")
    elif not name.startswith("_") and name in __getattr__("ALGORITHMS"):
        return __getattr__("ALGORITHMS")[name]
    else:
        raise AttributeError(f"module 'understudy' has no attribute '{name}'")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *__getattr__("ALGORITHMS")})


if "jax" in sys.modules:  # configured now, before the program computes something
    importlib.import_module("understudy.core.jax_setup")
