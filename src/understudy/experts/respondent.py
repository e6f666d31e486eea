"""An expert that answers at some of a round's states and declines the others: a person.

Other experts answer every state that they are queried about, within the budget. A person answers a few, and takes a
while. So a `Respondent` gets a round's whole episodes after they have ended, and returns the rows that it has answered.
It never acts within an episode. What it was asked about before, in a training that was interrupted, it can `recall`:
then the round is not collected again, and no answer is lost.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from understudy.core.types import Transition


class AskedRound(NamedTuple):
    """The learner's episodes of one round, end to end, and the states that the algorithm asks about."""

    round: int
    """From 1 on: round 0 has no episodes."""
    steps: Transition
    lengths: np.ndarray
    rewards: np.ndarray
    """(N,)."""
    candidates: np.ndarray
    """Rows of `steps` that the algorithm chose, the first to be asked first; all rows if it chooses none."""
    gated: bool
    """Whether the algorithm chose the candidates, by its gate or by `ask`."""
    seed: int
    """Of the episodes, as in `collect.rollouts.rollout`."""

    @property
    def mean_return(self) -> float:
        starts = np.cumsum(self.lengths) - self.lengths
        return float(np.add.reduceat(self.rewards.astype(np.float64), starts).mean())


class Answers(NamedTuple):
    """The answered rows of a round, and the expert's actions there."""

    rows: np.ndarray
    actions: np.ndarray


class Respondent(ABC):
    """Answers some of the states of a round. It is the source of an `Expert`, for a single run."""

    def recall(self, index: int) -> AskedRound | None:
        """The episodes of a round that it was asked about in an earlier training; None: collect new ones."""
        return None

    @abstractmethod
    def answer(self, asked: AskedRound, most: int) -> Answers:
        """Answer at most `most` of the candidates. It may take as long as it likes."""


class Silent(Respondent):
    """Answers nothing, for an algorithm that learns from the steps at which a person took over."""

    def answer(self, asked: AskedRound, most: int) -> Answers:
        return Answers(np.zeros(0, int), np.zeros((0, *asked.steps.act.shape[1:]), asked.steps.act.dtype))
