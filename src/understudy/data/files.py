"""Demonstration files: npz files of plain arrays, read without pickle, and the bundled ones.

observations (N, obs)    actions (N, act) or (N,) of integers    lengths (episodes,)       always
last_observations (episodes, obs) or next_observations (N, obs)                            optional
terminals (N,)    rewards (N,)                                                             optional
action_low, action_high (act,) or action_count ()    horizon ()    env    ends             optional
mean_return, std_return ()    the expert's return, if there are no rewards                optional

Usually the observation after a step is the next row of `observations`. If this holds bit for bit for all but the last
steps of episodes, only the final observations are written, as `last_observations`, which halves the file.
"""

import os
import zipfile
from importlib import resources
from pathlib import Path
from typing import Any, cast

import numpy as np

from understudy.core.errors import DemonstrationError, SpecError, unknown
from understudy.core.storage import write_npz
from understudy.core.types import ActionSpace, Continuous, Discrete
from understudy.data.demonstrations import Demonstrations, Ends, shifted

REQUIRED = ("observations", "actions", "lengths")


def bundled() -> dict[str, Path]:
    """The bundled demonstrations: name → file."""
    folder = Path(str(resources.files("understudy.data") / "bundled"))
    return {path.stem: path for path in sorted(folder.glob("*.npz"))}


def load(name_or_path: str | os.PathLike[str], episodes: int | None = None, ends: Ends | None = None) -> Demonstrations:
    """Load bundled demonstrations by name, or an npz file. `episodes` keeps only the first ones.

    `ends` says how episodes end if the file does not: at a time limit (the default) or in a terminal state.
    """
    name = os.fspath(name_or_path)
    known = bundled()
    if name in known:
        path = known[name]
    elif Path(name).exists():
        path = Path(name)
    elif name.endswith(".npz") or os.sep in name:
        raise DemonstrationError(f"no file '{name}': check the path, or pass a bundled name ({', '.join(known)})")
    else:
        raise unknown("demonstrations", name, known, "Or pass the path of an npz file.")
    demonstrations = _read(path, ends)
    return demonstrations if episodes is None else demonstrations.first(episodes)


def save(demonstrations: Demonstrations, path: str | os.PathLike[str]) -> None:
    """Write an npz file of plain arrays. On an error no partial file is left."""
    d = demonstrations
    arrays: dict[str, Any] = {
        "observations": d.observations,
        "actions": d.actions,
        "lengths": d.lengths,
        "horizon": d.horizon,
        "ends": d.ends,
    }
    if d.next_observations is not None:
        last = d.next_observations[np.cumsum(d.lengths) - 1]
        repeated = shifted(d.observations, d.lengths, last).tobytes() == d.next_observations.tobytes()
        arrays |= {"last_observations": last} if repeated else {"next_observations": d.next_observations}
    for key in ("terminals", "rewards", "env"):
        if getattr(d, key) is not None:
            arrays[key] = getattr(d, key)
    if isinstance(d.action_space, Discrete):
        arrays["action_count"] = d.action_space.n
    elif not d.bounds_from_data:
        arrays["action_low"], arrays["action_high"] = d.action_space.low, d.action_space.high
    if d.recorded_return is not None:
        arrays["mean_return"], arrays["std_return"], arrays["return_episodes"] = d.recorded_return
    write_npz(Path(path), arrays)


def _read(path: Path, ends: Ends | None) -> Demonstrations:
    arrays = _arrays(path)
    missing = [key for key in REQUIRED if key not in arrays]
    if missing:
        has = ", ".join(sorted(arrays)) or "nothing"
        raise DemonstrationError(f"{path}: missing {', '.join(missing)} (it has {has}): see docs/demonstrations.md")
    stated = "mean_return" in arrays and "std_return" in arrays
    episodes = _number(path, arrays, "return_episodes", whole=True, default=np.size(arrays["lengths"]))
    return Demonstrations.from_arrays(
        arrays["observations"],
        arrays["actions"],
        arrays["lengths"],
        next_observations=arrays.get("next_observations"),
        last_observations=arrays.get("last_observations"),
        terminals=arrays.get("terminals"),
        rewards=arrays.get("rewards"),
        action_space=_space(path, arrays),
        horizon=_number(path, arrays, "horizon", whole=True),
        env=str(arrays["env"]) if "env" in arrays else None,
        ends=ends or cast(Ends, str(arrays.get("ends", "time_limit"))),
        recorded_return=(_number(path, arrays, "mean_return"), _number(path, arrays, "std_return"), episodes)
        if stated
        else None,
        source=str(path),
    )


def _space(path: Path, arrays: dict[str, np.ndarray]) -> ActionSpace | None:
    """The action space in the file, or None."""
    given = [key for key in ("action_low", "action_high") if key in arrays]
    if len(given) == 1:
        raise DemonstrationError(f"{path}: has only {given[0]}: store both action_low and action_high, or neither")
    try:
        if "action_count" in arrays:
            return Discrete(_number(path, arrays, "action_count", whole=True))
        if given:
            return Continuous(*(tuple(np.atleast_1d(arrays[key]).tolist()) for key in given))
    except SpecError as error:
        raise DemonstrationError(f"{path}: {error}") from error
    return None


def _number(path: Path, arrays: dict[str, np.ndarray], key: str, whole: bool = False, default: Any = None) -> Any:
    """A single finite number from the file."""
    if key not in arrays:
        return default
    value = arrays[key]
    if value.size != 1 or value.dtype.kind not in "fiu" or not np.isfinite(value).all():
        raise DemonstrationError(f"{path}: {key} is {value!r}: a single number is needed")
    number = value.item() if value.ndim == 0 else value.reshape(-1)[0].item()
    if whole and number != int(number):
        raise DemonstrationError(f"{path}: {key} is {number}: a whole number is needed")
    return int(number) if whole else float(number)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of the file. Raises for anything that would need unpickling."""
    try:
        file = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        what = "a directory" if path.is_dir() else "not an npz file of arrays"
        raise DemonstrationError(f"{path}: {what}: see docs/demonstrations.md for the file format") from error
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise DemonstrationError(f"{path}: a single array, not an npz file: save with np.savez(path, observations=...)")
    arrays = {}
    with file:
        for key in file.files:
            try:
                arrays[key] = file[key]
            except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
                raise DemonstrationError(
                    f"{path}: '{key}' cannot be read as a plain array (a pickled object, or a damaged file): "
                    "save plain numbers in rows of equal length, and the episodes' lengths"
                ) from error
    return arrays
