"""LeRobot data sets of strangers: whatever is wrong is refused in one line that names the file."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from support.arrow_data import as_column, change_info, copied, lerobot_frames, replaced, rewritten, write_old_lerobot
from understudy.core.errors import DemonstrationError, UnknownNameError

DATA, EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"


@pytest.fixture
def real(tmp_path):
    """A data set that lerobot 0.4.4 wrote."""
    return copied("lerobot", tmp_path)


@pytest.fixture
def old(tmp_path):
    return write_old_lerobot(tmp_path / "old", lerobot_frames())


INFO_DAMAGE = {
    "codebase_version": ["v1.6", "v3.1", 3, "../x"],
    "data_path": [
        "/etc/passwd",
        "../{chunk_index}",
        "data/{chunk_index.__class__}/{file_index}.parquet",
        "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        None,
    ],
    "features": [{}, [], {"action": {"dtype": "float32", "shape": [3], "names": None}}, {"action": 3}],
    "fps": [0, -1, "10", True],
    "chunks_size": [0, 10**30, "x"],
    "total_episodes": [2, -1, 10**40],
    "splits": ["x", {"train": 3}],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in INFO_DAMAGE.items() for value in values])
def test_a_wrong_info_is_refused(real, key, value):
    change_info(real, **{key: value})
    with pytest.raises(DemonstrationError, match="lerobot"):
        us.load(real)


@pytest.mark.parametrize("split", ["0:", "a:b", "0:1:2", "-1:2", "９:1"])
def test_a_wrong_split_is_refused(real, split):
    change_info(real, splits={"train": split})
    with pytest.raises((DemonstrationError, UnknownNameError), match="lerobot"):
        us.load(real, filter="train")


def numbers(values):
    return pa.array(np.array(values))


NAN = np.where(np.arange(36).reshape(12, 3) == 7, np.nan, 0).astype(np.float32)
MANY = pa.array([[0.5] * (3 + (i == 4)) for i in range(12)], pa.list_(pa.float32()))
DATA_DAMAGE = {
    "a NaN": replaced("observation.state", as_column(NAN)),
    "a missing number": replaced("next.reward", pa.array([None, *range(11)], pa.float32())),
    "a missing row": replaced("action", pa.array([None, *[[0.0, 0.0]] * 11], pa.list_(pa.float32(), 2))),
    "a missing number in a row": replaced("action", pa.array([[None, 0.0]] * 12, pa.list_(pa.float32(), 2))),
    "rows of different lengths": replaced("observation.state", MANY),
    "text in place of numbers": replaced("next.reward", pa.array(["x"] * 12)),
    "dates in place of numbers": replaced("next.reward", pa.array(range(12), pa.timestamp("us"))),
    "bytes in place of numbers": replaced("next.reward", pa.array([b"x"] * 12)),
    "decimals in place of numbers": replaced("next.reward", pa.array([1] * 12, pa.decimal128(20, 2))),
    "records in place of rows": replaced("action", pa.array([{"x": 1.0}] * 12)),
    "too many records": replaced("action", pa.array([{"x": 1.0, "y": 2.0}] * 12)),
    "too wide rows": replaced("action", as_column(np.zeros((12, 5), np.float32))),
    "real indices": replaced("frame_index", numbers(np.arange(12.0))),
    "negative indices": replaced("frame_index", numbers(np.arange(12) - 1)),
    "huge indices": replaced("frame_index", pa.array([2**63] * 12, pa.uint64())),
    "an index beyond the length": replaced("frame_index", numbers([*range(4), *range(3), *range(4), 9])),
    "a frame twice": replaced("frame_index", numbers([0, 1, 2, 2, *range(3), *range(5)])),
    "an episode twice": lambda table: pa.concat_tables([table, table]),
    "a missing frame": lambda table: table.slice(1),
    "no frames": lambda table: table.slice(0, 0),
    "a missing column": lambda table: table.drop_columns(["action"]),
    "flags that are none": replaced("next.success", numbers(np.arange(12))),
    "an end inside an episode": replaced("next.done", numbers(np.ones(12, bool))),
    "another episode": replaced("episode_index", numbers(np.full(12, 7))),
}


@pytest.mark.parametrize("damage", DATA_DAMAGE)
def test_damaged_frames_are_refused_in_one_line(real, damage):
    info = json.loads((real / "meta/info.json").read_text(encoding="utf-8"))
    if damage == "flags that are none":
        info["features"]["next.success"]["dtype"] = "int64"
        change_info(real, features=info["features"])
    rewritten(real / DATA, DATA_DAMAGE[damage])
    with pytest.raises(DemonstrationError, match="lerobot") as error:
        us.load(real)
    assert "\n" not in str(error.value)


EPISODE_DAMAGE = {
    "an episode twice": lambda table: pa.concat_tables([table, table.slice(0, 1)]),
    "a missing episode": lambda table: table.slice(1),
    "no episodes": lambda table: table.slice(0, 0),
    "an empty episode": replaced("length", numbers([4, 0, 5])),
    "a negative length": replaced("length", numbers([4, -3, 5])),
    "a huge length": replaced("length", numbers([4, 10_000_000, 5])),
    "a real length": replaced("length", numbers([4.0, 3.0, 5.0])),
    "a negative file": replaced("data/file_index", numbers([0, -1, 0])),
    "a file that is not there": replaced("data/file_index", numbers([0, 999_999_999, 0])),
    "tasks that are no lists": replaced("tasks", pa.array(["a", "b", "c"])),
    "tasks that are numbers": replaced("tasks", pa.array([[1], [2], [3]])),
    "a missing task": replaced("tasks", pa.array([["a"], [None], ["c"]], pa.list_(pa.string()))),
    "a long task": replaced("tasks", pa.array([["a"], ["b" * 20_000], ["c"]])),
}


@pytest.mark.parametrize("damage", EPISODE_DAMAGE)
def test_damaged_lists_of_episodes_are_refused(real, damage):
    rewritten(real / EPISODES, EPISODE_DAMAGE[damage])
    with pytest.raises(DemonstrationError, match="lerobot"):
        us.load(real)


LINES = [
    "",
    "[]",
    '{"episode_index": 0}',
    '{"episode_index": -1, "length": 4}',
    '{"episode_index": 0, "length": 1e9}',
    "x",
]


@pytest.mark.parametrize("line", LINES)
def test_damaged_lines_of_episodes_are_refused(old, line):
    text = (old / "meta/episodes.jsonl").read_text(encoding="utf-8").splitlines()
    (old / "meta/episodes.jsonl").write_text("\n".join([line, *text[1:]]), encoding="utf-8")
    with pytest.raises(DemonstrationError, match="old"):
        us.load(old)


@pytest.mark.parametrize("name", ["meta/info.json", EPISODES, DATA, "data", "data/chunk-000"])
def test_links_out_of_the_directory_are_refused(real, tmp_path, name):
    outside = tmp_path / "outside"
    shutil.move(real / name, outside)
    (real / name).symlink_to(outside)
    with pytest.raises(DemonstrationError, match="link out of the directory"):
        us.load(f"lerobot:{real}")


def test_links_inside_the_directory_are_followed(real):
    os.rename(real / DATA, real / "frames")
    (real / DATA).symlink_to("../../frames")
    assert us.load(real).steps == 12
