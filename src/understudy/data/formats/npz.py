"""The npz format of understudy: plain arrays, read without pickle.

observations (N, obs)    lengths (episodes,)                                               always
actions (N, act) or (N,) of integers    without: only observations were recorded          nearly always
last_observations (episodes, obs) or next_observations (N, obs)                            optional
terminals (N,)    rewards (N,)                                                             optional
action_low, action_high (act,) or action_count () or action_counts (numbers,)              optional
horizon ()    env    ends                                                                  optional
mean_return, std_return ()    the expert's return, if there are no rewards                optional
obs_names, obs_sizes (parts,)    names and sizes of the parts of an observation           optional
successes (episodes,)    interventions (N,)    fps ()    action_units, origin ()           optional
task_names (tasks,), task_index (episodes,)    action_names (act,)                        optional

Usually the observation after a step is the next row of `observations`. If this holds bit for bit for all but the last
steps of episodes, only the final observations are written, as `last_observations`, which halves the file.

A file may come from a stranger. `core.reader` reads it: types, shapes and sizes first, no other members, no pickles.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from understudy.core.errors import DemonstrationError, RunError, SpecError
from understudy.core.memory import readable
from understudy.core.parts import LONGEST_NAME as LONGEST_PART
from understudy.core.parts import MOST_PARTS, Parts
from understudy.core.paths import checked_path
from understudy.core.reader import NUMBERS, TEXT, Expected, FileReader
from understudy.core.storage import write_npz
from understudy.core.text import is_line, quoted
from understudy.core.types import MOST_ACTIONS, MOST_STEPS, ActionSpace, Continuous, Discrete, MultiDiscrete
from understudy.data.checks import Checker
from understudy.data.demonstrations import Demonstrations, Ends
from understudy.data.details import LONGEST_TEXT, Details
from understudy.data.formats.base import Format, Selection, chosen

COMPRESSED = 100_000_000
"""Bytes of arrays up to which a file is compressed. Compressing more takes minutes, and loading it takes longer."""
REQUIRED = ("observations", "lengths")
LONGEST_NAME = 200
"""Characters of the environment's name."""
ROWS, NUMBER = Expected(NUMBERS, itemsize=4), Expected("fiu", most=64)
NAME = Expected(TEXT, most=4 * LONGEST_NAME)
LINE, LINES = Expected(TEXT, most=4 * LONGEST_TEXT), Expected(TEXT, most=64_000_000)
MEMBERS = {
    **dict.fromkeys(("observations", "actions", "next_observations", "last_observations", "rewards"), ROWS),
    "terminals": Expected(NUMBERS),
    "lengths": Expected(NUMBERS, itemsize=8),
    **dict.fromkeys(("action_low", "action_high"), Expected("fiu", itemsize=8)),
    "action_counts": Expected("iu", itemsize=8),
    **dict.fromkeys(("action_count", "horizon", "mean_return", "std_return", "return_episodes"), NUMBER),
    **dict.fromkeys(("env", "ends"), NAME),
    "obs_names": Expected(TEXT, (None,), most=4 * LONGEST_PART * MOST_PARTS),
    "obs_sizes": Expected("iu", (None,), most=8 * MOST_PARTS),
    **dict.fromkeys(("successes", "interventions"), Expected(NUMBERS, (None,))),
    **dict.fromkeys(("task_names", "action_names"), replace(LINES, shape=(None,))),
    "task_index": Expected("iu", (None,), itemsize=8),
    "fps": NUMBER,
    **dict.fromkeys(("action_units", "origin"), LINE),
}
"""The arrays that are read. Others are left alone."""
LARGEST_RETURN, MOST_EPISODES = 1e30, 1_000_000_000
SMALLEST_FPS, LARGEST_FPS = 1e-9, 1e9


def write(demonstrations: Demonstrations, path: Path, overwrite: bool = True) -> None:
    """Write an npz file of plain arrays. On an error no partial file is left."""
    arrays = members_of(demonstrations)
    compressed = sum(np.asarray(array).nbytes for array in arrays.values()) <= COMPRESSED
    write_npz(checked_path(path), arrays, overwrite, compressed)


def members_of(d: Demonstrations) -> dict[str, Any]:
    """Demonstrations as named arrays."""
    arrays: dict[str, Any] = {
        "observations": d.observations,
        "lengths": d.lengths,
        "horizon": d.horizon,
        "ends": d.ends,
    }
    if d.recorded_actions is not None:
        arrays["actions"] = d.recorded_actions
    if d.other_next is not None:
        arrays["next_observations"] = d.other_next
    elif d.last_observations is not None:
        arrays["last_observations"] = d.last_observations
    for key in ("terminals", "rewards", "env"):
        if getattr(d, key) is not None:
            arrays[key] = getattr(d, key)
    space = d.recorded_space
    if isinstance(space, MultiDiscrete):
        arrays["action_counts"] = np.array(space.nvec, np.int32)
    elif isinstance(space, Discrete):
        arrays["action_count"] = space.n
    elif space is not None and not d.bounds_from_data:
        arrays["action_low"], arrays["action_high"] = space.low, space.high
    if d.recorded_return is not None:
        arrays["mean_return"], arrays["std_return"], arrays["return_episodes"] = d.recorded_return
    return arrays | _facts(d)


def _facts(d: Demonstrations) -> dict[str, Any]:
    """The arrays of the names of observations and of the details."""
    arrays: dict[str, Any] = {}
    if d.obs_parts:
        names, sizes = zip(*d.obs_parts, strict=True)
        arrays |= {"obs_names": np.array(names), "obs_sizes": np.array(sizes)}
    for key in d.details.known:
        value = getattr(d.details, key)
        if key == "tasks":
            tasks = list(dict.fromkeys(value))
            numbers = {task: number for number, task in enumerate(tasks)}
            arrays |= {"task_names": np.array(tasks), "task_index": np.array([numbers[task] for task in value])}
        else:
            arrays[key] = np.array(value) if isinstance(value, tuple) else value
    for key in ("task_names", "action_names"):
        if key in arrays and arrays[key].nbytes > (LINES.most or 0):
            raise DemonstrationError(
                f"{key} takes {readable(arrays[key].nbytes)}, since all texts get the length of the longest: at most "
                f"{readable(LINES.most or 0)} can be written; shorten the longest"
            )
    return arrays


def read(path: Path, selection: Selection) -> Demonstrations:
    """Read an npz file of plain arrays."""
    file = FileReader(path, "a file of demonstrations", "see docs/demonstrations.md", DemonstrationError)
    check = Checker(file.name)
    arrays = file.npz(MEMBERS.get, REQUIRED, lambda headers: check.shapes({k: h.shape for k, h in headers.items()}))
    unknown = [] if "actions" in arrays else sorted(set(file.npz_names()) - set(MEMBERS))
    if unknown:  # one of them may be the actions
        raise check.error(
            f"it has no actions, but {quoted(', '.join(unknown))}: rename the actions, or drop the others"
        )
    return chosen(from_members(check, arrays, selection), selection, FORMAT)


def from_members(check: Checker, arrays: dict[str, np.ndarray], selection: Selection) -> Demonstrations:
    """Demonstrations from named arrays, which are kept without a copy where they can be."""
    recorded = None
    if "mean_return" in arrays and "std_return" in arrays:
        episodes = check.number("return_episodes", arrays, 1, MOST_EPISODES, whole=True)
        recorded = (
            check.number("mean_return", arrays, -LARGEST_RETURN, LARGEST_RETURN),
            check.number("std_return", arrays, 0, LARGEST_RETURN),
            arrays["lengths"].size if episodes is None else episodes,
        )
    return Demonstrations.from_arrays(
        arrays["observations"],
        arrays.get("actions"),
        arrays["lengths"],
        next_observations=arrays.get("next_observations"),
        last_observations=arrays.get("last_observations"),
        terminals=arrays.get("terminals"),
        rewards=arrays.get("rewards"),
        action_space=_space(check, arrays),
        horizon=check.number("horizon", arrays, 1, MOST_STEPS, whole=True),
        env=_text(check, arrays, "env"),
        ends=selection.ends or cast(Ends, _text(check, arrays, "ends") or "time_limit"),
        recorded_return=recorded,
        obs_parts=_parts(check, arrays),
        details=_details(check, arrays),
        source=check.source,
        copy=False,
    )


def _parts(check: Checker, arrays: dict[str, np.ndarray]) -> Parts:
    """The names and sizes of the parts of an observation."""
    names, sizes = arrays.get("obs_names"), arrays.get("obs_sizes")
    if names is None and sizes is None:
        return ()
    if names is None or sizes is None or len(names) != len(sizes):
        raise check.error("obs_names and obs_sizes must have the same length, one entry per part of an observation")
    return tuple(zip(names.tolist(), sizes.tolist(), strict=True))


def _details(check: Checker, arrays: dict[str, np.ndarray]) -> Details:
    """The facts that algorithms do not see. `Demonstrations.from_arrays` checks how many there are."""
    names, index, tasks = arrays.get("task_names"), arrays.get("task_index"), None
    if names is not None or index is not None:
        if names is None or index is None or not ((index >= 0) & (index < len(names))).all():
            raise check.error("task_index must have the number of each episode's task in task_names")
        tasks = tuple(names[index].tolist())
    action_names = arrays.get("action_names")
    return Details(
        successes=arrays.get("successes"),
        tasks=tasks,
        interventions=arrays.get("interventions"),
        action_names=None if action_names is None else tuple(action_names.tolist()),
        action_units=_text(check, arrays, "action_units"),
        fps=check.number("fps", arrays, SMALLEST_FPS, LARGEST_FPS),
        origin=_text(check, arrays, "origin"),
    )


def _space(check: Checker, arrays: dict[str, np.ndarray]) -> ActionSpace | None:
    """The action space in the file, or None."""
    given = [key for key in ("action_low", "action_high") if key in arrays]
    if len(given) == 1:
        raise check.error(f"it has only {given[0]}: store both action_low and action_high, or neither")
    count = check.number("action_count", arrays, 1, MOST_ACTIONS, whole=True)
    if count is not None:
        return Discrete(count)
    try:
        if "action_counts" in arrays:
            return MultiDiscrete(tuple(arrays["action_counts"].reshape(-1).tolist()))
        return Continuous(*(tuple(np.atleast_1d(arrays[key]).tolist()) for key in given)) if given else None
    except SpecError as error:
        raise check.error(quoted(error, 300)) from error


def _text(check: Checker, arrays: dict[str, np.ndarray], key: str) -> str | None:
    """A single line of printable text from the file, or None."""
    text = str(arrays[key].reshape(-1)[0]) if key in arrays else None
    if text is not None and not (text and is_line(text)):
        raise check.error(f"{key} is '{quoted(text)}': one line of printable text is needed")
    return text


def _recognises(path: Path) -> bool:
    """Whether a file is an npz file with the arrays that demonstrations need, and no others in place of actions."""
    try:
        names = set(FileReader(path, "an npz file", "").npz_names())
        return set(REQUIRED) <= names and ("actions" in names or names <= set(MEMBERS))
    except RunError:
        return False


FORMAT = Format("npz", "understudy npz", _recognises, read, write, suffix=".npz")
