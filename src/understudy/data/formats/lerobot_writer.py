"""Write a LeRobot data set, v3.0: one file of frames, one of episodes, the tasks, and statistics for normalization.

Named parts of the observation that are LeRobot features ("observation.…") become features. Otherwise the observation
is one feature, `observation.state`, with the parts' names. LeRobot has no place for final observations, action bounds,
the environment's name and the horizon: they are not written.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.columns import load_pyarrow
from understudy.core.storage import atomic_directory, write_json
from understudy.data.demonstrations import Demonstrations
from understudy.data.formats.lerobot_metadata import ACTION, DATA_PATHS, INFO, STATE

DATA, EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"
TASKS, STATS = "meta/tasks.parquet", "meta/stats.json"
OWN = (INFO, STATS, TASKS, EPISODES, DATA)
FPS = 30
"""Frames per second, if unknown: LeRobot needs a number."""
NO_TASK = ""
ROWS = 100_000
"""Rows of a row group."""


def write(demonstrations: Demonstrations, path: Path, replace: bool = True) -> None:
    """Write a directory. With `replace`, an old one is replaced if it holds nothing but files of these names."""
    pa = load_pyarrow()
    d = demonstrations
    fps = d.details.fps or FPS
    columns = _columns(d, fps)
    tasks = d.details.tasks or (NO_TASK,) * d.episodes
    names = list(dict.fromkeys(tasks))
    columns["task_index"] = np.repeat([names.index(task) for task in tasks], d.lengths)
    with atomic_directory(path, OWN if replace else ()) as partial:
        for name in OWN:
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
        _write_frames(pa, columns, partial / DATA)
        _write_episodes(pa, d, tasks, partial / EPISODES)
        _write_tasks(pa, names, partial / TASKS)
        write_json(partial / STATS, {name: _statistics(values) for name, values in columns.items()})
        write_json(partial / INFO, _info(d, columns, len(names), fps))


def _columns(d: Demonstrations, fps: float) -> dict[str, np.ndarray]:
    """The columns of the frames, by feature. They have one number or one row for each step."""
    last = np.zeros(d.steps, bool)
    last[np.cumsum(d.lengths) - 1] = True
    frame = np.concatenate([np.arange(length) for length in d.lengths])
    columns: dict[str, np.ndarray] = {}
    start = 0
    for name, size in _parts(d):
        columns[name] = d.observations[:, start : start + size]
        start += size
    columns[ACTION] = d.actions.astype(np.int64) if d.actions.ndim == 1 else d.actions
    if d.rewards is not None:
        columns["next.reward"] = d.rewards
    columns["next.done"] = last
    if d.terminals is not None or d.ends == "terminal":
        columns["next.truncated"] = last & ~d.transitions().terminal
    if d.details.successes is not None:
        columns["next.success"] = last & np.repeat(d.details.successes, d.lengths)
    if d.details.interventions is not None:
        columns["intervention"] = d.details.interventions
    return columns | {
        "timestamp": (frame / fps).astype(np.float32),
        "frame_index": frame,
        "episode_index": np.repeat(np.arange(d.episodes), d.lengths),
        "index": np.arange(d.steps),
    }


def _parts(d: Demonstrations) -> tuple[tuple[str, int], ...]:
    """The features of the observation, and their sizes."""
    if d.obs_parts and all(name.startswith("observation.") and "/" not in name for name, _ in d.obs_parts):
        return d.obs_parts
    return ((STATE, d.observations.shape[1]),)


def _write_frames(pa: Any, columns: dict[str, np.ndarray], path: Path) -> None:
    schema = pa.schema([(name, _type(pa, values)) for name, values in columns.items()])
    with pa.parquet.ParquetWriter(path, schema, compression="snappy") as writer:
        for start in range(0, len(columns["index"]), ROWS):
            arrays = [_array(pa, values[start : start + ROWS]) for values in columns.values()]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _type(pa: Any, values: np.ndarray) -> Any:
    number = pa.from_numpy_dtype(values.dtype)
    return number if _size(values) == 1 else pa.list_(number, values.shape[1])


def _array(pa: Any, values: np.ndarray) -> Any:
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return flat if _size(values) == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _size(values: np.ndarray) -> int:
    return 1 if values.ndim == 1 else int(values.shape[1])


def _write_episodes(pa: Any, d: Demonstrations, tasks: tuple[str, ...], path: Path) -> None:
    ends, zeros = np.cumsum(d.lengths), np.zeros(d.episodes, np.int64)
    table = pa.table(
        {
            "episode_index": np.arange(d.episodes),
            "tasks": pa.array([[task] for task in tasks], pa.list_(pa.string())),
            "length": d.lengths,
            "data/chunk_index": zeros,
            "data/file_index": zeros,
            "dataset_from_index": ends - d.lengths,
            "dataset_to_index": ends,
            "meta/episodes/chunk_index": zeros,
            "meta/episodes/file_index": zeros,
        }
    )
    pa.parquet.write_table(table, path)


def _write_tasks(pa: Any, names: list[str], path: Path) -> None:
    """The tasks as pandas writes a frame whose index, called "task", holds their texts."""

    def described(name: str, kind: str, stored: str) -> dict[str, Any]:
        return {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": stored, "metadata": None}

    about = {
        "index_columns": ["task"],
        "column_indexes": [{**described("", "unicode", "object"), "name": None, "field_name": None}],
        "columns": [described("task_index", "int64", "int64"), described("task", "unicode", "object")],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": None,
    }
    table = pa.table({"task_index": np.arange(len(names)), "task": pa.array(names, pa.string())})
    pa.parquet.write_table(table.replace_schema_metadata({"pandas": json.dumps(about)}), path)


def _statistics(values: np.ndarray) -> dict[str, list[float]]:
    table = values.reshape(len(values), -1)
    functions: dict[str, Callable[..., Any]] = {"min": np.min, "max": np.max, "mean": np.mean, "std": np.std}
    wide = {"mean": {"dtype": np.float64}, "std": {"dtype": np.float64}}
    found = {name: function(table, axis=0, **wide.get(name, {})) for name, function in functions.items()}
    return {name: numbers.astype(np.float64).tolist() for name, numbers in found.items()} | {"count": [len(values)]}


def _info(d: Demonstrations, columns: dict[str, np.ndarray], tasks: int, fps: float) -> dict[str, Any]:
    names: dict[str, Any] = {}
    if d.actions.ndim == 2 and d.details.action_names is not None:
        names[ACTION] = list(d.details.action_names)
    if d.obs_parts and STATE in columns and STATE not in dict(d.obs_parts):
        names[STATE] = [name if size == 1 else f"{name}.{index}" for name, size in d.obs_parts for index in range(size)]
    features = {
        name: {"dtype": str(values.dtype), "shape": [_size(values)], "names": names.get(name)}
        for name, values in columns.items()
    }
    return {
        "codebase_version": "v3.0",
        "robot_type": None,
        "total_episodes": d.episodes,
        "total_frames": d.steps,
        "total_tasks": tasks,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": int(fps) if float(fps).is_integer() else fps,
        "splits": {"train": f"0:{d.episodes}"},
        "data_path": DATA_PATHS["v3.0"],
        "video_path": None,
        "features": features,
    }
