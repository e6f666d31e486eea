"""Plain NumPy files of other programs: an npz file, or a directory of npy files, with common names of arrays.

`ALIASES` has the names. Arrays are (N, ...) with the episodes concatenated, or (episodes, time, ...), where steps after
an episode's end are padding. Observations may have one row more per episode than actions: the final observations.
Without actions, every array must have a known name.

Arrays with the names of understudy's own npz format (`npz.MEMBERS`), such as action_low, are read too. `write` makes a
directory of npy files with those names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path

import numpy as np

from understudy.core.errors import DemonstrationError, UnderstudyError
from understudy.core.npy import NUMBERS, Expected, Header
from understudy.core.reader import FileReader, read_limit
from understudy.core.storage import atomic_directory
from understudy.core.text import quoted
from understudy.data.checks import Checker
from understudy.data.demonstrations import Demonstrations
from understudy.data.formats import npz
from understudy.data.formats.base import Format, Selection, chosen
from understudy.data.formats.episodes import Marks

ALIASES = {
    "observations": ("observations", "obs", "states", "observation", "state"),
    "actions": ("actions", "acts", "action"),
    "rewards": ("rewards", "rews", "reward"),
    "next_observations": ("next_observations", "next_obs", "next_states"),
    "last_observations": ("last_observations",),
    "lengths": ("lengths", "episode_lengths", "traj_lengths"),
    "episode_ends": ("episode_ends",),
    "episode_starts": ("episode_starts",),
    "episode_numbers": ("episode", "episode_index", "episode_id", "episode_ids"),
    "terminals": ("terminals", "terminated", "terminations", "terminal"),
    "timeouts": ("timeouts", "truncated", "truncations", "timeout"),
    "dones": ("dones", "done"),
    "successes": ("successes", "success"),
    "interventions": ("interventions", "intervention"),
}
"""Our names, and the names under which an array may be stored. The first one that is there is read."""
MARKS = tuple(field.name for field in fields(Marks))
STEPS = ("observations", "actions", "rewards", "next_observations", "interventions")
OTHERS = ("indices",)
"""Names of arrays that other formats have."""
MOST_FILES, MOST_AXES = 1000, 3


def read(path: Path, selection: Selection) -> Demonstrations:
    """Read an npz file or a directory of npy files."""
    file = FileReader(path, "a data set of plain arrays", "see docs/demonstrations.md", DemonstrationError)
    check = Checker(file.name)
    names = _names(file)
    found = {ours: name for ours, aliases in ALIASES.items() for name in reversed(aliases) if name in names}
    keys = _keys(check, selection.keys, names, found)
    for ours in ("observations", *(() if _known(names) else ("actions",))):
        if ours not in found:
            aliases = ", ".join(ALIASES[ours])
            raise check.error(f"it has no {ours} (under a name such as {aliases}), only {_listed(names)}")
    numbers = dict.fromkeys([*found.values(), *keys], Expected(NUMBERS, itemsize=4))
    own = {name: npz.MEMBERS[name] for name in names if name in npz.MEMBERS and name not in ALIASES}
    arrays = _read(file, numbers | own)
    data = {ours: arrays[name] for ours, name in found.items()}
    facts = {name: arrays[name] for name in own}
    if keys:
        data["observations"], sizes = _joined(check, {key: arrays[key] for key in keys})
        facts |= {"obs_names": np.array(keys), "obs_sizes": np.array(sizes)}
    steps = _steps(check, data, selection.episodes == 1)
    rest = replace(selection, keys=() if keys else selection.keys)
    return chosen(npz.from_members(check, facts | steps, selection), rest, FORMAT)


def _keys(check: Checker, keys: tuple[str, ...], names: list[str], found: dict[str, str]) -> tuple[str, ...]:
    """The arrays that make the observations, if keys name them. Next observations belong to others then."""
    if not keys or ("obs_names" in names and not set(keys) <= set(names)):  # none, or parts of the observations
        return ()
    missing = [key for key in keys if key not in names]
    if missing or len(set(keys)) < len(keys):
        raise check.error(f"keys is {quoted(list(keys))}: choose different arrays of {_listed(names)}")
    if keys != (found.get("observations"),):
        for name in ("next_observations", "last_observations"):
            found.pop(name, None)
        found["observations"] = keys[0]
    return keys


def _steps(check: Checker, data: dict[str, np.ndarray], single: bool) -> dict[str, np.ndarray]:
    """The arrays with the names and shapes of understudy's own format."""
    marks = Marks(**{name: data[name] for name in MARKS if name in data})
    data = {name: array for name, array in data.items() if name not in MARKS}
    obs, act = data["observations"], data.get("actions")
    for name, array in {"observations": obs, "actions": obs if act is None else act}.items():
        if not 1 <= array.ndim <= MOST_AXES or array.size == 0:
            raise check.error(f"{name} has shape {array.shape}: (steps, size) or (episodes, time, size) is needed")
    if obs.ndim == MOST_AXES and (act is None or (act.ndim > 1 and act.shape[0] == obs.shape[0])):
        data, marks = _concatenated(check, data, marks)
    else:
        data = _without_final(check, data, marks, single)
    terminal = marks.terminal()
    if terminal is not None:
        data["terminals"] = terminal
    if "successes" in data:
        success = data["successes"].reshape(-1)
        if len(success) == len(data["observations"]) != len(data["lengths"]):  # one per step
            starts = np.cumsum(data["lengths"]) - data["lengths"]
            success = np.logical_or.reduceat(success.astype(bool), starts)
        data["successes"] = success
    return data


def _joined(check: Checker, parts: Mapping[str, np.ndarray]) -> tuple[np.ndarray, list[int]]:
    """Arrays side by side, and the number of columns of each."""
    most = max(2, *(array.ndim for array in parts.values()))
    wide = [array if array.ndim == most else array[..., None] for array in parts.values()]
    if len({array.shape[:-1] for array in wide}) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in parts.items())
        raise check.error(f"the keys have the shapes {quoted(shapes)}: the same number of steps is needed")
    return np.concatenate([array.astype(np.float32) for array in wide], axis=-1), [array.shape[-1] for array in wide]


def _concatenated(check: Checker, data: dict[str, np.ndarray], marks: Marks) -> tuple[dict[str, np.ndarray], Marks]:
    """(episodes, time, ...) arrays as concatenated episodes, without the steps after each end."""
    obs = data["observations"]
    act = data.get("actions", obs)
    episodes, time = act.shape[:2]
    extra = obs.shape[1] - time
    for name, array in ((name, data[name]) for name in STEPS if name in data):
        if array.shape[:2] != (episodes, time + (extra if name == "observations" else 0)) or extra not in (0, 1):
            raise check.error(f"{name} has shape {array.shape}, actions have {act.shape}: the first two must agree")
    lengths = np.full(episodes, time)
    if marks.lengths is not None:
        lengths = np.asarray(marks.lengths).reshape(-1)
        if lengths.dtype.kind not in "iu" or lengths.shape != (episodes,) or ((lengths < 1) | (lengths > time)).any():
            raise check.error(f"lengths is {quoted(lengths.tolist())}: {episodes} numbers from 1 to {time} are needed")
    for name, flag in marks.flags.items():
        if flag.size != episodes * time:
            raise check.error(f"{name} has shape {flag.shape}: ({episodes}, {time}) is needed")
        ended = flag.reshape(episodes, time).astype(bool)
        if marks.lengths is None:
            lengths = np.where(ended.any(1), np.minimum(lengths, ended.argmax(1) + 1), lengths)
    inside = np.arange(time) < lengths[:, None]
    flat = {name: array[:, :time][inside] if name in STEPS else array for name, array in data.items()}
    if extra:
        flat["last_observations"] = obs[np.arange(episodes), lengths]
    flags = {name: flag.reshape(episodes, time)[inside] for name, flag in marks.flags.items()}
    return {**flat, "lengths": lengths}, Marks(**flags)


def _without_final(check: Checker, data: dict[str, np.ndarray], marks: Marks, single: bool) -> dict[str, np.ndarray]:
    """Concatenated episodes with their lengths. Final observations are taken out from between the others."""
    obs = data["observations"]
    steps = len(data.get("actions", obs))
    data = {**data, "lengths": marks.lengths_of(check, steps, single)}
    episodes = len(data["lengths"])
    if len(obs) == steps + episodes != steps:
        final = np.zeros(len(obs), bool)
        final[np.cumsum(data["lengths"] + 1) - 1] = True
        data |= {"observations": obs[~final], "last_observations": obs[final]}
    check.shapes({name: data[name].shape for name in STEPS if name in data})
    return data


def _known(names: Iterable[str]) -> bool:
    """Whether every array has a known name. Otherwise one of them may be the actions."""
    return set(names) <= {*chain(*ALIASES.values()), *npz.MEMBERS}


def _names(file: FileReader) -> list[str]:
    if not file.path.is_dir():
        return file.npz_names()
    return [entry.stem for entry in sorted(file.path.glob("*.npy"))[:MOST_FILES]]


def _read(file: FileReader, wanted: Mapping[str, Expected]) -> dict[str, np.ndarray]:
    """The arrays of a file or directory."""
    if not file.path.is_dir():
        return file.npz(wanted.get)
    files = {name: FileReader(file.path / f"{name}.npy", file.what, file.remedy, file.kind) for name in wanted}
    headers: dict[str, Header] = {}
    for name, one in files.items():
        if one.path.is_symlink():
            raise one.damaged("a link, which may lead elsewhere")
        headers[name] = one.npy_header(wanted[name])
    total = sum(headers[name].converted(want) for name, want in wanted.items())
    file.check_total(total, read_limit(sum(header.size for header in headers.values())))
    return {name: one.npy(wanted[name]) for name, one in files.items()}


def _listed(names: list[str]) -> str:
    return quoted(", ".join(sorted(names)) or "nothing")


def write(demonstrations: Demonstrations, path: Path, overwrite: bool = True) -> None:
    """Write a directory of npy files. With `overwrite`, only a directory with such files is replaced."""
    own = [f"{name}.npy" for name in npz.MEMBERS] if overwrite else ()
    with atomic_directory(path, own) as folder:
        for name, array in npz.members_of(demonstrations).items():
            np.save(folder / f"{name}.npy", np.asarray(array), allow_pickle=False)


def _recognises(path: Path) -> bool:
    try:
        names = set(_names(FileReader(path, "an npz file", "")))
    except (UnderstudyError, OSError):
        return False
    needed = all(names & set(ALIASES[ours]) for ours in ("observations", *(() if _known(names) else ("actions",))))
    return needed and not names & set(OTHERS) and (path.is_dir() or not npz.FORMAT.recognises(path))


FORMAT = Format("arrays", "plain NumPy", _recognises, read, write)
