"""Imitation learning by moment matching.

import understudy as us

demos = us.load("Pendulum", episodes=5)
result = us.imitate(us.bc(), demos, seeds=5)
action = result.policy(observation)
"""

from understudy import _start as _start
from understudy import rl
from understudy.actor import Actor, load_policy
from understudy.algorithms import ALGORITHMS, adril, advil, aggrevate, bc, daequil, dagger, gail, sqil, valuedice
from understudy.bundled_experts import load_expert
from understudy.collecting import collect
from understudy.data import Demonstrations, load
from understudy.envs import Environment, Finite, Forest, HostEnvironment, Pendulum, make
from understudy.errors import UnderstudyError
from understudy.evaluation import Evaluation, evaluate
from understudy.experts import Expert
from understudy.front_door import imitate
from understudy.game import Algorithm, Card
from understudy.logs import Logs
from understudy.results import Result, load_run
from understudy.rollouts import rollout
from understudy.studies import Study
from understudy.types import Continuous, Discrete, Spec
from understudy.weights import policy_from_weights

__version__ = "0.1.0"

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
    "HostEnvironment",
    "Logs",
    "Pendulum",
    "Result",
    "Spec",
    "Study",
    "UnderstudyError",
    "adril",
    "advil",
    "aggrevate",
    "bc",
    "collect",
    "daequil",
    "dagger",
    "evaluate",
    "gail",
    "imitate",
    "load",
    "load_expert",
    "load_policy",
    "load_run",
    "make",
    "policy_from_weights",
    "rl",
    "rollout",
    "sqil",
    "valuedice",
]
