"""Minari data sets: read and written without Minari. `minari.load_dataset` reads what is written here.

A data set is a directory: data/metadata.json says what it is (`minari_metadata`), and the episodes are in
data/main_data.hdf5 (`minari_hdf5`) or in Arrow files. "minari:ID" is looked up in $MINARI_DATASETS_PATH or
~/.minari/datasets, as Minari does.

Read: observations with their keys as parts, the final observation of each episode, actions with the bounds of their
space, rewards, terminations, the environment's id and time limit. An episode is a success if infos["success"] or
infos["is_success"] is 1 at any of its steps. Rewards that are all NaN are unknown. Seeds and other infos are not read.
"""

import json
from collections import OrderedDict  # Gymnasium sorts the keys of a plain dict
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import registry

from understudy.core.errors import DemonstrationError, SettingError
from understudy.core.hdf5 import load_h5py
from understudy.core.hdf5_written import Written
from understudy.core.spaces import flat_observations
from understudy.core.storage import atomic_directory, write_json
from understudy.core.text import quoted
from understudy.core.types import Discrete, MultiDiscrete
from understudy.data.demonstrations import Demonstrations
from understudy.data.details import Details
from understudy.data.formats.base import Format, Selection
from understudy.data.formats.minari_arrow import open_arrow_episodes
from understudy.data.formats.minari_hdf5 import MAIN, open_episodes
from understudy.data.formats.minari_metadata import METADATA, Metadata, Opener, Source, data_folder, read_metadata
from understudy.data.formats.minari_places import LONGEST_PATH, id_of, locate, missing
from understudy.data.formats.minari_spaces import space_text

SOURCES: dict[str, Opener] = {"hdf5": open_episodes, "arrow": open_arrow_episodes, "parquet": open_arrow_episodes}
"""How the episodes are read, by metadata.json's `data_format`."""
MINARI_VERSION = "0.5.0"
"""The first version of Minari with this layout."""


def read(path: Path, selection: Selection) -> Demonstrations:
    """Read a data set: its directory, the folder `data` in it, or main_data.hdf5."""
    folder = data_folder(path)
    if folder is None:
        raise missing(path)
    if selection.filter is not None:
        raise SettingError(f"filter is '{quoted(selection.filter)}': Minari data sets have no filters")
    metadata = read_metadata(folder, selection.keys)
    if metadata.data_format not in SOURCES:
        known = " and ".join(SOURCES)
        raise metadata.reader.damaged(f"its data_format is '{quoted(metadata.data_format, 40)}', and {known} are read")
    wanted = selection.episodes
    some = type(wanted) is int and 1 <= wanted < metadata.episodes
    with SOURCES[metadata.data_format](metadata, wanted if some and wanted else metadata.episodes) as source:
        arrays = _arrays(metadata, source)
    longest = int(arrays["lengths"].max())
    return Demonstrations.from_arrays(
        **arrays,
        action_space=metadata.actions.space,
        horizon=None if metadata.horizon is None else max(metadata.horizon, longest),
        env=metadata.env,
        ends=selection.ends or "time_limit",
        obs_parts=metadata.parts,
        source=metadata.reader.name,
        copy=False,
    )


def _arrays(metadata: Metadata, source: Source) -> dict[str, Any]:
    """The arrays of all episodes, one after the other."""
    lengths = np.array(source.lengths, np.int64)
    steps, space = int(lengths.sum()), metadata.actions.space
    observations = np.empty((steps, metadata.width), np.float32)
    last = np.empty((len(lengths), metadata.width), np.float32)
    discrete = isinstance(space, Discrete | MultiDiscrete)
    shape = (metadata.actions.size,) if space is None else space.shape  # None: a Box without bounds
    actions = np.empty((steps, *shape), np.int32 if discrete else np.float32)
    rewards, terminals = np.empty(steps), np.empty(steps, bool)
    successes: list[bool | None] = []
    start = 0
    for index, length in enumerate(lengths):
        episode, rows = source.episode(index), slice(start, start + length)
        column = 0
        for (_, leaf), values in zip(metadata.leaves, episode.observations, strict=True):
            flat = _checked(metadata, index, flat_observations, leaf, values, length + 1)
            columns = slice(column, column + flat.shape[1])
            observations[rows, columns], last[index, columns] = flat[:-1], flat[-1]
            column += flat.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            actions[rows] = _checked(metadata, index, metadata.actions.encode, episode.actions)
        rewards[rows], terminals[rows] = episode.rewards.reshape(-1), episode.terminations.reshape(-1) != 0
        successes.append(_success(episode.success, length))
        start += length
    known = [one for one in successes if one is not None]
    return {
        "observations": observations,
        "last_observations": last,
        "actions": actions,
        "lengths": lengths,
        "terminals": terminals,
        "rewards": None if np.isnan(rewards).all() else rewards,
        "details": Details(
            successes=np.array(known) if len(known) == len(lengths) else None, origin=metadata.dataset_id
        ),
    }


def _checked(metadata: Metadata, episode: int, function: Any, *values: Any) -> np.ndarray:
    """The values of one episode, converted. Raises if they do not fit their space."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(*values)
    except (ValueError, TypeError, IndexError) as error:
        raise metadata.reader.damaged(f"episode {episode} does not fit its spaces: {error}") from error


def _success(values: np.ndarray | None, length: int) -> bool | None:
    """Whether an episode reached its goal; None: unknown, or not a flag for each step."""
    if values is None or values.size not in (length, length + 1) or not np.isin(values, (0, 1)).all():
        return None
    return bool(values.any())


def write(demonstrations: Demonstrations, path: Path, replace: bool = True) -> None:
    """Write a data set directory. Named parts of the observation become a Dict space. Unknown rewards become NaN.

    With `replace`, an old directory is replaced if it holds nothing but a data set in HDF5.
    """
    d = demonstrations
    last = _last_observations(d, path)
    h5py = load_h5py()
    metadata = _metadata(d, path)
    with atomic_directory(path, (f"data/{METADATA}", f"data/{MAIN}") if replace else ()) as partial:
        folder = partial / "data"
        folder.mkdir()
        with Written(folder / MAIN) as raw, h5py.File(raw, "w") as file:
            _write_episodes(d, last, file)
        metadata["dataset_size"] = round((folder / MAIN).stat().st_size / 1e6, 1)
        write_json(folder / METADATA, metadata)


def _last_observations(d: Demonstrations, path: Path) -> np.ndarray:
    """The final observation of each episode. Raises if the data cannot be written as T + 1 observations."""
    target = quoted(path, LONGEST_PATH)
    if d.next_observations is None:
        raise DemonstrationError(
            f"'{target}' cannot be written: Minari stores the observation after the last step of an episode, and these "
            "demonstrations do not have it; write an npz file"
        )
    ends = np.cumsum(d.lengths)
    for start, end in zip(ends - d.lengths, ends, strict=True):
        if d.next_observations[start : end - 1].tobytes() != d.observations[start + 1 : end].tobytes():
            raise DemonstrationError(
                f"'{target}' cannot be written: a next observation is not the observation of the next step, and Minari "
                "stores only one of them; write an npz file"
            )
    for name, _ in d.obs_parts:
        if "/" in name or name == ".":
            raise DemonstrationError(f"'{target}' cannot be written: HDF5 has no names such as '{quoted(name)}'")
    return d.next_observations[ends - 1]


def _write_episodes(d: Demonstrations, last: np.ndarray, file: Any) -> None:
    terminal = d.transitions().terminal if d.terminals is None else d.terminals
    start = 0
    for index, length in enumerate(d.lengths):
        rows = slice(start, start + int(length))
        group = file.create_group(f"episode_{index}")
        group.attrs["id"], group.attrs["total_steps"] = index, int(length)
        observations = np.concatenate([d.observations[rows], last[index : index + 1]])
        column = 0
        for name, size in d.obs_parts:
            group[f"observations/{name}"] = observations[:, column : column + size]
            column += size
        if not d.obs_parts:
            group["observations"] = observations
        group["actions"] = d.actions[rows].astype(np.int64) if d.actions.ndim == 1 else d.actions[rows]
        group["rewards"] = np.full(length, np.nan) if d.rewards is None else d.rewards[rows].astype(np.float64)
        group["terminations"] = terminal[rows]
        group["truncations"] = (np.arange(length) == length - 1) & ~terminal[rows]
        infos = group.create_group("infos")
        if d.details.successes is not None:
            infos["success"] = (np.arange(length + 1) == length) & d.details.successes[index]
        start += int(length)


def _metadata(d: Demonstrations, path: Path) -> dict[str, Any]:
    if d.obs_parts:
        observed: Any = spaces.Dict(OrderedDict((name, _unbounded(size)) for name, size in d.obs_parts))
    else:
        observed = _unbounded(d.observations.shape[1])
    if isinstance(d.action_space, Discrete):
        acted: Any = spaces.Discrete(d.action_space.n)
    elif isinstance(d.action_space, MultiDiscrete):
        acted = spaces.MultiDiscrete(np.array(d.action_space.nvec))
    elif d.bounds_from_data:
        acted = _unbounded(d.actions.shape[1])
    else:
        low, high = (np.array(bound, np.float32) for bound in (d.action_space.low, d.action_space.high))
        acted = spaces.Box(low, high)
    found = {
        "total_episodes": d.episodes,
        "total_steps": d.steps,
        "data_format": "hdf5",
        "jpeg_encoding": True,
        "observation_space": space_text(observed),
        "action_space": space_text(acted),
        "dataset_id": id_of(path),
        "minari_version": MINARI_VERSION,
        "understudy": {"env": d.env, "horizon": d.horizon},
    }
    known = registry.get(d.env) if d.env is not None else None
    if known is not None and isinstance(known.entry_point, str):
        found["env_spec"] = json.dumps({**json.loads(known.to_json()), "max_episode_steps": d.horizon})
    return found


def _unbounded(size: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def _recognises(path: Path) -> bool:
    """Whether a directory holds metadata.json where Minari has it."""
    try:
        folder = data_folder(path)
    except OSError:
        return False
    return folder is not None and (folder.name == "data" or (folder / MAIN).exists())


FORMAT = Format("minari", "Minari", _recognises, read, write, locate=locate)
