"""Data sets in Arrow and Parquet files for tests: some of other libraries, some as these write them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import understudy as us

REAL = Path(__file__).parents[1] / "data" / "real"
LENGTHS = (4, 3, 5)
TASKS = ("push", "pull", "push")


def lerobot_frames() -> dict[str, np.ndarray]:
    """The frames that tests/data/real/lerobot was recorded from, one random draw after the other."""
    rng = np.random.default_rng(0)
    frames: dict[str, list[Any]] = {}
    for episode, length in enumerate(LENGTHS):
        for t in range(length):
            last = t == length - 1
            frame = {
                "observation.state": rng.normal(size=3),
                "observation.environment_state": rng.normal(size=1),
                "action": rng.uniform(-1, 1, 2),
                "next.reward": t,
                "next.done": last,
                "next.success": last and episode != 1,
                "next.truncated": last and episode == 1,
                "intervention": t % 2 == 0,
                "grid": rng.normal(size=(2, 2)),
            }
            for name, value in frame.items():
                frames.setdefault(name, []).append(value)
    arrays = {name: np.array(values) for name, values in frames.items() if name != "grid"}
    return {name: array if array.dtype == bool else array.astype(np.float32) for name, array in arrays.items()}


def demonstrations(discrete: bool = False, **more: Any) -> us.Demonstrations:
    """Three episodes with everything that the formats keep."""
    rng = np.random.default_rng(5)
    actions = rng.integers(0, 3, 12) if discrete else rng.uniform(-1, 1, (12, 2))
    given = {
        "terminals": np.isin(np.arange(12), (3, 11)),
        "rewards": rng.normal(size=12),
        "last_observations": rng.normal(size=(3, 3)),
    }
    return us.Demonstrations.from_arrays(rng.normal(size=(12, 3)), actions, LENGTHS, **{**given, **more})


def copied(source: str, folder: Path) -> Path:
    """A copy of a data set that another library wrote."""
    return Path(shutil.copytree(REAL / source, folder / source))


def write_old_lerobot(path: Path, frames: dict[str, np.ndarray]) -> Path:
    """A LeRobot data set of version 2.1: one Parquet file for each episode, JSON lines."""
    ends = np.cumsum(LENGTHS)
    (path / "meta").mkdir(parents=True)
    (path / "data" / "chunk-000").mkdir(parents=True)
    features: dict[str, Any] = {
        name: {"dtype": str(values.dtype), "shape": [int(np.prod(values.shape[1:]))], "names": None}
        for name, values in frames.items()
    }
    features["observation.images.top"] = {"dtype": "video", "shape": [8, 8, 3], "names": ["height", "width", "channel"]}
    info = {
        "codebase_version": "v2.1",
        "fps": 10,
        "chunks_size": 1000,
        "total_episodes": 3,
        "splits": {"train": "0:2", "test": "2:3"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "features": features,
    }
    (path / "meta" / "info.json").write_text(json.dumps(info), encoding="utf-8")
    lines = [
        json.dumps({"episode_index": i, "length": length, "tasks": [TASKS[i]]}) for i, length in enumerate(LENGTHS)
    ]
    (path / "meta" / "episodes.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for i, (start, end) in enumerate(zip(ends - LENGTHS, ends, strict=True)):
        columns = {name: as_column(values[start:end]) for name, values in frames.items()}
        columns["frame_index"] = pa.array(np.arange(end - start))
        columns["episode_index"] = pa.array(np.full(end - start, i))
        pq.write_table(pa.table(columns), path / "data" / "chunk-000" / f"episode_{i:06d}.parquet")
    return path


def as_column(values: np.ndarray) -> Any:
    """An array as LeRobot stores it: numbers, or lists of one length."""
    flat = pa.array(values.reshape(-1))
    return flat if values.size == len(values) else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def write_old_imitation(path: Path, demos: us.Demonstrations, **more: Any) -> Path:
    """imitation's npz, with pickled infos."""
    assert demos.next_observations is not None
    ends = np.cumsum(demos.lengths)
    arrays = {
        "obs": np.insert(demos.observations, ends, demos.next_observations[ends - 1], axis=0),
        "acts": demos.actions,
        "infos": np.array([{"a": 1}] * demos.steps, object),
        "terminal": demos.transitions().terminal[ends - 1],
        "indices": ends[:-1],
        "rews": demos.rewards,
        **more,
    }
    np.savez_compressed(path, **arrays)
    return path


def rewritten(path: Path, change: Any) -> None:
    """Replace a Parquet file by a changed table."""
    pq.write_table(change(pq.read_table(path)), path)


def replaced(name: str, array: Any) -> Any:
    """A change of a table: another column."""
    return lambda table: table.set_column(table.column_names.index(name), name, array)


def change_info(path: Path, **changes: Any) -> None:
    """Change entries of a LeRobot data set's info.json."""
    info = json.loads((path / "meta/info.json").read_text(encoding="utf-8"))
    info.update(changes)
    (path / "meta/info.json").write_text(json.dumps(info), encoding="utf-8")


def assert_equal(a: us.Demonstrations, b: us.Demonstrations, *fields: str) -> None:
    for name in fields or ("observations", "actions", "lengths", "next_observations", "terminals", "rewards"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
