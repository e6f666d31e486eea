"""How good a policy is: returns in the environment, the imitation gap J(π_E) − J(π), and 95% intervals for both.

Intervals are Student's t over the means of independent runs (seeds); with a single run, over its episodes, which says
nothing about other seeds. The gap's interval adds the expert's own uncertainty (Welch).
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
    """The runs of one demonstration count, together."""

    episodes: int | None
    """Demonstration episodes they learned from."""
    runs: int
    learner: Interval
    gap: Interval | None
    """None where the expert's return is not known."""


@dataclass(frozen=True)
class Evaluation:
    """Returns of some policies in an environment."""

    env: str
    returns: np.ndarray
    """(policies, episodes)."""
    about: list[dict[str, Any]]
    """What each policy is: seed, episodes, ..."""
    expert: Sample | None = None
    seconds: float = float("nan")
    """Time spent playing."""

    def scores(self) -> list[Score]:
        """A row for each demonstration count."""
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
    """Play `episodes` episodes with each policy; returns are the environment's own.

    Each policy has starts of its own, drawn from `seed` and its place: with shared starts the policies' means would
    move together, and an interval over them would be too narrow. `workers` processes share the policies of a Gymnasium
    environment given by name; the returns are the same however many there are. (They are spawned, so a script that asks
    for them needs the `if __name__ == "__main__":` guard.)
    """
    check_whole(1, episodes=episodes)
    check_whole(0, workers=workers)
    check_callable("policies done, all policies and a dict of metrics", progress=progress)
    if not isinstance(expert, Sample | None):
        raise SettingError(f"expert is {expert!r}: its returns are needed, as in Sample.of(demonstrations.returns)")
    began, made = time.perf_counter(), make(env)
    for actor in policies:
        check_fits(actor, made)
    jobs = [(actor.policy, episodes, start) for actor, start in zip(policies, _seeds(seed, len(policies)), strict=True)]
    with ExitStack() as stack:
        if workers > 1 and len(jobs) > 1 and isinstance(made, GymnasiumEnvironment) and made.registered:
            pool = ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn"))
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            results = pool.map(partial(play_named, made.name, made.spec.horizon), jobs)
        else:
            results = map(partial(_play, made), jobs)
        returns: list[np.ndarray] = []
        for played in results:
            returns.append(played)
            if progress is not None:
                progress(len(returns), len(jobs), {"return": float(np.mean(returns))})
    about, seconds = [actor.about for actor in policies], time.perf_counter() - began
    return Evaluation(made.name, np.stack(returns), about, expert, seconds)


def _play(env: Environment | GymnasiumEnvironment, job: tuple[Policy, int, int]) -> np.ndarray:
    return rollout(env, *job).returns


def play_named(name: str, horizon: int, job: tuple[Policy, int, int]) -> np.ndarray:
    """As `_play`, in another process, which cannot be handed an environment but can make it."""
    return _play(make(name, horizon), job)


def _seeds(seed: int, count: int) -> list[int]:
    """A seed for each of `count` policies."""
    check_seed(seed)
    return [int(s) for s in np.random.SeedSequence([seed, 1]).generate_state(count)]
