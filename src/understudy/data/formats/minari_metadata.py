"""Minari's metadata.json, and the interface of the files that hold the episodes (HDF5 or Arrow)."""

import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces

from understudy.core.errors import DemonstrationError, SpecError, UnderstudyError, unknown
from understudy.core.parts import Parts
from understudy.core.reader import MOST_MEMBERS, FileReader
from understudy.core.spaces import Actions, actions_of, is_image, leaves, width
from understudy.core.text import is_line, quoted
from understudy.core.types import MOST_STEPS
from understudy.data.formats.minari_spaces import parse_space

METADATA = "metadata.json"
WHAT, REMEDY = "a Minari data set", "see docs/demonstrations.md"
LONGEST_NAME = 200
PATTERN = {
    "total_episodes": int,
    "observation_space?": str,
    "action_space?": str,
    "data_format?": str,
    "env_spec?": (str, None),
    "dataset_id?": str,
    "understudy?": {"env": (str, None), "horizon": int},
}
"""What is read from metadata.json. `understudy` is our own entry."""
Leaf = tuple[tuple[str, ...], spaces.Space[Any]]
"""A space that is not nested, and its path in the observation space."""


@dataclass(frozen=True)
class Metadata:
    """What metadata.json says, checked."""

    folder: Path
    """The folder `data`."""
    reader: FileReader
    """Reads metadata.json. Its `damaged` makes the errors."""
    data_format: str
    """hdf5, arrow or parquet."""
    episodes: int
    observation_space: spaces.Space[Any]
    leaves: tuple[Leaf, ...]
    """The parts of the observation that are read, in order."""
    action_space: spaces.Space[Any]
    actions: Actions
    dataset_id: str | None
    env: str | None
    horizon: int | None

    @property
    def width(self) -> int:
        """Numbers of a flat observation."""
        return sum(width(space) for _, space in self.leaves)

    @property
    def parts(self) -> Parts:
        return tuple((".".join(path), width(space)) for path, space in self.leaves if path)


class Episode(NamedTuple):
    """One episode of T steps, as it is stored."""

    observations: list[np.ndarray]
    """T + 1 rows of each of `Metadata.leaves`."""
    actions: np.ndarray
    """T rows."""
    rewards: np.ndarray
    terminations: np.ndarray
    success: np.ndarray | None
    """infos["success"] or infos["is_success"], T or T + 1 numbers, if they are there."""


class Source(Protocol):
    """Open files with the episodes. All their declared sizes are checked."""

    @property
    def lengths(self) -> list[int]:
        """The steps T of each episode."""
        ...

    def episode(self, index: int) -> Episode: ...


Opener = Callable[[Metadata, int], AbstractContextManager[Source]]
"""Opens the first episodes of a data set."""


def data_folder(path: Path) -> Path | None:
    """The folder with metadata.json: `path`, `path`/data, or the one of a file main_data.hdf5. None: there is none."""
    for folder in (path / "data", path, path.parent if path.name == "main_data.hdf5" else path):
        if (folder / METADATA).is_file():
            return folder
    return None


def read_metadata(folder: Path, keys: tuple[str, ...]) -> Metadata:
    """Read metadata.json. `keys` choose parts of the observation."""
    reader = FileReader(folder / METADATA, WHAT, REMEDY, DemonstrationError)
    value = reader.json(PATTERN)
    for key in ("observation_space", "action_space"):
        if key not in value:
            raise reader.damaged(f"it has no {key}; older data sets get one if Minari writes them again")
    if not 1 <= value["total_episodes"] <= MOST_MEMBERS:
        raise reader.damaged(f"total_episodes is {quoted(value['total_episodes'], 40)}, not 1 to {MOST_MEMBERS}")
    with reader.guarded():
        observed, acted = parse_space(value["observation_space"]), parse_space(value["action_space"])
    try:
        actions = actions_of(acted, "the data set")
    except SpecError as error:
        raise DemonstrationError(f"'{reader.name}': {quoted(error, 300)}") from error
    env, horizon = _environment(reader, value)
    name = value.get("dataset_id")
    return Metadata(
        folder=folder,
        reader=reader,
        data_format=value.get("data_format", "hdf5"),
        episodes=value["total_episodes"],
        observation_space=observed,
        leaves=_chosen(reader, observed, keys),
        action_space=acted,
        actions=actions,
        dataset_id=name if is_line(name, LONGEST_NAME) else None,
        env=env,
        horizon=horizon,
    )


def _environment(reader: FileReader, value: dict[str, Any]) -> tuple[str | None, int | None]:
    """The name and the time limit of the environment."""
    env, horizon = None, None
    if "understudy" in value:
        env, horizon = value["understudy"]["env"], value["understudy"]["horizon"]
    elif value.get("env_spec") is not None:
        with reader.guarded():
            spec = json.loads(value["env_spec"])
            env, horizon = spec["id"], spec.get("max_episode_steps")
    if not (env is None or (env and is_line(env, LONGEST_NAME))):
        raise reader.damaged(f"the environment is '{quoted(env)}', not one line of printable text")
    if not (horizon is None or (type(horizon) is int and 1 <= horizon <= MOST_STEPS)):
        raise reader.damaged(f"the time limit is {quoted(repr(horizon), 40)}, not a number from 1 to {MOST_STEPS}")
    return env, horizon


def _chosen(reader: FileReader, space: spaces.Space[Any], keys: tuple[str, ...]) -> tuple[Leaf, ...]:
    """The leaves that the keys name, or all. A key names a leaf, or a Dict or Tuple with all its leaves."""
    known = list(leaves(space))
    found = []
    for key in keys:
        named = [(path, one) for path, one in known if path and _names(key, path)]
        if not named:
            raise _unknown_key(reader, key, known)
        found += [leaf for leaf in named if leaf not in found]
    for path, one in found or known:
        if is_image(one) or width(one) == 0:
            part = f" '{quoted('.'.join(path))}'" if path else ""
            usable = [".".join(path) for path, one in known if path and not is_image(one) and width(one) > 0]
            hint = f"pass keys={quoted(usable, 300)}" if usable else "it has no others"
            raise DemonstrationError(
                f"'{reader.name}' has the observation{part} {quoted(one, 80)}, and images and texts are not supported: "
                f"{hint}"
            )
    flat = tuple(found or known)
    if math.fsum(width(one) for _, one in flat) > MOST_STEPS:
        raise reader.damaged("an observation has too many numbers")
    return flat


def _names(key: str, path: tuple[str, ...]) -> bool:
    name = ".".join(path)
    return name == key or name.startswith(f"{key}.")


def _unknown_key(reader: FileReader, key: str, known: list[Leaf]) -> UnderstudyError:
    names = [".".join(path) for path, _ in known if path]
    if not names:
        return DemonstrationError(f"'{reader.name}' has no observation keys: load it without keys")
    return unknown("observation key", quoted(key), names, where=reader.name)
