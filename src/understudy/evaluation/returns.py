"""Returns of policies in an environment, the imitation gap J(π_E) − J(π), and 95% intervals of both.

Intervals are Student's t over the means of independent runs (seeds). With a single run they are over its episodes,
which says nothing about other seeds. The gap's interval includes the uncertainty of the expert's return (Welch).
"""

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from understudy.collect.rollouts import rollout
from understudy.core.errors import SettingError, check_callable, check_seed, check_whole
from understudy.core.progress import Progress
from understudy.core.statistics import Interval, Sample, imitation_gap, interval
from understudy.envs import Environment, GymnasiumEnvironment, make
from understudy.policies import Policy
from understudy.policies.actor import Actor, check_fits


@dataclass(frozen=True)
class Score:
    """Mean return and imitation gap of the runs with one number of demonstrated episodes."""

    episodes: int | None
    """Demonstrated episodes in the training data."""
    runs: int
    learner: Interval
    gap: Interval | None
    """None if the expert's return is not known."""


@dataclass(frozen=True)
class Evaluation:
    """Returns of several policies in an environment."""

    env: str
    returns: np.ndarray
    """(policies, episodes)."""
    about: list[dict[str, Any]]
    """Metadata of each policy: seed, demonstrated episodes, ..."""
    expert: Sample | None = None
    seconds: float = float("nan")
    """Wall-clock time of the rollouts."""

    def scores(self) -> list[Score]:
        """One score per number of demonstrated episodes."""
        counts = [about.get("episodes") for about in self.about]
        rows = []
        for count in sorted(set(counts), key=lambda c: -1 if c is None else c):
            returns = self.returns[[c == count for c in counts]]
            learner = Sample.of(returns.mean(axis=1) if len(returns) > 1 else returns[0])
            gap = None if self.expert is None else imitation_gap(self.expert, learner)
            rows.append(Score(count, len(returns), interval(learner), gap))
        return rows


def evaluate(
    policies: Sequence[Actor],
    env: Any,
    episodes: int = 10,
    seed: int = 0,
    expert: Sample | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Evaluation:
    """Roll out each policy deterministically for `episodes` episodes and return the undiscounted task returns.

    Each policy starts from other initial states, which `seed` and its position in the list determine. Shared initial
    states would correlate the means of the policies, and an interval over them would be too narrow.

    Args:
        policies: Policies to evaluate.
        env: Environment, or its name.
        episodes: Episodes per policy.
        seed: Seed of the episodes.
        expert: Returns of the expert, for the imitation gap.
        workers: Processes for a Gymnasium environment given by name. The returns do not depend on their number. They
            are spawned, so a script that uses them needs an `if __name__ == "__main__":` guard.
        progress: Called with the policies done, all policies, and a dict of metrics.
    """
    check_whole(1, episodes=episodes)
    check_whole(0, workers=workers)
    check_callable("policies done, all policies and a dict of metrics", progress=progress)
    if not isinstance(expert, Sample | None):
        raise SettingError(f"expert is {expert!r}: give its returns, such as Sample.of(demonstrations.returns)")
    began, environment = time.perf_counter(), make(env)
    for actor in policies:
        check_fits(actor, environment)
    seeds = _policy_seeds(seed, len(policies))
    jobs = [(actor.policy, episodes, start) for actor, start in zip(policies, seeds, strict=True)]
    with ExitStack() as stack:
        if workers > 1 and len(jobs) > 1 and isinstance(environment, GymnasiumEnvironment) and environment.registered:
            pool = ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn"))
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            results = pool.map(partial(rollout_by_name, environment.name, environment.spec.horizon), jobs)
        else:
            results = map(partial(_rollout, environment), jobs)
        returns: list[np.ndarray] = []
        for result in results:
            returns.append(result)
            if progress is not None:
                progress(len(returns), len(jobs), {"return": float(np.mean(returns))})
    about, seconds = [actor.about for actor in policies], time.perf_counter() - began
    return Evaluation(environment.name, np.stack(returns), about, expert, seconds)


def _rollout(env: Environment | GymnasiumEnvironment, job: tuple[Policy, int, int]) -> np.ndarray:
    return rollout(env, *job).returns


def rollout_by_name(name: str, horizon: int, job: tuple[Policy, int, int]) -> np.ndarray:
    """Returns of (policy, episodes, seed) in a Gymnasium environment that a worker process makes by its name."""
    return _rollout(make(name, horizon), job)


def _policy_seeds(seed: int, count: int) -> list[int]:
    """A seed for each of `count` policies."""
    check_seed(seed)
    return [int(s) for s in np.random.SeedSequence([seed, 1]).generate_state(count)]
