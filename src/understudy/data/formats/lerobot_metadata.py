"""What a LeRobot data set says about itself: meta/info.json and its list of episodes.

v3.0: meta/episodes/*/*.parquet    several episodes in one data file
v2.1: meta/episodes.jsonl          one data file for each episode
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from understudy.core.columns import Want
from understudy.core.errors import DemonstrationError, unknown
from understudy.core.folder import Folder, Refused
from understudy.core.parquet import parquet_blocks
from understudy.core.text import is_line, quoted
from understudy.core.types import MOST_STEPS
from understudy.data.details import LONGEST_TEXT

INFO, EPISODES, EPISODE_LINES = "meta/info.json", "meta/episodes", "meta/episodes.jsonl"
DATA_PATHS = {
    "v3.0": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
    "v2.1": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
    "v2.0": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
}
"""The only patterns of data files that are accepted, by version. LeRobot writes no others."""
NUMBERS = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool")
BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "index", "task_index")
STATE, ENVIRONMENT_STATE, ACTION = "observation.state", "observation.environment_state", "action"
WIDEST = 100_000
"""Numbers of a feature."""
MOST_EPISODES, LARGEST_INDEX = 1_000_000, 10**9
PATTERN = {
    "codebase_version": str,
    "data_path": str,
    "features": {str: {"dtype": str, "shape": [int], "names?": object}},
    "fps?": (float, None),
    "splits?": {str: str},
    "chunks_size?": int,
    "total_episodes?": int,
}
LINE = {"episode_index": int, "length": int, "tasks?": [str]}


class Feature(NamedTuple):
    """One column of numbers."""

    name: str
    dtype: str
    size: int
    names: tuple[str, ...] | None
    """The name of each number, if known."""


class EpisodeRow(NamedTuple):
    """One episode."""

    number: int
    length: int
    tasks: tuple[str, ...]
    file: str
    """The data file with its frames."""


@dataclass(frozen=True)
class Info:
    """What meta/info.json says, checked."""

    folder: Folder
    version: str
    features: dict[str, Feature]
    """The features of plain numbers."""
    others: tuple[str, ...]
    """Images, videos, text and arrays of several axes."""
    fps: float | None
    splits: dict[str, str]
    chunks_size: int
    declared: int | None
    """The number of episodes, as declared."""

    def observed(self, keys: tuple[str, ...]) -> list[Feature]:
        """The features of the observation: the chosen ones, or the state and the state of the environment."""
        known = [name for name in self.features if name != ACTION and name not in BOOKKEEPING]
        for key in keys:
            if key in self.others:
                raise DemonstrationError(
                    f"'{self.folder.name}': '{quoted(key)}' is no row of numbers, and images are not supported yet: "
                    f"choose keys from {quoted(', '.join(known), 300)}"
                )
            if key not in known:
                raise unknown("observation key", quoted(key), known, where=self.folder.name)
        if len(set(keys)) < len(keys):
            raise DemonstrationError(f"'{self.folder.name}': keys are {quoted(keys)}: name each of them once")
        chosen = keys or tuple(name for name in (STATE, ENVIRONMENT_STATE) if name in self.features)
        if not chosen:
            raise DemonstrationError(
                f"'{self.folder.name}' has neither {STATE} nor {ENVIRONMENT_STATE}: choose keys from "
                f"{quoted(', '.join(known) or 'nothing', 300)}; images are not supported yet"
            )
        return [self.features[name] for name in chosen]

    def episodes(self) -> list[EpisodeRow]:
        """All episodes, by their index."""
        rows = list(_parquet_rows(self) if self.version == "v3.0" else _json_rows(self))
        rows.sort(key=lambda row: row.number)
        for before, row in pairwise(rows):
            if before.number == row.number:
                raise self.folder.damaged(f"episode {row.number} is listed twice")
        if not rows or (self.declared is not None and self.declared != len(rows)):
            raise self.folder.damaged(f"it lists {len(rows)} episodes, and info.json declares {self.declared}")
        if sum(row.length for row in rows) > LARGEST_INDEX:
            raise self.folder.damaged(f"its episodes have more than {LARGEST_INDEX} frames")
        return rows


def read_info(path: Path) -> Info:
    """meta/info.json of a data set, checked."""
    folder = Folder(path, "a LeRobot data set", "see docs/demonstrations.md", DemonstrationError)
    file = folder.file(INFO)
    info = file.json(PATTERN)
    version = info["codebase_version"]
    if version not in DATA_PATHS:
        raise file.damaged(f"its version is '{quoted(version, 40)}', and {', '.join(DATA_PATHS)} are read")
    if info["data_path"] != DATA_PATHS[version]:
        raise file.damaged(f"its data_path is '{quoted(info['data_path'])}', not '{DATA_PATHS[version]}'")
    plain = {name: one for name, one in info["features"].items() if _is_plain(one)}
    if ACTION not in plain:
        raise file.damaged(f"it has no feature '{ACTION}' of numbers, only {', '.join(plain) or 'none'}")
    chunks_size, fps = info.get("chunks_size", 1000), info.get("fps")
    if not 1 <= chunks_size <= LARGEST_INDEX or (fps is not None and not 0 < fps < math.inf):
        raise file.damaged(f"its chunks_size is {quoted(chunks_size)} and its fps {quoted(fps)}")
    return Info(
        folder,
        version,
        {name: Feature(name, one["dtype"], one["shape"][0], _names(one)) for name, one in plain.items()},
        tuple(name for name in info["features"] if name not in plain),
        fps,
        info.get("splits", {}),
        chunks_size,
        info.get("total_episodes"),
    )


def _is_plain(feature: dict[str, Any]) -> bool:
    return feature["dtype"] in NUMBERS and len(feature["shape"]) == 1 and 1 <= feature["shape"][0] <= WIDEST


def _names(feature: dict[str, Any]) -> tuple[str, ...] | None:
    """The names of a feature's numbers: a list, or lists by axis such as {"motors": [...]}; None: unknown."""
    names = feature.get("names")
    if isinstance(names, dict) and len(names) == 1:
        names = next(iter(names.values()))
    if not isinstance(names, list) or len(names) != feature["shape"][0]:
        return None
    return tuple(names) if all(is_line(name, LONGEST_TEXT) and name for name in names) else None


def _parquet_rows(info: Info) -> Iterator[EpisodeRow]:
    wants = [Want((name,)) for name in ("episode_index", "length", "data/chunk_index", "data/file_index")]
    wants.append(Want(("tasks",), text=True, optional=True))
    folder = info.folder
    for chunk in folder.names(EPISODES):
        for name in folder.names(f"{EPISODES}/{chunk}"):
            path = f"{EPISODES}/{chunk}/{name}"
            if not name.endswith(".parquet"):
                continue
            for block in parquet_blocks(folder, path, wants):
                with folder.reading(path):
                    numbers = [_whole(block[want.name].flat(), want.name) for want in wants[:4]]
                    tasks = _tasks(block, len(numbers[0]))
                for row, named in zip(zip(*numbers, strict=True), tasks, strict=True):
                    data = f"data/chunk-{row[2]:03d}/file-{row[3]:03d}.parquet"
                    yield _row(info, row[0], row[1], named, data)


def _whole(values: np.ndarray, name: str) -> list[int]:
    if values.dtype.kind not in "iu" or ((values < 0) | (values > LARGEST_INDEX)).any() or len(values) > MOST_EPISODES:
        raise Refused(f"'{name}' has numbers that are no indices")
    return values.tolist()


def _tasks(block: dict[str, Any], rows: int) -> list[tuple[str, ...]]:
    if "tasks" not in block:
        return [()] * rows
    column = block["tasks"]
    if len(column.counts) != 1:
        raise Refused("'tasks' is not a list of texts")
    ends = np.cumsum(column.counts[0])
    return [tuple(column.values[a:b]) for a, b in zip(ends - column.counts[0], ends, strict=True)]


def _json_rows(info: Info) -> Iterator[EpisodeRow]:
    file = info.folder.file(EPISODE_LINES)
    for line in file.text().splitlines():
        if line.strip():
            row = file.parse_json(line, LINE)
            if not 0 <= row["episode_index"] <= LARGEST_INDEX:
                raise file.damaged(f"it has an episode {quoted(row['episode_index'])}")
            index, chunk = row["episode_index"], row["episode_index"] // info.chunks_size
            data = f"data/chunk-{chunk:03d}/episode_{index:06d}.parquet"
            yield _row(info, index, row["length"], tuple(row.get("tasks", ())), data)


def _row(info: Info, index: int, length: int, tasks: tuple[str, ...], file: str) -> EpisodeRow:
    if not 1 <= length <= MOST_STEPS:
        raise info.folder.damaged(f"episode {index} has {quoted(length)} frames, and 1 to {MOST_STEPS} are allowed")
    return EpisodeRow(index, length, tasks, file)
