"""Returns of policies in an environment, the imitation gap J(π_E) − J(π), and 95% intervals of both.

Intervals are Student's t over the means of independent runs (seeds). With a single run they are over its episodes,
which says nothing about other seeds. The gap's interval includes the uncertainty of the expert's return (Welch).
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.collect.rollout_pool import rollout_pool
from understudy.collect.rollouts import rollout
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import SettingError, check_seed, check_whole
from understudy.core.notices import notice
from understudy.core.progress import ProgressOption, check_progress
from understudy.core.statistics import Interval, Sample, imitation_gap, interval
from understudy.core.text import quoted
from understudy.core.types import Continuous
from understudy.envs import Environment, GymnasiumEnvironment, make_unfinished
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
    workers: int | None = None,
    progress: ProgressOption = True,
    step_timeout: float = STEP_TIMEOUT,
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
        workers: Processes that step a Gymnasium environment (0: this process). The returns do not depend on it.
            Default: one per policy, at most one per core; 0 for an environment that cannot be sent to another process.
        progress: Show a progress bar on standard error, if it is a terminal or a notebook. False: silent. A function
            is called after each policy instead, with the policies done, all policies, and a dict of metrics.
        step_timeout: Seconds that a step or reset in a worker may take (0: no limit). After that, or if a worker dies,
            a new one evaluates the policy with other initial states; the third one in a row that fails is an error.
    """
    if not isinstance(policies, Sequence) or not policies or not all(isinstance(one, Actor) for one in policies):
        raise SettingError(f"policies is {quoted(repr(policies))}: give a list of policies, such as result.policies")
    check_whole(1, episodes=episodes)
    check_progress("policies done, all policies and a dict of metrics", progress)
    if not isinstance(expert, Sample | None):
        raise SettingError(f"expert is {expert!r}: give its returns, such as Sample.of(demonstrations.returns)")
    began, environment = time.perf_counter(), completed(make_unfinished(env), policies[0])
    for actor in policies:
        check_fits(actor, environment)
    seeds = _policy_seeds(seed, len(policies))
    jobs = [(actor.policy, episodes, start) for actor, start in zip(policies, seeds, strict=True)]
    returns: list[np.ndarray] = []
    with ExitStack() as stack:
        title = f"evaluating {len(jobs)} policies in {environment.name}"
        report = stack.enter_context(display.reporting(title, progress))
        pool = rollout_pool(environment, len(jobs), workers, step_timeout)
        if pool is not None:
            stack.enter_context(pool)
        futures = [] if pool is None else [pool.returns(*job) for job in jobs]
        for number, job in enumerate(jobs):
            returns.append(rollout(environment, *job).returns if pool is None else futures[number].result())
            if report is not None:
                report(len(returns), len(jobs), {"return": float(np.mean(returns))})
    about, seconds = [actor.about for actor in policies], time.perf_counter() - began
    return Evaluation(environment.name, np.stack(returns), about, expert, seconds)


def completed(env: Environment | GymnasiumEnvironment, actor: Actor) -> Environment | GymnasiumEnvironment:
    """The environment with the horizon and the action bounds that a policy was trained with, where it has none."""
    if not isinstance(env, GymnasiumEnvironment):
        return env
    if env.horizon is None:
        env = env.with_horizon(actor.spec.horizon)
        notice(
            f"{env.name} has no time limit: its episodes end after {env.horizon} steps, the horizon of the policy "
            "(another: understudy.make(env, horizon=N), or --horizon N)"
        )
    fits = isinstance(actor.spec.action, Continuous) and actor.spec.action_size == env.action_size
    return env.without_bounds() if env.bounded or not fits else env.with_action_bounds(actor.spec.action)


def _policy_seeds(seed: int, count: int) -> list[int]:
    """A seed for each of `count` policies."""
    check_seed(seed)
    return [int(s) for s in np.random.SeedSequence([seed, 1]).generate_state(count)]
