"""Returns of policies in an environment, the imitation gap J(π_E) − J(π), and 95% intervals of both.

Intervals are Student's t over the means of independent runs (seeds). With a single run they are over its episodes,
which says nothing about other seeds. There are two kinds of gap:

    paired      the expert acts too, from the starting states of each policy. The interval is Student's t over the
                differences expert − policy, of runs or of episodes: what a starting state does to both cancels.
    recorded    the expert's return is that of the demonstrations. The interval is Welch's t, over both samples.

Every policy has its own starting states, and so has the expert beside it: shared ones would correlate the runs.

An episode is a success by the last `is_success` or `success` that its environment reports in the info of a step
(`envs.stepping`), or by `Timestep.success` of a JAX environment's last step.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.collect.acting import ActingExpert, acting_expert
from understudy.collect.recorder import Outcomes
from understudy.collect.rollout_pool import RolloutPool, rollout_pool
from understudy.collect.rollouts import rollout
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core import display
from understudy.core.errors import SettingError, check_seed, check_whole
from understudy.core.notices import notice
from understudy.core.progress import ProgressOption, check_progress
from understudy.core.statistics import Interval, Sample, imitation_gap, interval, proportion
from understudy.core.text import quoted
from understudy.core.types import Continuous
from understudy.envs import Environment, GymnasiumEnvironment, make_unfinished
from understudy.policies.actor import Actor, check_fits


@dataclass(frozen=True)
class Score:
    """Means and 95% intervals of the runs with one number of demonstrated episodes."""

    episodes: int | None
    """Demonstrated episodes in the training data."""
    runs: int
    learner: Interval
    """Return."""
    gap: Interval | None
    """None if the expert's return is not known."""
    expert: Interval | None = None
    """The expert's return: in its own episodes beside the policies', or as the demonstrations record it."""
    paired: bool = False
    """Whether the gap is over pairs of episodes that start from the same state."""
    length: Interval | None = None
    """Steps of an episode. None if they were not counted."""
    success: Interval | None = None
    """Share of successful episodes, from 0 to 1. None if the environment does not report it."""


@dataclass(frozen=True)
class Evaluation:
    """Returns of several policies in an environment."""

    env: str
    returns: np.ndarray
    """(policies, episodes)."""
    about: list[dict[str, Any]]
    """Metadata of each policy: seed, demonstrated episodes, ..."""
    expert: Sample | None = None
    """The expert's returns: of all its own episodes, or as the demonstrations record them."""
    seconds: float = float("nan")
    """Wall-clock time of the rollouts."""
    lengths: np.ndarray | None = None
    """(policies, episodes): steps of each episode."""
    success: np.ndarray | None = None
    """(policies, episodes): 1 if an episode was a success, 0 if not, NaN if the environment does not say."""
    expert_returns: np.ndarray | None = None
    """(policies, episodes): the expert's returns from the same starting states. None: the expert did not act."""

    @property
    def gaps(self) -> np.ndarray | None:
        """(policies,): the gap of each policy. None if the expert's return is not known."""
        if self.expert_returns is not None:
            return np.asarray((self.expert_returns - self.returns).mean(axis=1))
        return None if self.expert is None else np.asarray(self.expert.mean - self.returns.mean(axis=1))

    @property
    def interval_of(self) -> str:
        """What the intervals are over, in words for titles."""
        runs, episodes = {score.runs for score in self.scores()}, self.returns.shape[1]
        if runs == {1}:
            return f"Student's t over {episodes} episodes of one seed"
        seeds = f"{runs.pop()} seeds" if len(runs) == 1 else "seeds"
        return f"Student's t over {seeds}, {episodes} episodes each"

    def scores(self) -> list[Score]:
        """One score per number of demonstrated episodes."""
        counts = [about.get("episodes") for about in self.about]
        rows = []
        for count in sorted(set(counts), key=lambda c: -1 if c is None else c):
            own = np.array([c == count for c in counts])
            learner = _sample(self.returns[own])
            expert, gap = None if self.expert is None else interval(self.expert), None
            if self.expert_returns is not None:
                expert = interval(_sample(self.expert_returns[own]))
                gap = interval(_sample(self.expert_returns[own] - self.returns[own]))
            elif self.expert is not None:
                gap = imitation_gap(self.expert, learner)
            length = None if self.lengths is None else interval(_sample(self.lengths[own]))
            success = None if self.success is None else success_rate(self.success[own])
            paired = self.expert_returns is not None
            rows.append(Score(count, int(own.sum()), interval(learner), gap, expert, paired, length, success))
        return rows


def _sample(values: np.ndarray) -> Sample:
    """The means of several runs, or the episodes of a single one."""
    return Sample.of(values.mean(axis=1) if len(values) > 1 else values[0])


def success_rate(success: np.ndarray) -> Interval | None:
    """The share of successful episodes of some runs, (runs, episodes). None if no episode says.

    The interval is Student's t over the runs' shares, cut to 0 and 1. If there is one run, or all have the same share,
    it is Wilson's, over the episodes.
    """
    told = ~np.isnan(success)
    if not told.any():
        return None
    shares = [float(np.mean(run[known])) for run, known in zip(success, told, strict=True) if known.any()]
    if len(set(shares)) == 1:
        return proportion(int(success[told].sum()), int(told.sum()))
    mean, low, high = interval(Sample.of(shares))
    return Interval(mean, max(low, 0.0), min(high, 1.0))


def evaluate(
    policies: Sequence[Actor],
    env: Any,
    episodes: int = 10,
    seed: int = 0,
    expert: Any = None,
    workers: int | None = None,
    progress: ProgressOption = True,
    step_timeout: float = STEP_TIMEOUT,
) -> Evaluation:
    """Roll out each policy deterministically for `episodes` episodes: undiscounted task returns, lengths, successes.

    Each policy starts from other initial states, which `seed` and its position in the list determine. Shared initial
    states would correlate the means of the policies, and an interval over them would be too narrow.

    Args:
        policies: Policies to evaluate.
        env: Environment, or its name.
        episodes: Episodes per policy.
        seed: Seed of the episodes.
        expert: For the imitation gap. An expert that acts from the initial states of each policy: "scripted",
            "bundled", a policy, a function, or a file, as in `understudy.record`. Or a `Sample` of its returns.
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
    began, given = time.perf_counter(), make_unfinished(env)
    environment = completed(given, policies[0])
    for actor in policies:
        check_fits(actor, environment)
    acting = None if expert is None or isinstance(expert, Sample) else _acting(expert, given, environment)
    seeds = _policy_seeds(seed, len(policies))
    found: list[tuple[Outcomes, Outcomes | None]] = []
    with ExitStack() as stack:
        report = stack.enter_context(
            display.reporting(f"evaluating {len(policies)} policies in {environment.name}", progress)
        )
        pool = rollout_pool(environment, len(policies), workers, step_timeout)
        if pool is not None:
            stack.enter_context(pool)
        jobs = zip(policies, seeds, strict=True)
        waiting = [_started(environment, pool, actor, acting, episodes, start) for actor, start in jobs]
        for outcome in waiting:
            found.append(outcome())
            if report is not None:
                report(len(found), len(policies), {"return": float(np.mean([own.returns for own, _ in found]))})
    learned = Outcomes(*(np.stack(column) for column in zip(*(own for own, _ in found), strict=True)))
    theirs = None if acting is None else np.stack([their.returns for _, their in found if their is not None])
    return Evaluation(
        environment.name,
        learned.returns,
        [actor.about for actor in policies],
        expert if theirs is None else Sample.of(theirs),
        time.perf_counter() - began,
        learned.lengths,
        learned.success,
        theirs,
    )


def _acting(
    expert: Any, given: Environment | GymnasiumEnvironment, environment: Environment | GymnasiumEnvironment
) -> ActingExpert:
    """The expert, without the bounds that the policy's actions have in an environment that has none."""
    if isinstance(expert, ActingExpert):
        return expert
    if isinstance(given, GymnasiumEnvironment) and isinstance(environment, GymnasiumEnvironment):
        given = given.with_horizon(environment.checked_horizon())
    return acting_expert(expert, given)


def _started(
    env: Environment | GymnasiumEnvironment,
    pool: RolloutPool | None,
    actor: Actor,
    expert: ActingExpert | None,
    episodes: int,
    seed: int,
) -> Callable[[], tuple[Outcomes, Outcomes | None]]:
    """Start the episodes of a policy and of the expert beside it. The result waits for them."""
    if pool is not None and expert is not None:
        return pool.paired(actor.policy, expert, episodes, seed).result
    if pool is not None:
        future = pool.outcomes(actor.policy, episodes, seed)
        return lambda: (future.result(), None)

    def here() -> tuple[Outcomes, Outcomes | None]:
        own = rollout(env, actor.policy, episodes, seed).outcomes
        if expert is None:
            return own, None
        return own, rollout(env, expert.source(seed), episodes, seed, expert.deterministic).outcomes

    return here


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
