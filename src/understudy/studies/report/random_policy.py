"""The return of uniformly random actions, the zero of normalised returns. It is measured when a report is written."""

import sys

import numpy as np

from understudy.collect.acting import uniform_actions
from understudy.collect.recording import record
from understudy.core.errors import UnderstudyError
from understudy.core.text import quoted
from understudy.envs import make_unfinished
from understudy.evaluation.returns import completed
from understudy.studies.cells import Store
from understudy.studies.plan import Task
from understudy.studies.report.clips import loaded_policy
from understudy.studies.report.learners import TaskResults

EPISODES = 20
"""The fewest episodes."""
STEP_TIMEOUT = 30.0
SEED = 20_210_718
"""Of the episodes: a report that is made again has the same number."""
LONGEST_REASON = 200


def random_return(task: Task, results: TaskResults, store: Store, episodes: int) -> float | str:
    """The mean return of random actions on a task, or the reason why it cannot be measured here."""
    try:
        actor, env = loaded_policy(store, results), make_unfinished(task.named_env)
        environment = env if actor is None else completed(env, actor)
        act = uniform_actions(environment.spec.action, np.random.default_rng(SEED))
        recorded = record(environment, act, max(episodes, EPISODES), SEED, step_timeout=STEP_TIMEOUT, progress=False)
        found = recorded.expert_return
    except Exception as error:  # noqa: BLE001 (a simulator may raise anything, and no profile is worth a report)
        known = isinstance(error, UnderstudyError)
        reason = quoted(error if known else f"{type(error).__name__}: {error}", LONGEST_REASON)
        print(f"warning: no normalised returns of {task.env}: {reason}", file=sys.stderr)
        return f"random actions failed: {reason}"
    return "its environment gives no rewards" if found is None else float(found.mean)
