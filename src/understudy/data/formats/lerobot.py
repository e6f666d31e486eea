"""LeRobot data sets, v3.0 (read and written) and v2.1 (read): Parquet files of frames, read with pyarrow alone.

Observations are `observation.state` and `observation.environment_state`, or the features that `keys` names. Images and
videos are left out. Kept: rewards (next.reward), success, tasks, interventions, the names of the action's numbers and
the frame rate. LeRobot stores no observation after the last frame of an episode.

next.done marks the end of an episode, whatever its reason. With next.truncated, an end that is not a truncation is
terminal. Without it the reason is unknown, and `ends` decides.

`filter` is the name of a split in info.json ("train": "0:50"), or the text of a task.
"""

import re
from pathlib import Path

import numpy as np

from understudy.core import display
from understudy.core.columns import Column, Want
from understudy.core.errors import unknown
from understudy.core.folder import Refused
from understudy.core.parquet import parquet_blocks
from understudy.core.text import quoted, shortened
from understudy.data.demonstrations import Demonstrations
from understudy.data.details import LONGEST_TEXT, Details
from understudy.data.formats.base import Format, Selection
from understudy.data.formats.lerobot_metadata import ACTION, INFO, EpisodeRow, Feature, Info, read_info
from understudy.data.formats.lerobot_writer import write

REWARD, DONE, TRUNCATED, SUCCESS = "next.reward", "next.done", "next.truncated", "next.success"
INTERVENTION = "intervention"
PLACES = ("episode_index", "frame_index")
NUMBER, STEP = 4, 16
"""Bytes of a number, and of a step besides its numbers."""
SHOWN = 50
"""Names of splits and tasks that are compared with a wrong one."""


def read(path: Path, selection: Selection) -> Demonstrations:
    """Read a LeRobot data set: a directory with meta/info.json."""
    info = read_info(path)
    observed = info.observed(selection.keys)
    listed = info.episodes()
    rows = _chosen(info, listed, selection)
    single = [name for name in (REWARD, DONE, TRUNCATED, SUCCESS, INTERVENTION) if name in info.features]
    needed = dict.fromkeys([*(one.name for one in observed), ACTION, *single])
    features = [info.features[name] for name in needed]
    frames = _frames(info, rows, features, stop=len(rows) < len(listed))
    observations = [frames[one.name] for one in observed]
    if not selection.keys:
        _name_left_out(info, observed)
    lengths = np.array([row.length for row in rows])
    return Demonstrations.from_arrays(
        observations[0] if len(observations) == 1 else np.concatenate(observations, axis=1),
        frames[ACTION],
        lengths,
        rewards=frames.get(REWARD),
        terminals=_terminals(info, frames),
        ends=selection.ends or "time_limit",
        obs_parts=tuple((one.name, one.size) for one in observed),
        details=_details(info, rows, frames, lengths),
        source=info.folder.name,
        copy=False,
    )


def _name_left_out(info: Info, observed: list[Feature]) -> None:
    """Say which observations are not read by default."""
    chosen = [one.name for one in observed]
    others = [name for name in info.features if name.startswith("observation") and name not in chosen]
    for names, why in ((others, "`keys` chooses others"), (info.others, "only rows of numbers are read")):
        if names:
            display.warn(f"{info.folder.name}: left out {quoted(', '.join(names), 300)}; {why}")


def _chosen(info: Info, listed: list[EpisodeRow], selection: Selection) -> list[EpisodeRow]:
    """The episodes to read: of a split or a task, and only the first ones."""
    rows, name = listed, selection.filter
    if name is not None and name in info.splits:
        bounds = re.fullmatch(r"(\d{1,9}):(\d{1,9})", info.splits[name])
        if bounds is None:
            raise info.folder.damaged(f"its split '{quoted(name)}' is '{quoted(info.splits[name])}', not '0:50'")
        rows = [row for row in rows if int(bounds[1]) <= row.number < int(bounds[2])]
        if not rows:
            raise info.folder.damaged(f"its split '{quoted(name)}' has no episodes")
    elif name is not None:
        rows = [row for row in rows if name in row.tasks]
    if not rows:
        known = {*info.splits, *(task for row in listed for task in row.tasks)}
        raise unknown("split or task", quoted(name), map(quoted, sorted(known)[:SHOWN]), where=info.folder.name)
    some = type(selection.episodes) is int and selection.episodes >= 1
    return rows[: selection.episodes] if some else rows


def _frames(info: Info, rows: list[EpisodeRow], features: list[Feature], stop: bool) -> dict[str, np.ndarray]:
    """The frames of some episodes, each at its place, as (steps, size) arrays. `stop`: leave unneeded frames unread."""
    folder, lengths = info.folder, np.array([row.length for row in rows])
    starts, steps = np.cumsum(lengths) - lengths, int(lengths.sum())
    indices = np.array([row.number for row in rows])
    missing: dict[str, int] = {}
    for row in rows:
        missing[row.file] = missing.get(row.file, 0) + row.length
    for name in missing:
        folder.weigh(name)
    folder.reserve(INFO, steps * (STEP + sum(NUMBER * one.size for one in features)))
    frames: dict[str, np.ndarray] = {}
    seen = np.zeros(steps, bool)
    wants = [*(Want((name,)) for name in PLACES), *(Want((one.name,)) for one in features)]
    for name in missing:
        for block in parquet_blocks(folder, name, wants):
            with folder.reading(name):
                keep, places = _places(block, indices, lengths, starts)
                if seen[places].any() or len(np.unique(places)) < len(places):
                    raise Refused("a frame is there twice")
                seen[places] = True
                for one in features if len(places) else ():
                    _put(frames, one, block[one.name], keep, places, steps)
            missing[name] -= len(places)
            if stop and missing[name] <= 0:
                break
    if not seen.all():
        episode = int(np.searchsorted(starts, np.flatnonzero(~seen)[0], side="right")) - 1
        raise folder.damaged(f"episode {indices[episode]} lacks frames; {int((~seen).sum())} are missing in all")
    return frames


def _places(
    block: dict[str, Column], indices: np.ndarray, lengths: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of a block are wanted, and the steps that they are."""
    episode, frame = (block[name].flat() for name in PLACES)
    if episode.dtype.kind not in "iu" or frame.dtype.kind not in "iu":
        raise Refused("episode_index and frame_index are not whole numbers")
    episode, frame = episode.astype(np.int64), frame.astype(np.int64)
    at = np.clip(np.searchsorted(indices, episode), 0, len(indices) - 1)
    keep = indices[at] == episode
    at, frame = at[keep], frame[keep]
    bad = (frame < 0) | (frame >= lengths[at])
    if bad.any():
        raise Refused(f"episode {episode[keep][bad][0]} has a frame {frame[bad][0]}, beyond its declared length")
    return keep, starts[at] + frame


def _put(
    frames: dict[str, np.ndarray], one: Feature, column: Column, keep: np.ndarray, places: np.ndarray, steps: int
) -> None:
    """Copy a block of a feature to its places."""
    table = column.table()
    if table.shape[1] != one.size:
        raise Refused(f"'{one.name}' has {table.shape[1]} numbers in a row, and info.json declares {one.size}")
    whole = one.dtype not in ("float32", "float64")
    if whole and table.dtype.kind == "f":
        raise Refused(f"'{one.name}' has real numbers, and info.json declares {one.dtype}")
    if one.name not in frames:
        discrete = one.name == ACTION and whole and one.size == 1
        frames[one.name] = np.empty((steps, one.size), np.int64 if discrete else np.float32)
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # too large numbers become infinite, and are refused with their place
        frames[one.name][places] = table[keep]


def _terminals(info: Info, frames: dict[str, np.ndarray]) -> np.ndarray | None:
    """Steps after which the state is absorbing; None: unknown."""
    if DONE not in frames or TRUNCATED not in frames:
        return None
    return (_flags(info, frames, DONE) & ~_flags(info, frames, TRUNCATED)).reshape(-1)


def _flags(info: Info, frames: dict[str, np.ndarray], name: str) -> np.ndarray:
    if not np.isin(frames[name], (0, 1)).all() or frames[name].shape[1] != 1:
        raise info.folder.damaged(f"'{name}' is not True or False in every frame")
    return frames[name][:, 0] != 0


def _details(info: Info, rows: list[EpisodeRow], frames: dict[str, np.ndarray], lengths: np.ndarray) -> Details:
    successes = None
    if SUCCESS in frames:
        successes = np.logical_or.reduceat(_flags(info, frames, SUCCESS), np.cumsum(lengths) - lengths)
    tasks = tuple(shortened(quoted("; ".join(row.tasks), LONGEST_TEXT), LONGEST_TEXT) for row in rows)
    return Details(
        successes=successes,
        tasks=tasks if any(tasks) else None,
        interventions=_flags(info, frames, INTERVENTION) if INTERVENTION in frames else None,
        action_names=info.features[ACTION].names,
        fps=info.fps,
    )


def _recognises(path: Path) -> bool:
    """Whether a directory has LeRobot's meta/info.json and data."""
    try:
        return (path / INFO).is_file() and (path / "data").is_dir()
    except OSError:
        return False


FORMAT = Format("lerobot", "LeRobot", _recognises, read, write)
