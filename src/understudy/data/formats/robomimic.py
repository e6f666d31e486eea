"""robomimic's HDF5 files, read only.

data                                   attribute env_args: JSON with env_name
data/demo_k/actions, rewards, dones    T rows
data/demo_k/obs/KEY, next_obs/KEY      T rows
mask/FILTER                            names of demos, such as those of "train" and "valid"

Observations: the keys that are asked for, in this order; by default all keys with one row of numbers per step, sorted.
Images and other keys are then left out, and `details.origin` names them. The last row of `next_obs` is the final
observation.

`dones` says that the task is solved, or that the demonstration ends, or both, as the file was converted. The
environments go on in either case, so no state is absorbing: `terminals` stays unknown, and episodes end at a time limit
unless `ends="terminal"` is passed.

Success: if all rewards are 0 or 1 and some demonstration has a 1, an episode whose last reward is 1 is a success.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import DemonstrationError, UnderstudyError, unknown
from understudy.core.hdf5 import Hdf5File, Hdf5Reader, is_hdf5
from understudy.core.hdf5_arrays import Stored
from understudy.core.spaces import SMALLEST_IMAGE
from understudy.core.text import is_line, quoted
from understudy.core.types import Continuous
from understudy.data.demonstrations import Demonstrations
from understudy.data.details import LONGEST_TEXT, Details
from understudy.data.formats.base import Format, Selection

LONGEST_NAME = 200
UNITS = "normalized to [-1, 1]"
Demo = dict[str, Any]
"""The declared datasets of one demonstration."""


def read(path: Path, selection: Selection) -> Demonstrations:
    """Read a robomimic file."""
    with _reader(path).hdf5("env_args") as file:
        demos = _demos(file, selection)
        keys, left_out = _keys(file, demos[0], selection.keys)
        declared = [_declared(file, demo, keys) for demo in demos]
        arrays = _arrays(declared)
        env = _env(file)
    if np.abs(arrays["actions"]).max(initial=0) <= 1:
        low, units = tuple(-1.0 for _ in range(arrays["actions"].shape[1])), UNITS
        space = Continuous(low, tuple(-bound for bound in low))
    else:
        space, units = None, None
    origin = f"robomimic {env or path.stem}" + (f", without {', '.join(left_out)}" if left_out else "")
    return Demonstrations.from_arrays(
        **arrays,
        action_space=space,
        env=env,
        ends=selection.ends or "time_limit",
        obs_parts=tuple(zip(keys, (_width(one) for one in declared[0]["obs"]), strict=True)),
        details=Details(
            successes=_successes(arrays["rewards"], arrays["lengths"]),
            action_units=units,
            origin=quoted(origin, LONGEST_TEXT),
        ),
        source=quoted(path, 1000),
        copy=False,
    )


def _reader(path: Path) -> Hdf5Reader:
    return Hdf5Reader(path, "a robomimic file", "see docs/demonstrations.md", DemonstrationError)


def _demos(file: Hdf5File, selection: Selection) -> list[str]:
    """The names of the chosen demonstrations, in natural order: demo_2 before demo_10."""
    known = sorted((name for name in file.names("data") if file.is_group(f"data/{name}")), key=_natural)
    if selection.filter is not None:
        filters = file.names("mask") if file.has("mask") else []
        if selection.filter not in filters:
            raise unknown("filter", quoted(selection.filter), [quoted(name) for name in filters], where=file.name)
        chosen = set(file.texts(f"mask/{selection.filter}"))
        missing = sorted(chosen - set(known), key=_natural)
        if missing:
            raise file.damaged(f"the filter '{selection.filter}' names '{missing[0]}', which is not there")
        known = [name for name in known if name in chosen]
    if not known:
        raise file.damaged("it has no demonstrations")
    wanted = selection.episodes
    return known[:wanted] if type(wanted) is int and wanted >= 1 else known


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Compare numbers in names as numbers."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(1, int(part), "") if i % 2 else (0, 0, part) for i, part in enumerate(parts)]


def _keys(file: Hdf5File, demo: str, wanted: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The observation keys to read, and those that are left out by default."""
    if not file.has(f"data/{demo}/obs"):
        raise file.damaged(
            f"'data/{demo}' has no observations; robomimic's dataset_states_to_obs.py adds them to states"
        )
    known = file.names(f"data/{demo}/obs")
    for key in wanted:
        if key not in known:
            raise unknown("observation key", quoted(key), [quoted(name) for name in known], where=file.name)
        shape, kind = file.declared(f"data/{demo}/obs/{key}")
        if _is_image(shape, kind):
            raise DemonstrationError(
                f"'{file.name}' has the image '{quoted(key)}' of shape {shape[1:]}: choose other keys"
            )
    if wanted:
        return list(dict.fromkeys(wanted)), []
    shapes = {name: file.declared(f"data/{demo}/obs/{name}")[0] for name in known}
    rows = [name for name, shape in shapes.items() if len(shape) in (1, 2)]
    if not rows:
        raise file.damaged(f"none of the observations {', '.join(known)} is a row of numbers per step")
    return rows, [name for name in known if name not in rows]


def _is_image(shape: tuple[int, ...], dtype: np.dtype) -> bool:
    return len(shape) in (3, 4) and dtype == np.uint8 and sorted(shape[1:])[-2] >= SMALLEST_IMAGE


def _declared(file: Hdf5File, demo: str, keys: list[str]) -> Demo:
    """The datasets of a demonstration. All must have the same number of rows."""
    place = f"data/{demo}"
    found: Demo = {"actions": file.dataset(f"{place}/actions"), "rewards": None, "next": None}
    rows = found["actions"].shape[0] if found["actions"].shape else 0
    found["obs"] = [file.dataset(f"{place}/obs/{key}") for key in keys]
    if file.has(f"{place}/rewards"):
        found["rewards"] = file.dataset(f"{place}/rewards")
    if file.has(f"{place}/next_obs"):
        found["next"] = [file.dataset(f"{place}/next_obs/{key}", rows=1) for key in keys]
    several = [
        found["actions"],
        *found["obs"],
        *(found["next"] or []),
        *([found["rewards"]] if found["rewards"] else []),
    ]
    for one in several:
        if rows == 0 or not one.shape or one.shape[0] != rows:
            raise file.damaged(f"'{one.path}' has shape {one.shape}, and '{place}/actions' has {rows} rows")
    return found


def _arrays(declared: list[Demo]) -> dict[str, Any]:
    """The arrays of all demonstrations, one after the other."""
    first = declared[0]
    sizes = [_width(one) for one in first["obs"]]
    lengths = np.array([demo["actions"].shape[0] for demo in declared])
    steps = int(lengths.sum())
    rewarded = all(demo["rewards"] is not None for demo in declared)
    followed = all(demo["next"] is not None for demo in declared)
    observations = np.empty((steps, sum(sizes)), np.float32)
    actions = np.empty((steps, _width(first["actions"])), np.float32)
    last = np.empty((len(declared), sum(sizes)), np.float32) if followed else None
    rewards = np.empty(steps, np.float32) if rewarded else None
    start = 0
    for index, (demo, length) in enumerate(zip(declared, lengths.tolist(), strict=True)):
        rows = slice(start, start + length)
        actions[rows] = _rows(demo["actions"], actions.shape[1])
        if rewards is not None:
            rewards[rows] = _rows(demo["rewards"], 1)[:, 0]
        column = 0
        for place, size in enumerate(sizes):
            columns = slice(column, column + size)
            observations[rows, columns] = _rows(demo["obs"][place], size)
            if last is not None:
                last[index, columns] = _rows(demo["next"][place], size, length - 1)[0]
            column += size
        start += length
    return {
        "observations": observations,
        "actions": actions,
        "lengths": lengths,
        "rewards": rewards,
        "last_observations": last,
    }


def _width(stored: Stored) -> int:
    """Numbers of one row."""
    return math.prod(stored.shape[1:])


def _rows(stored: Stored, size: int, start: int = 0) -> np.ndarray:
    """Rows of a dataset, flat, in float32. Raises unless they have `size` numbers, as in the first demonstration."""
    if _width(stored) != size or size == 0:
        raise stored.damaged(f"'{stored.path}' has {_width(stored)} numbers per step, and {size} are needed")
    rows = stored.read(start, dtype=np.float32)
    return rows.reshape(len(rows), size)


def _successes(rewards: np.ndarray | None, lengths: np.ndarray) -> np.ndarray | None:
    if rewards is None or not np.isin(rewards, (0, 1)).all() or not rewards.any():
        return None
    return rewards[np.cumsum(lengths) - 1] == 1


def _env(file: Hdf5File) -> str | None:
    """The environment's name."""
    text = file.attribute("data", "env_args")
    name = json.loads(text).get("env_name") if text is not None else None
    if not (name is None or (name and is_line(name, LONGEST_NAME))):
        raise file.damaged(f"env_name is '{quoted(repr(name))}', not one line of printable text")
    return name


def _recognises(path: Path) -> bool:
    """Whether an HDF5 file has a group `data`."""
    if not is_hdf5(path):
        return False
    try:
        with _reader(path).hdf5() as file:
            return file.is_group("data")
    except UnderstudyError:
        return False


FORMAT = Format("robomimic", "robomimic", _recognises, read)
