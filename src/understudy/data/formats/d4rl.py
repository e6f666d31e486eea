"""D4RL's HDF5 files, read only: flat arrays of all episodes, one after the other.

observations (N, obs)    actions (N, act)                              always
rewards, terminals, timeouts (N,) or (N, 1)                            optional
next_observations (N, obs)                                             optional

An episode ends where `terminals` or `timeouts` is 1. Only `terminals` are absorbing. The steps after the last end are
an episode that was cut off. After a timeout the next row belongs to another episode: the observation there is only
known from `next_observations`.

A file without `timeouts` does not say where time limits cut its episodes, so it is read only if

  - its name begins with that of a D4RL task, whose time limit is known (`HORIZONS`): hopper_medium.hdf5, or
  - `ends="terminal"` is passed: episodes end only in terminal states.
"""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import DemonstrationError, SettingError, UnderstudyError
from understudy.core.hdf5 import Hdf5File, Hdf5Reader, is_hdf5
from understudy.core.hdf5_arrays import Stored
from understudy.core.text import quoted
from understudy.data.demonstrations import Demonstrations
from understudy.data.details import Details
from understudy.data.formats.base import Format, Selection
from understudy.data.formats.minari_hdf5 import MAIN
from understudy.data.formats.minari_metadata import METADATA

HORIZONS = dict.fromkeys(("hopper", "halfcheetah", "walker2d", "ant"), 1000)
"""Time limits of D4RL's tasks, by the first word of a file's name. Only their files come without timeouts."""
FLAT = ("rewards", "terminals", "timeouts")


def read(path: Path, selection: Selection) -> Demonstrations:
    """Read a D4RL file."""
    for name, given in (("keys", selection.keys), ("filter", selection.filter)):
        if given:
            raise SettingError(f"{name} is {quoted(repr(given))}: D4RL files have none")
    with _reader(path).hdf5() as file:
        stored = _declared(file)
        steps = stored["observations"].shape[0]
        terminals = _flags(file, stored, "terminals")
        ended, horizon = _ends(file, path, selection, terminals, _flags(file, stored, "timeouts"))
        wanted = selection.episodes
        if type(wanted) is int and 1 <= wanted <= len(ended):
            ended = ended[:wanted]
            steps = int(ended[-1]) + 1
        arrays: dict[str, Any] = {
            name: one.read(0, steps, np.float32 if one.dtype.kind == "f" else None)
            for name, one in stored.items()
            if name not in ("terminals", "timeouts")
        }
    lengths = np.diff(ended, prepend=-1)
    return Demonstrations.from_arrays(
        **arrays,
        lengths=lengths,
        terminals=None if terminals is None else terminals[:steps],
        horizon=None if horizon is None else max(horizon, int(lengths.max())),
        ends=selection.ends or "time_limit",
        details=Details(origin=quoted(path.stem)),
        source=quoted(path, 1000),
        copy=False,
    )


def _reader(path: Path) -> Hdf5Reader:
    return Hdf5Reader(path, "an HDF5 file of demonstrations", "see docs/demonstrations.md", DemonstrationError)


def _declared(file: Hdf5File) -> dict[str, Stored]:
    """The datasets, all with the same number of rows."""
    names = file.names()
    missing = [name for name in ("observations", "actions") if name not in names]
    if missing:
        hint = "; a Minari data set needs its metadata.json too" if "episode_0" in names else ""
        raise file.damaged(f"it has no {' and no '.join(missing)}, only {', '.join(names) or 'nothing'}{hint}")
    wanted = [name for name in ("observations", "actions", "next_observations", *FLAT) if name in names]
    stored = {name: file.dataset(name, itemsize=1 if name in FLAT[1:] else 4) for name in wanted}
    rows = stored["observations"].shape[0] if stored["observations"].shape else 0
    for name, one in stored.items():
        if rows == 0 or not one.shape or one.shape[0] != rows:
            raise file.damaged(f"'{name}' has shape {one.shape}, and 'observations' has {rows} rows")
        if 0 in one.shape or len(one.shape) > 2 or (name in FLAT and math.prod(one.shape) != rows):
            kind = "one number" if name in FLAT else "a row of numbers"
            raise file.damaged(f"'{name}' has shape {one.shape}, and {kind} per step is needed")
    return stored


def _flags(file: Hdf5File, stored: dict[str, Stored], name: str) -> np.ndarray | None:
    """A flag for each step, or None."""
    if name not in stored:
        return None
    values = stored[name].read().reshape(-1)
    if not np.isin(values, (0, 1)).all():
        raise file.damaged(f"'{name}' has other numbers than 0 and 1")
    return values.astype(bool)


def _ends(
    file: Hdf5File, path: Path, selection: Selection, terminals: np.ndarray | None, timeouts: np.ndarray | None
) -> tuple[np.ndarray, int | None]:
    """The last step of each episode, and the task's time limit if the name of the file has to say it."""
    known = [flags for flags in (terminals, timeouts) if flags is not None]
    if not known:
        raise file.damaged("it has neither terminals nor timeouts, so its episodes are unknown")
    ended = np.flatnonzero(np.logical_or.reduce(known))
    rows = len(known[0])
    if len(ended) == 0 or ended[-1] != rows - 1:  # the last episode was cut off
        ended = np.append(ended, rows - 1)
    if timeouts is not None or selection.ends == "terminal":
        return ended, None
    task, *others = re.split("[-_]", path.stem.lower())
    horizon = None if others[:1] == ["maze"] else HORIZONS.get(task)
    if horizon is None:
        raise DemonstrationError(
            f"'{file.name}' has no timeouts, so it does not say where a time limit cut its episodes: begin its name "
            f"with {', '.join(HORIZONS)} (1,000 steps), or pass ends='terminal' (--ends terminal) "
            "if all episodes end in terminal states"
        )
    return _cut(ended, horizon), horizon


def _cut(ended: np.ndarray, horizon: int) -> np.ndarray:
    """The last step of each episode if episodes longer than the time limit are cut into several."""
    lengths = np.diff(ended, prepend=-1)
    pieces = -(-lengths // horizon)
    first = np.repeat(ended - lengths, pieces)
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces) + 1
    return np.minimum(first + number * horizon, np.repeat(ended, pieces))


def _recognises(path: Path) -> bool:
    """Whether a file is HDF5 and not robomimic's. Other HDF5 files are then refused by `read`, with their names."""
    if not is_hdf5(path):
        return False
    try:
        with _reader(path).hdf5() as file:
            return not file.is_group("data") and not (path.name == MAIN and (path.parent / METADATA).exists())
    except UnderstudyError:
        return True


FORMAT = Format("d4rl", "D4RL", _recognises, read)
