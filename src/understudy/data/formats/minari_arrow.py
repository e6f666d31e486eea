"""The episodes of a Minari data set in Arrow or Parquet files: data/{i}/part-0.arrow or part-0.parquet.

observations    T + 1 rows: lists of one length, numbers for a Discrete space, records for Dict and Tuple ("0", "1")
actions, rewards, terminations    T + 1 rows; the last one is padding
infos    success or is_success, T + 1 flags, optional; other infos are not read
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from understudy.core.arrow import arrow_blocks
from understudy.core.columns import Column, Want
from understudy.core.errors import DemonstrationError
from understudy.core.folder import Folder, Refused
from understudy.core.parquet import parquet_blocks
from understudy.core.spaces import width
from understudy.data.formats.minari_metadata import Episode, Metadata

BLOCKS = {"arrow": arrow_blocks, "parquet": parquet_blocks}
"""How a file is read, by metadata.json's `data_format`."""
SUCCESS = ("success", "is_success")
OBSERVATIONS, ACTIONS, REWARDS, TERMINATIONS = "observations", "actions", "rewards", "terminations"
ITEM = 8
"""Bytes of a number, at most."""


class _Episodes:
    """The first episodes. Their lengths are read at once, and the rest one episode at a time."""

    def __init__(self, metadata: Metadata, count: int):
        self._metadata = metadata
        self._folder = Folder(metadata.folder, "a Minari data set", "see docs/demonstrations.md", DemonstrationError)
        self.lengths: list[int] = []
        numbers = sum(width(space) for _, space in metadata.leaves) + math.prod(metadata.action_space.shape or ())
        for index in range(count):
            name = self._name(index)
            self._folder.weigh(name)
            with self._folder.reading(name):
                steps = len(self._columns(index, [Want((REWARDS,))])[REWARDS].flat()) - 1
                if steps < 1:
                    raise Refused(f"it has {steps + 1} rows, and a row more than steps is needed")
            self._folder.reserve(name, (steps + 1) * ITEM * (numbers + 2))
            self.lengths.append(steps)

    def episode(self, index: int) -> Episode:
        """One episode."""
        steps = self.lengths[index]
        observed = [Want((OBSERVATIONS, *path)) for path, _ in self._metadata.leaves]
        others = [Want((name,)) for name in (ACTIONS, REWARDS, TERMINATIONS)]
        with self._folder.reading(self._name(index)):
            found = self._columns(index, [*observed, *others])
            observations = [
                found[want.name].table().reshape(steps + 1, *(space.shape or ()))
                for want, (_, space) in zip(observed, self._metadata.leaves, strict=True)
            ]
            actions = found[ACTIONS].table().reshape(steps + 1, *(self._metadata.action_space.shape or ()))[:-1]
            rewards, terminations = (found[name].flat()[:-1] for name in (REWARDS, TERMINATIONS))
            if len(rewards) != steps or not np.isin(terminations, (0, 1)).all():
                raise Refused("terminations are not True or False, or the file changed")
            return Episode(observations, actions, rewards, terminations, self._success(index))

    def _success(self, index: int) -> np.ndarray | None:
        """The flags of success in infos; None if there are none, or something else has this name."""
        for name in SUCCESS:
            want = Want(("infos", name), optional=True)
            try:
                found = self._columns(index, [want])
            except DemonstrationError:  # not a column of numbers
                continue
            if want.name in found and not found[want.name].counts:
                return found[want.name].values
        return None

    def _name(self, index: int) -> str:
        return f"{index}/part-0.{self._metadata.data_format}"

    def _columns(self, index: int, wants: list[Want]) -> dict[str, Column]:
        """The columns of an episode's file, its blocks joined."""
        blocks = list(BLOCKS[self._metadata.data_format](self._folder, self._name(index), wants))
        if not blocks:
            raise Refused("it has no rows")
        return {name: _joined([block[name] for block in blocks]) for name in blocks[0]}


@contextmanager
def open_arrow_episodes(metadata: Metadata, count: int) -> Iterator[_Episodes]:
    """The first `count` episodes of a data set whose `data_format` is "arrow" or "parquet"."""
    yield _Episodes(metadata, count)


def _joined(columns: list[Column]) -> Column:
    if len(columns) == 1:
        return columns[0]
    levels = zip(*(column.counts for column in columns), strict=True)
    counts = tuple(np.concatenate(level) for level in levels)
    return Column(columns[0].name, np.concatenate([column.values for column in columns]), counts)
