"""Evaluation episodes of the ablation: rows of a file, and the step at which a failed episode fails (`failures`)."""

import csv
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

WINDOW = 50
"""Steps over which rewards are averaged to decide whether an episode keeps pace with the expert."""


@dataclass(frozen=True)
class Episode:
    """One evaluation episode, with the values of the learner's critic, reward and payoff. `failures` defines them."""

    seed: int
    x: int
    """The same as `steps`. In rows of earlier versions it is rounded down to a multiple of eval_every."""
    steps: int
    """Environment steps at the evaluation."""
    episode: int
    episode_return: float
    failed_at: int | None
    critic_value: float
    critic_value_demonstrated: float
    reward: float
    reward_demonstrated: float
    payoff: float


FIELDS = list(Episode.__dataclass_fields__)


def failure_step(rewards: np.ndarray, expert_return: float, horizon: int) -> int | None:
    """The first step of the longest stretch that does not keep pace with the expert; None if the episode succeeds.

    Args:
        rewards: Rewards of one episode. Steps after its end count as zeros.
        expert_return: The expert's mean return.
        horizon: Steps of a full episode.
    """
    padded = np.zeros(horizon)
    padded[: len(rewards)] = rewards
    if padded.sum() >= expert_return / 2:
        return None
    width = min(WINDOW, horizon)
    ahead = np.convolve(padded, np.ones(width), "valid") / width
    # Sentinels before the first and after the last step give every stretch two ends.
    keeps_pace = np.flatnonzero(np.concatenate([[True], ahead >= expert_return / horizon / 2, [True]]))
    return int(keeps_pace[np.argmax(np.diff(keeps_pace))])


def format_episode(episode: Episode) -> list[Any]:
    """A row of the file, in the order of `FIELDS`."""
    return ["" if value is None else value for value in asdict(episode).values()]


def read_episodes(path: Path) -> list[Episode]:
    """The episodes in a file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [parse_episode(row) for row in csv.DictReader(file)]


def parse_episode(row: Mapping[str, str]) -> Episode:
    """An episode from a row of a file."""
    numbers: dict[str, Any] = {name: int(row[name]) for name in ("seed", "x", "steps", "episode")}
    numbers |= {name: float(row[name]) for name in FIELDS if name not in (*numbers, "failed_at")}
    return Episode(**numbers, failed_at=int(row["failed_at"]) if row["failed_at"] else None)
