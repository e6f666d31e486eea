"""Select the collector for an algorithm in an environment."""

from typing import Any

import numpy as np

from understudy.collect.base import NO_LIMIT, Collector, offline
from understudy.collect.episodes import JaxEpisodes
from understudy.collect.host import HostCollector
from understudy.collect.starts import demonstrated_starts
from understudy.collect.steps import JaxSteps, StepsCollector
from understudy.collect.worker import STEP_TIMEOUT, worker_count
from understudy.collect.worker_collector import WorkerCollector
from understudy.core.errors import SettingError
from understudy.core.types import Dataset
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.envs.values import ActionValueEstimator
from understudy.experts.expert import as_expert
from understudy.game import Algorithm


def collector_for(
    algorithm: Algorithm,
    env: Environment | GymnasiumEnvironment | None,
    expert: Any,
    seeds: list[int],
    workers: int | None = None,
    step_timeout: float = STEP_TIMEOUT,
    demonstrations: Dataset | None = None,
) -> Collector:
    """A collector inside the compiled program if environment and expert allow it, else one on the host.

    `demonstrations` are those of all runs. Episodes of algorithms with a `start_share` may begin in them.
    """
    if "environment" not in algorithm.card.needs or env is None:
        return offline()
    if algorithm.schedule is not None:
        starts = demonstrated_starts(env, demonstrations) if algorithm.start_share > 0 else None
        if isinstance(env, Environment):
            steps = JaxSteps(env, algorithm.schedule, starts)
            return Collector(steps) if starts is None else StepsCollector(steps, np.asarray(starts.size))
        count = worker_count(env, len(seeds)) if workers is None else workers
        return WorkerCollector(env, seeds, algorithm.schedule, algorithm.rounds, count, step_timeout, starts)
    queried = as_expert(expert, env) if "expert" in algorithm.card.needs else None
    if queried is not None and queried.respondent is not None and algorithm.expert_acts:
        raise SettingError(
            f"{algorithm.card.title} lets the expert act within episodes, and {queried.name} answers after them: use "
            "an expert that is a policy or a function"
        )
    values = None
    if queried is not None and algorithm.card.values:
        queried = queried.with_values(env, algorithm.card.title)
        values = queried.values
    if isinstance(env, Environment):
        if queried is None:
            return Collector(JaxEpisodes(env, None))
        if queried.policy is not None and (values is None or isinstance(values, ActionValueEstimator)):
            inside = JaxEpisodes(env, queried.policy, queried.deterministic, values)
            return Collector(inside, NO_LIMIT if queried.limit is None else queried.limit)
    return HostCollector(env, queried, seeds, workers, step_timeout)
