"""Episodes that a learner's policies played, as a file has them, and where those that fail are lost (`failures`)."""

import csv
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

WINDOW = 50
"""Steps ahead that tell whether an episode keeps up."""


@dataclass(frozen=True)
class Episode:
    """One that a policy played, and how it is seen."""

    seed: int
    x: int
    """Environment steps by then."""
    steps: int
    """Exactly."""
    episode: int
    episode_return: float
    lost_at: int | None
    belief: float
    belief_shown: float
    reward: float
    reward_shown: float
    payoff: float


FIELDS = list(Episode.__dataclass_fields__)


def lost_at(rewards: np.ndarray, expert_return: float, horizon: int) -> int | None:
    """Where the longest stretch begins in which an episode does not keep up; None where it has not failed.

    `rewards` are of one episode; after its end there are none, which counts as zeros.
    """
    whole = np.zeros(horizon)
    whole[: len(rewards)] = rewards
    if whole.sum() >= expert_return / 2:
        return None
    width = min(WINDOW, horizon)
    ahead = np.convolve(whole, np.ones(width), "valid") / width
    # A step that keeps up before the first and after the last, so that every stretch has two ends.
    keeps = np.flatnonzero(np.concatenate([[True], ahead >= expert_return / horizon / 2, [True]]))
    return int(keeps[np.argmax(np.diff(keeps))])


def line(episode: Episode) -> list[Any]:
    """As a file has it, in the order of `FIELDS`."""
    return ["" if value is None else value for value in asdict(episode).values()]


def read(path: Path) -> list[Episode]:
    """What is kept already."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [episode(found) for found in csv.DictReader(file)]


def episode(found: Mapping[str, str]) -> Episode:
    """From a line of a file."""

    def number(name: str) -> float:
        return float(found[name])

    return Episode(
        *(int(found["seed"]), int(found["x"]), int(found["steps"]), int(found["episode"]), number("episode_return")),
        int(found["lost_at"]) if found["lost_at"] else None,
        *(number("belief"), number("belief_shown"), number("reward"), number("reward_shown"), number("payoff")),
    )
