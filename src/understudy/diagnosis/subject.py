"""What is diagnosed: demonstrations, policies, environment, expert, and fresh episodes in it."""

from dataclasses import dataclass, field

import numpy as np

from understudy.collect.acting import ActingExpert
from understudy.collect.recorder import Episodes
from understudy.core.statistics import Sample
from understudy.core.types import Spec
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.policies.actor import Actor
from understudy.train.results import Result


@dataclass
class Subject:
    """Everything that measures look at. None: not there; `missing` says why."""

    about: str
    demos: Demonstrations | None = None
    result: Result | None = None
    env: Environment | GymnasiumEnvironment | None = None
    expert: ActingExpert | None = None
    reference: ActingExpert | None = None
    """The given expert, or a scripted or bundled one of the task, which only shows what return is possible."""
    seed: int = 0
    episodes: int = 10
    fresh: Episodes | None = None
    """Episodes of the selected policy."""
    theirs: Episodes | None = None
    """Episodes of the expert from the same starts."""
    explored: Episodes | None = None
    """Episodes of which half of the actions are random."""
    cloned: Episodes | None = None
    """Episodes of the reference clone."""
    guided: Episodes | None = None
    """Demonstrations alone: episodes in which half of the actions are the reference clone's and half random."""
    stretched: Episodes | None = None
    """Episodes of the reference clone with its actions stretched, where the recorded fill little of the range."""
    random_returns: np.ndarray | None = None
    idle_returns: np.ndarray | None = None
    """Of the demonstrations' mean action in every step: a policy that ignores its observations. None: discrete."""
    reference_returns: np.ndarray | None = None
    returns: np.ndarray | None = None
    """(policies, episodes) of the runs with the most demonstrations."""
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def actor(self) -> Actor | None:
        return None if self.result is None else self.result.policy

    @property
    def spec(self) -> Spec:
        if self.env is not None:
            return self.env.spec
        if self.actor is not None:
            return self.actor.spec
        assert self.demos is not None
        return self.demos.spec

    @property
    def training(self) -> Demonstrations | None:
        """The demonstrations that the selected run uses."""
        if self.demos is None or self.result is None:
            return self.demos
        return self.demos.first(min(self.demos.episodes, self.result.runs[self.result.selected].episodes))

    @property
    def baseline(self) -> Sample | None:
        """The return of a policy without skill: random actions, or the mean action where that is better."""
        known = [one for one in (self.random_returns, self.idle_returns) if one is not None]
        return max((Sample.of(one) for one in known), key=lambda one: one.mean, default=None)

    @property
    def played(self) -> dict[str, Episodes]:
        """All fresh episodes, by who acts."""
        every = {
            "expert": self.theirs,
            "learner": self.fresh,
            "clone": self.cloned,
            "explored": self.explored,
            "guided": self.guided,
            "stretched": self.stretched,
        }
        return {name: one for name, one in every.items() if one is not None}

    def seeds(self, count: int) -> list[int]:
        """Different seeds for different episodes."""
        return [int(one) for one in np.random.SeedSequence([self.seed, 7]).generate_state(count)]
