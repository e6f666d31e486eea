"""The episodes of a Minari data set in main_data.hdf5.

episode_{i}/observations    T + 1 rows; a group for a Dict or Tuple space, whose entries are called _index_{j}
episode_{i}/actions, rewards, terminations, truncations    T rows
episode_{i}/infos/success or is_success    T or T + 1 numbers, optional
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import spaces

from understudy.core.errors import DemonstrationError
from understudy.core.hdf5 import Hdf5File, Hdf5Reader
from understudy.core.hdf5_arrays import Stored
from understudy.core.spaces import width
from understudy.data.formats.minari_metadata import REMEDY, WHAT, Episode, Metadata, Source

MAIN = "main_data.hdf5"
SUCCESS = ("success", "is_success")


class _Episodes:
    """The declared datasets of the first episodes."""

    def __init__(self, file: Hdf5File, metadata: Metadata, count: int):
        self._stored = [_declared(file, metadata, f"episode_{i}") for i in range(count)]

    @property
    def lengths(self) -> list[int]:
        return [episode["rewards"].shape[0] for episode in self._stored]

    def episode(self, index: int) -> Episode:
        stored = self._stored[index]
        success = stored.get("success")
        return Episode(
            [one.read() for one in stored["observations"]],
            stored["actions"].read(),
            stored["rewards"].read(),
            stored["terminations"].read(),
            None if success is None else success.read(),
        )


@contextmanager
def open_episodes(metadata: Metadata, count: int) -> Iterator[Source]:
    """The first `count` episodes."""
    with Hdf5Reader(metadata.folder / MAIN, WHAT, REMEDY, DemonstrationError).hdf5() as file:
        yield _Episodes(file, metadata, count)


def _declared(file: Hdf5File, metadata: Metadata, name: str) -> dict[str, Any]:
    rewards = file.dataset(f"{name}/rewards")
    steps = rewards.shape[0] if rewards.shape else 0
    _check(file, rewards, (steps,))
    terminations = file.dataset(f"{name}/terminations", itemsize=1)
    _check(file, terminations, (steps,))
    actions = file.dataset(f"{name}/actions")
    _check(file, actions, (steps, *(metadata.action_space.shape or ())))
    found: dict[str, Any] = {"rewards": rewards, "terminations": terminations, "actions": actions, "observations": []}
    for path, space in metadata.leaves:
        shape = space.shape or ()
        each = -(-4 * width(space) // math.prod(shape))  # bytes of the flat observation for each stored number
        place = "/".join(_stored_names(metadata.observation_space, path))
        stored = file.dataset(f"{name}/observations{'/' if place else ''}{place}", itemsize=each)
        _check(file, stored, (steps + 1, *shape))
        found["observations"].append(stored)
    for key in SUCCESS:
        if file.has(f"{name}/infos/{key}"):
            found["success"] = file.dataset(f"{name}/infos/{key}", itemsize=1)
            break
    return found


def _stored_names(space: Any, path: tuple[str, ...]) -> Iterator[str]:
    """The names of a leaf's groups in the file."""
    for name in path:
        if isinstance(space, spaces.Tuple):
            yield f"_index_{name}"
            space = space.spaces[int(name)]
        else:
            yield name
            space = space.spaces[name]


def _check(file: Hdf5File, stored: Stored, shape: tuple[int, ...]) -> None:
    """Raise unless a dataset has this shape, or one with further axes of length 1."""
    same_rows = bool(stored.shape) and stored.shape[0] == shape[0]
    if not same_rows or np.prod(stored.shape, dtype=object) != np.prod(shape, dtype=object) or 0 in stored.shape:
        raise file.damaged(f"'{stored.path}' has shape {stored.shape}, and {shape} is needed")
