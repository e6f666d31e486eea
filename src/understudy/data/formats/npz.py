"""The npz format of understudy: plain arrays, read without pickle.

observations (N, obs)    actions (N, act) or (N,) of integers    lengths (episodes,)       always
last_observations (episodes, obs) or next_observations (N, obs)                            optional
terminals (N,)    rewards (N,)                                                             optional
action_low, action_high (act,) or action_count () or action_counts (numbers,)              optional
horizon ()    env    ends                                                                  optional
mean_return, std_return ()    the expert's return, if there are no rewards                optional

Usually the observation after a step is the next row of `observations`. If this holds bit for bit for all but the last
steps of episodes, only the final observations are written, as `last_observations`, which halves the file.

A file may come from a stranger. `core.reader` reads it: types, shapes and sizes first, no other members, no pickles.
"""

from pathlib import Path
from typing import Any, cast

import numpy as np

from understudy.core.errors import DemonstrationError, RunError, SpecError
from understudy.core.paths import checked_path
from understudy.core.reader import NUMBERS, TEXT, Expected, FileReader
from understudy.core.storage import write_npz
from understudy.core.text import is_line, quoted
from understudy.core.types import MOST_ACTIONS, MOST_STEPS, ActionSpace, Continuous, Discrete, MultiDiscrete
from understudy.data.checks import Checker
from understudy.data.demonstrations import Demonstrations, Ends, shifted
from understudy.data.formats.base import Format, Selection

REQUIRED = ("observations", "actions", "lengths")
LONGEST_NAME = 200
"""Characters of the environment's name."""
ROWS, NUMBER = Expected(NUMBERS, itemsize=4), Expected("fiu", most=64)
NAME = Expected(TEXT, most=4 * LONGEST_NAME)
MEMBERS = {
    **dict.fromkeys(("observations", "actions", "next_observations", "last_observations", "rewards"), ROWS),
    "terminals": Expected(NUMBERS),
    "lengths": Expected(NUMBERS, itemsize=8),
    **dict.fromkeys(("action_low", "action_high"), Expected("fiu", itemsize=8)),
    "action_counts": Expected("iu", itemsize=8),
    **dict.fromkeys(("action_count", "horizon", "mean_return", "std_return", "return_episodes"), NUMBER),
    **dict.fromkeys(("env", "ends"), NAME),
}
"""The arrays that are read. Others are left alone."""
LARGEST_RETURN, MOST_EPISODES = 1e30, 1_000_000_000


def write(demonstrations: Demonstrations, path: Path, replace: bool = True) -> None:
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
    if isinstance(d.action_space, MultiDiscrete):
        arrays["action_counts"] = np.array(d.action_space.nvec, np.int32)
    elif isinstance(d.action_space, Discrete):
        arrays["action_count"] = d.action_space.n
    elif not d.bounds_from_data:
        arrays["action_low"], arrays["action_high"] = d.action_space.low, d.action_space.high
    if d.recorded_return is not None:
        arrays["mean_return"], arrays["std_return"], arrays["return_episodes"] = d.recorded_return
    write_npz(checked_path(path), arrays, replace)


def read(path: Path, selection: Selection) -> Demonstrations:
    """Read an npz file of plain arrays."""
    file = FileReader(path, "a file of demonstrations", "see docs/demonstrations.md", DemonstrationError)
    check = Checker(file.name)
    arrays = file.npz(MEMBERS.get, REQUIRED, lambda headers: check.shapes({k: h.shape for k, h in headers.items()}))
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
        arrays["actions"],
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
        source=file.name,
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
    """Whether a file is an npz file with the arrays that demonstrations need."""
    try:
        return set(REQUIRED) <= set(FileReader(path, "an npz file", "").npz_names())
    except RunError:
        return False


FORMAT = Format("npz", "understudy npz", _recognises, read, write, suffix=".npz")
