"""Trajectories of the library imitation: its Hugging Face directory (read and written) and its older npz (read).

Directory: state.json names Arrow files. A row is an episode: obs (T + 1 rows), acts (T), terminal, perhaps rews (T).
npz: obs and acts of all episodes, one after the other, indices (where acts are split), terminal, perhaps rews.

`infos` are pickles, or texts that become objects of any class: they are never read.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.arrow import arrow_blocks
from understudy.core.columns import Column, Want, load_pyarrow
from understudy.core.errors import DemonstrationError, RunError, SettingError
from understudy.core.folder import Folder, Refused, reading
from understudy.core.reader import NUMBERS, Expected, FileReader
from understudy.core.storage import atomic_directory, write_json
from understudy.core.text import quoted
from understudy.data.demonstrations import Demonstrations
from understudy.data.formats.base import Format, Selection
from understudy.data.shifting import shifted

WHAT, REMEDY = "trajectories of imitation", "see docs/demonstrations.md"
STATE, INFO, DATA = "state.json", "dataset_info.json", "data-00000-of-00001.arrow"
PATTERN = {"_data_files": [{"filename": str}]}
WANTS = [Want(("obs",)), Want(("acts",)), Want(("terminal",)), Want(("rews",), optional=True)]
MEMBERS = {
    **dict.fromkeys(("obs", "acts", "rews"), Expected(NUMBERS, itemsize=4)),
    "terminal": Expected("biu"),
    "indices": Expected("iu", itemsize=8),
}
ROWS = 1000
"""Episodes of a record batch, as datasets writes them."""
MOST_VALUES = 2**30
"""Numbers of a record batch: lists count them in 31 bits."""


def read(path: Path, selection: Selection) -> Demonstrations:
    """Read a directory or an npz file."""
    if selection.keys or selection.filter is not None:
        given = f"keys {quoted(list(selection.keys))}" if selection.keys else f"filter '{quoted(selection.filter)}'"
        raise SettingError(f"'{quoted(path, 1000)}' has no {given}: imitation's trajectories have no keys and filters")
    return _read_directory(path, selection) if path.is_dir() else _read_npz(path, selection)


def _read_directory(path: Path, selection: Selection) -> Demonstrations:
    folder = Folder(path, WHAT, REMEDY, DemonstrationError)
    blocks: dict[str, list[np.ndarray]] = {}
    episodes = 0
    names = [entry["filename"] for entry in folder.json(STATE, PATTERN)["_data_files"]]
    if len(set(names)) < len(names):
        raise folder.damaged(f"{STATE} names a file twice")
    for name in names:
        if "/" in name:
            raise folder.damaged(f"{STATE} names '{quoted(name)}', which is not a file next to it")
        for block in arrow_blocks(folder, name, WANTS):
            with folder.reading(name):
                arrays = _episodes(block)
                folder.reserve(name, sum(max(4, array.itemsize) * array.size for array in arrays.values()))
                if blocks and set(blocks) != set(arrays):
                    raise Refused("some files have rews, and others do not")
                for key, array in arrays.items():
                    blocks.setdefault(key, []).append(array)
            episodes += len(arrays["terminal"])
            if selection.episodes is not None and episodes >= selection.episodes:
                return _made(folder, blocks, selection)
    return _made(folder, blocks, selection)


def _episodes(block: dict[str, Column]) -> dict[str, np.ndarray]:
    """The arrays of some episodes. Raises Refused if the columns do not fit each other."""
    obs, acts, terminal = block["obs"], block["acts"], block["terminal"]
    if len(obs.counts) not in (1, 2) or len(acts.counts) not in (1, 2):
        raise Refused("obs and acts are not rows of numbers; images are not supported yet")
    lengths = acts.counts[0]
    found = {
        "obs": _steps(obs),
        "acts": _steps(acts),
        "lengths": lengths,
        "terminal": terminal.flat(),
    }
    if (obs.counts[0] != lengths + 1).any():
        raise Refused("obs has not one row more than acts in every episode")
    if "rews" in block:
        if len(block["rews"].counts) != 1 or (block["rews"].counts[0] != lengths).any():
            raise Refused("rews has not one number for each action")
        found["rews"] = block["rews"].values
    return found


def _steps(column: Column) -> np.ndarray:
    """The rows of all episodes, one after the other."""
    if len(column.counts) == 1:
        return column.values
    widths = column.counts[1]
    if (widths != widths[:1]).any():
        raise Refused(f"'{column.name}' has rows of different lengths")
    return column.values.reshape(len(widths), -1) if len(widths) else column.values.reshape(0, 0)


def _made(folder: Folder, blocks: dict[str, list[np.ndarray]], selection: Selection) -> Demonstrations:
    if not blocks:
        raise folder.damaged("it has no episodes")
    with folder.reading():
        arrays = {}
        for key in list(blocks):  # the blocks of one key are freed before the next one is joined
            found = blocks.pop(key)
            arrays[key] = found[0] if len(found) == 1 else np.concatenate(found)
        return _demonstrations(arrays, arrays["lengths"], selection, folder.name)


def _read_npz(path: Path, selection: Selection) -> Demonstrations:
    file = FileReader(path, WHAT, REMEDY, DemonstrationError)
    arrays = file.npz(MEMBERS.get, ("obs", "acts", "indices", "terminal"))
    with reading(file):
        steps = len(arrays["acts"])
        edges = np.concatenate([[0], arrays["indices"].reshape(-1).astype(np.int64), [steps]])
        lengths = np.diff(edges)
        if (lengths < 1).any() or len(lengths) != arrays["terminal"].size:
            raise Refused(f"indices do not split {steps} actions into {arrays['terminal'].size} episodes")
        if len(arrays["obs"]) != steps + len(lengths):
            raise Refused("obs has not one row more than acts in every episode")
        return _demonstrations(arrays, lengths, selection, file.name)


def _demonstrations(
    arrays: dict[str, np.ndarray], lengths: np.ndarray, selection: Selection, source: str
) -> Demonstrations:
    """Split obs into observations and final observations."""
    obs, ends = arrays.pop("obs"), np.cumsum(lengths)
    if arrays["acts"].ndim > 2 or obs.ndim > 2:
        raise Refused("obs and acts are not rows of numbers; images are not supported yet")
    terminal = arrays["terminal"].reshape(-1)
    if not np.isin(terminal, (0, 1)).all():
        raise Refused("terminal is not True or False")
    final = np.zeros(len(obs), bool)
    final[ends + np.arange(len(lengths))] = True
    terminals = np.zeros(int(lengths.sum()), bool)
    terminals[ends - 1] = terminal != 0
    return Demonstrations.from_arrays(
        obs[~final],
        arrays["acts"],
        lengths,
        last_observations=obs[final],
        terminals=terminals,
        rewards=arrays.get("rews"),
        ends=selection.ends or "time_limit",
        source=source,
        copy=False,
    )


def write(demonstrations: Demonstrations, path: Path, replace: bool = True) -> None:
    """Write a directory that imitation and `datasets.load_from_disk` read. `infos` are empty.

    imitation needs the final observation of every episode. Names of parts, action bounds and details are not written.
    """
    pa = load_pyarrow()
    d, final = demonstrations, _final(demonstrations, path)
    terminal = d.transitions().terminal[np.cumsum(d.lengths) - 1]
    kinds = {"obs": _lists(pa, d.observations), "acts": _lists(pa, d.actions), "infos": pa.list_(pa.string())}
    kinds |= {"terminal": pa.bool_(), **({} if d.rewards is None else {"rews": _lists(pa, d.rewards)})}
    schema = pa.schema(list(kinds.items()))
    with atomic_directory(path, (STATE, INFO, DATA) if replace else ()) as partial:
        with pa.OSFile(str(partial / DATA), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
            rows = max(1, min(ROWS, MOST_VALUES // (int(d.lengths.max() + 1) * d.observations.shape[1])))
            for first in range(0, d.episodes, rows):
                stream.write_batch(_batch(pa, schema, d, final, terminal, slice(first, first + rows)))
        write_json(partial / INFO, {"citation": "", "description": "", "homepage": "", "license": ""})
        write_json(partial / STATE, _state())


def _final(d: Demonstrations, path: Path) -> np.ndarray:
    """The final observations. Raises if they are unknown, or if next observations are not the next rows."""
    reason = "the final observations of its episodes are unknown"
    if d.next_observations is not None:
        final = d.next_observations[np.cumsum(d.lengths) - 1]
        if shifted(d.observations, d.lengths, final).tobytes() == d.next_observations.tobytes():
            return final
        reason = "a next observation is not the observation of the next step"
    raise DemonstrationError(f"'{quoted(path, 1000)}' cannot be written for imitation: {reason}; write an npz file")


def _lists(pa: Any, values: np.ndarray) -> Any:
    number = pa.from_numpy_dtype(values.dtype)
    return pa.list_(number if values.ndim == 1 else pa.list_(number))


def _batch(pa: Any, schema: Any, d: Demonstrations, final: np.ndarray, terminal: np.ndarray, rows: slice) -> Any:
    lengths, ends = d.lengths[rows], np.cumsum(d.lengths)[rows]
    steps = slice(int(ends[0] - lengths[0]), int(ends[-1]))
    obs = np.insert(d.observations[steps], np.cumsum(lengths), final[rows], axis=0)
    columns = {
        "obs": _listed(pa, obs, lengths + 1),
        "acts": _listed(pa, d.actions[steps], lengths),
        "infos": _listed(pa, ["{}"] * int(lengths.sum()), lengths),
        "terminal": pa.array(terminal[rows]),
    }
    if d.rewards is not None:
        columns["rews"] = _listed(pa, d.rewards[steps], lengths)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _listed(pa: Any, values: Any, lengths: np.ndarray) -> Any:
    """Values of all episodes as one list for each."""
    array = pa.array(np.ascontiguousarray(values).reshape(-1) if isinstance(values, np.ndarray) else values)
    if isinstance(values, np.ndarray) and values.ndim == 2:
        array = pa.ListArray.from_arrays(_offsets(np.full(len(values), values.shape[1])), array)
    return pa.ListArray.from_arrays(_offsets(lengths), array)


def _offsets(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _state() -> dict[str, Any]:
    return {
        "_data_files": [{"filename": DATA}],
        "_fingerprint": "0" * 16,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }


def _recognises(path: Path) -> bool:
    """Whether a directory has the files of the library datasets, or an npz file imitation's arrays."""
    try:
        if path.is_dir():
            return (path / STATE).is_file() and (path / INFO).is_file()
        return {"obs", "acts", "indices", "terminal"} <= set(FileReader(path, "an npz file", "").npz_names())
    except (RunError, OSError):
        return False


FORMAT = Format("imitation", "imitation", _recognises, read, write)
