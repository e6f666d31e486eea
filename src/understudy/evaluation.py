"""How good a policy is: returns in the environment, the imitation gap J(π_E) − J(π), and 95% intervals for both.

Intervals are Student's t over the means of independent runs (seeds); with a single run, over its episodes, which says
nothing about other seeds. The gap's interval adds the expert's own uncertainty (Welch).
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from understudy.actor import Actor
from understudy.envs import HostEnvironment, make
from understudy.errors import SpecError
from understudy.policies import Policy
from understudy.rollouts import rollout
from understudy.run import Progress
from understudy.types import Spec


class Interval(NamedTuple):
    """An estimate and its 95% interval; NaN ends where a single number cannot have one."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if not np.isfinite(self.low):
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} ± {(self.high - self.low) / 2:.1f}"


class Sample(NamedTuple):
    """Mean, standard deviation and size of a sample of returns."""

    mean: float
    std: float
    size: int

    @classmethod
    def of(cls, values: Any) -> "Sample":
        array = np.asarray(values, np.float64)
        return cls(float(array.mean()), float(array.std(ddof=1)) if array.size > 1 else float("nan"), array.size)


def interval(sample: Sample) -> Interval:
    """The mean of a sample with its 95% interval."""
    return _interval(sample.mean, [(sample.std, sample.size)])


def imitation_gap(expert: Sample, learner: Sample) -> Interval:
    """J(π_E) − J(π) with its 95% interval."""
    return _interval(expert.mean - learner.mean, [(expert.std, expert.size), (learner.std, learner.size)])


def _interval(mean: float, parts: list[tuple[float, int]]) -> Interval:
    """Student's t with the Welch–Satterthwaite degrees of freedom over independent parts (standard deviation, size)."""
    if any(size < 2 for _, size in parts):
        return Interval(mean, float("nan"), float("nan"))
    variances = [std**2 / size for std, size in parts]
    total = sum(variances)
    if total == 0:
        return Interval(mean, mean, mean)
    freedom = total**2 / sum(v**2 / (size - 1) for v, (_, size) in zip(variances, parts, strict=True))
    reach = float(stdtrit(freedom, 0.975)) * total**0.5
    return Interval(mean, mean - reach, mean + reach)


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
    """Play `episodes` episodes with each policy, all from the same starts; returns are the environment's own.

    `workers` processes share the policies of a Gymnasium environment given by name; the returns are the same however
    many there are. (They are spawned, so a script that asks for them needs the `if __name__ == "__main__":` guard.)
    """
    made = make(env)
    for actor in policies:
        check_fits(actor, made)
    with ExitStack() as stack:
        if workers > 1 and len(policies) > 1 and isinstance(env, str) and isinstance(made, HostEnvironment):
            pool = ProcessPoolExecutor(min(workers, len(policies)), mp_context=get_context("spawn"))
            jobs = stack.enter_context(pool).map(_play, [(env, a.policy, episodes, seed) for a in policies])
        else:
            jobs = map(_play, [(made, a.policy, episodes, seed) for a in policies])
        returns: list[np.ndarray] = []
        for played in jobs:
            returns.append(played)
            if progress is not None:
                progress(len(returns), len(policies), {"return": float(np.mean(returns))})
    return Evaluation(made.name, np.stack(returns), [actor.about for actor in policies], expert)


def _play(job: tuple[Any, Policy, int, int]) -> np.ndarray:
    return rollout(*job).returns


def check_fits(actor: Actor, env: Any) -> None:
    """A policy trained on other observations or actions cannot play here."""
    spec = env.spec
    same_kind = type(spec.action) is type(actor.spec.action) and spec.action.shape == actor.spec.action.shape
    if spec.obs_shape != actor.spec.obs_shape or not same_kind:
        raise SpecError(f"the policy was trained for {_describe(actor.spec)}; {env.name} has {_describe(spec)}")


def _describe(spec: Spec) -> str:
    return f"observations {spec.obs_shape} and {type(spec.action).__name__.lower()} actions {spec.action.shape}"
