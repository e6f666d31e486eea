"""Finished episodes: their steps, and what they are scored by."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from understudy.collect.gates import Decision, HostGate
from understudy.core.types import Transition


class Outcomes(NamedTuple):
    """What episodes are scored by: (episodes,) arrays."""

    returns: np.ndarray
    """The undiscounted sums of the task rewards."""
    lengths: np.ndarray
    """Steps."""
    success: np.ndarray
    """1 or 0: whether the task was solved, by the last report of the episode. NaN: the environment does not say."""


@dataclass(frozen=True)
class Episodes:
    """Episodes padded to a common length; `lengths` is the number of real steps of each."""

    steps: Transition
    """(episodes, time, ...) NumPy arrays."""
    rewards: np.ndarray
    """(episodes, time), zero after an episode's end."""
    lengths: np.ndarray
    decisions: Decision | None = None
    """(episodes, time) arrays: the gate's decisions. None: there was no gate."""
    success: np.ndarray | None = None
    """(episodes,), as in `Outcomes`. None: the environment does not say."""
    reported: np.ndarray | None = None
    """(episodes, time): 1 or 0, whether the task is solved after a step. NaN or None: the environment does not say."""

    @property
    def returns(self) -> np.ndarray:
        """The undiscounted sum of the task rewards of each episode."""
        return self.rewards.sum(axis=1, dtype=np.float64)

    @property
    def outcomes(self) -> Outcomes:
        unknown = np.full(len(self.lengths), np.nan, np.float32)
        return Outcomes(self.returns, self.lengths, unknown if self.success is None else self.success)

    def flat(self, array: np.ndarray) -> np.ndarray:
        """The real steps of a padded array, end to end."""
        return array[np.arange(array.shape[1]) < self.lengths[:, None]]


class Recorder:
    """Collects a batch of steps at a time until every episode has ended once."""

    def __init__(self, episodes: int) -> None:
        self.alive = np.ones(episodes, bool)
        self._lengths = np.zeros(episodes, np.int64)
        self._rows: list[tuple[np.ndarray, ...]] = []
        self._decisions: list[Decision] = []
        self._success = np.full(episodes, np.nan, np.float32)

    def gated(self, gate: HostGate | None, t: int, obs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The learner's actions, replaced by the expert's where the gate lets it act."""
        if gate is None:
            return actions
        actions, decision = gate.choose(t, obs, actions, self.alive)
        self._decisions.append(decision)
        return actions

    def add(
        self,
        t: int,
        obs: np.ndarray,
        act: np.ndarray,
        next_obs: np.ndarray,
        reward: np.ndarray,
        terminal: np.ndarray,
        last: np.ndarray,
        success: np.ndarray | None,
    ) -> None:
        time = np.full(len(obs), t, np.int32)
        known, round_ = np.ones(len(obs), bool), np.zeros(len(obs), np.int32)
        reward = np.where(self.alive, reward, 0).astype(np.float32)
        told = np.full(len(obs), np.nan, np.float32) if success is None else np.asarray(success, np.float32)
        self._rows.append((time, obs, act, next_obs, terminal, last, known, round_, reward, told))
        self._lengths += self.alive
        if success is not None:
            self._success = np.where(self.alive & ~np.isnan(success), success, self._success)
        self.alive = self.alive & ~last

    def episodes(self) -> Episodes:
        *steps, rewards, reported = (np.stack(column, axis=1) for column in zip(*self._rows, strict=True))
        decisions = None
        if self._decisions:
            decisions = Decision(*(np.stack(column, axis=1) for column in zip(*self._decisions, strict=True)))
        return Episodes(Transition(*steps), rewards, self._lengths, decisions, self._success, reported)
