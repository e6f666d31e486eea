"""LeRobot data sets: what lerobot wrote is read value by value, what is written reads the same, damage is refused."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from support.arrow_data import (
    LENGTHS,
    TASKS,
    as_column,
    assert_equal,
    copied,
    demonstrations,
    lerobot_frames,
    rewritten,
    write_old_lerobot,
)
from understudy.core.errors import DemonstrationError, ExtraError, RunError, UnknownNameError
from understudy.data.details import Details

DATA, EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"
ENDS = np.cumsum(LENGTHS) - 1


@pytest.fixture
def real(tmp_path):
    """A data set that lerobot 0.4.4 wrote."""
    return copied("lerobot", tmp_path)


@pytest.fixture
def real_old(tmp_path):
    """A data set of version 2.1 that lerobot 0.3.3 wrote."""
    return copied("lerobot_v21", tmp_path)


@pytest.fixture
def old(tmp_path):
    return write_old_lerobot(tmp_path / "old", lerobot_frames())


def change_info(path, **changes):
    info = json.loads((path / "meta/info.json").read_text(encoding="utf-8"))
    info.update(changes)
    (path / "meta/info.json").write_text(json.dumps(info), encoding="utf-8")


@pytest.mark.parametrize("version", ["real", "real_old", "old"])
def test_all_numbers_of_a_data_set_are_read(version, request):
    path, frames = request.getfixturevalue(version), lerobot_frames()
    demos = us.load(path)
    states = [frames["observation.state"], frames["observation.environment_state"].reshape(-1, 1)]
    np.testing.assert_array_equal(demos.observations, np.concatenate(states, axis=1))
    np.testing.assert_array_equal(demos.actions, frames["action"])
    np.testing.assert_array_equal(demos.rewards, frames["next.reward"])
    np.testing.assert_array_equal(demos.lengths, LENGTHS)
    assert demos.next_observations is None
    assert demos.obs_parts == (("observation.state", 3), ("observation.environment_state", 1))
    np.testing.assert_array_equal(demos.details.successes, [True, False, True])
    np.testing.assert_array_equal(demos.details.interventions, frames["intervention"])
    assert demos.details.tasks == TASKS
    assert demos.details.fps == 10
    assert demos.details.action_names == (None if version == "old" else ("a", "b"))


@pytest.mark.parametrize("version", ["real", "real_old", "old"])
def test_a_done_that_is_not_truncated_is_terminal(version, request):
    terminals = us.load(request.getfixturevalue(version)).terminals
    np.testing.assert_array_equal(np.flatnonzero(terminals), ENDS[[0, 2]])


def test_without_truncations_the_person_says_how_episodes_end(tmp_path):
    frames = {name: values for name, values in lerobot_frames().items() if name != "next.truncated"}
    path = write_old_lerobot(tmp_path / "data set", frames)
    assert us.load(path).terminals is None
    assert us.load(path).ends == "time_limit"
    assert us.load(path, ends="terminal").transitions().terminal[ENDS].all()


def test_keys_choose_features_and_their_order(real):
    demos = us.load(real, keys=["observation.environment_state", "observation.state"])
    frames = lerobot_frames()
    np.testing.assert_array_equal(demos.observations[:, 0], frames["observation.environment_state"][:, 0])
    np.testing.assert_array_equal(demos.observations[:, 1:], frames["observation.state"])
    assert us.load(f"lerobot:{real}", keys=["next.reward"]).obs_parts == (("next.reward", 1),)
    with pytest.raises(UnknownNameError, match=r"did you mean 'observation\.state'"):
        us.load(real, keys=["observation.stat"])
    with pytest.raises(DemonstrationError, match="images are not supported"):
        us.load(real, keys=["observation.images.top"])
    with pytest.raises(DemonstrationError, match="once"):
        us.load(real, keys=["observation.state", "observation.state"])


def test_features_that_are_left_out_are_named(real, capfd):
    us.load(real)
    assert "left out observation.grid, observation.images.top" in capfd.readouterr().err
    demonstrations(obs_parts=(("observation.state", 1), ("observation.force", 2))).save(
        f"lerobot:{real.parent / 'new'}"
    )
    us.load(real.parent / "new")
    assert "left out observation.force" in capfd.readouterr().err
    us.load(real, keys=["observation.state"])
    assert capfd.readouterr().err == ""


def test_a_filter_is_a_split_or_a_task(real, old):
    assert us.load(old, filter="test").lengths.tolist() == [5]
    assert us.load(old, filter="train", episodes=1).lengths.tolist() == [4]
    for path in (real, old):
        pushed = us.load(path, filter="push")
        np.testing.assert_array_equal(pushed.rewards, [0, 1, 2, 3, 0, 1, 2, 3, 4])
        assert pushed.details.tasks == ("push", "push")
        with pytest.raises(UnknownNameError, match="did you mean 'pull'"):
            us.load(path, filter="pul")


def test_a_split_without_episodes_is_named(real):
    change_info(real, splits={"test": "3:3"})
    with pytest.raises(DemonstrationError, match="split 'test' has no episodes"):
        us.load(real, filter="test")


def test_indices_may_be_unsigned(real):
    for name in ("episode_index", "frame_index"):
        rewritten(real / DATA, lambda table, name=name: replaced(name, table[name].cast(pa.uint64()))(table))
    assert us.load(real).steps == 12


def test_only_the_files_of_the_wanted_episodes_are_read(old):
    (old / "data/chunk-000/episode_000002.parquet").unlink()
    assert us.load(old, episodes=2).lengths.tolist() == [4, 3]
    with pytest.raises(DemonstrationError, match=r"no file '.*episode_000002"):
        us.load(old)


def test_frames_of_other_episodes_may_be_damaged(real):
    data = pq.ParquetFile(real / DATA).read()
    with pq.ParquetWriter(real / DATA, data.schema, compression="none", write_page_checksum=True) as writer:
        for start, length in zip(ENDS + 1 - LENGTHS, LENGTHS, strict=True):
            writer.write_table(data.slice(start, length))
    bytes_ = bytearray((real / DATA).read_bytes())
    at = pq.ParquetFile(real / DATA).metadata.row_group(2).column(0).data_page_offset
    bytes_[at : at + 200] = bytes(200)
    (real / DATA).write_bytes(bytes_)
    assert us.load(real, episodes=2).lengths.tolist() == [4, 3]
    with pytest.raises(DemonstrationError, match="file-000"):
        us.load(real)


def test_frames_are_put_in_order(real):
    expected = us.load(real)
    rewritten(real / DATA, lambda table: table.take(np.random.default_rng(0).permutation(12)))
    assert_equal(us.load(real), expected)


def test_names_may_be_a_list_or_lists_by_axis(real):
    info = json.loads((real / "meta/info.json").read_text(encoding="utf-8"))
    for names, expected in (
        (["x", "y"], ("x", "y")),
        ({"motors": ["x", "y"]}, ("x", "y")),
        ({"a": ["x"], "b": ["y"]}, None),
        (None, None),
        (["x"], None),
        ([["x"], 3], None),
    ):
        info["features"]["action"]["names"] = names
        change_info(real, features=info["features"])
        assert us.load(real).details.action_names == expected


def test_one_whole_number_is_a_discrete_action(tmp_path):
    frames = {**lerobot_frames(), "action": np.arange(12) % 3}
    demos = us.load(write_old_lerobot(tmp_path / "x", frames))
    assert demos.action_space == us.Discrete(3)
    np.testing.assert_array_equal(demos.actions, np.arange(12) % 3)


@pytest.mark.parametrize("discrete", [False, True])
def test_what_is_written_reads_the_same(discrete, tmp_path):
    details = Details(
        successes=np.array([True, False, True]),
        tasks=TASKS,
        interventions=np.arange(12) % 2 == 0,
        action_names=None if discrete else ("x", "y"),
        fps=12.5,
    )
    demos = demonstrations(discrete, details=details, obs_parts=(("observation.state", 1), ("observation.force", 2)))
    demos.save(f"lerobot:{tmp_path / 'new'}")
    again = us.load(tmp_path / "new", keys=["observation.state", "observation.force"])
    assert_equal(demos, again, "observations", "actions", "lengths", "terminals", "rewards")
    assert again.obs_parts == demos.obs_parts
    for name in ("tasks", "action_names", "fps"):
        assert getattr(again.details, name) == getattr(details, name)
    for name in ("successes", "interventions"):
        np.testing.assert_array_equal(getattr(again.details, name), getattr(details, name))


def test_unknown_facts_stay_unknown(tmp_path):
    demos = demonstrations(terminals=None, rewards=None)
    demos.save(f"lerobot:{tmp_path / 'new'}")
    again = us.load(tmp_path / "new")
    assert (again.terminals, again.rewards, again.details.tasks, again.details.successes) == (None, None, None, None)


def test_other_parts_become_names_of_the_state(tmp_path):
    demonstrations(obs_parts=(("arm/joints", 2), ("goal", 1))).save(f"lerobot:{tmp_path / 'new'}")
    info = json.loads((tmp_path / "new/meta/info.json").read_text(encoding="utf-8"))
    state = {"dtype": "float32", "shape": [3], "names": ["arm/joints.0", "arm/joints.1", "goal"]}
    assert info["features"]["observation.state"] == state
    assert us.load(tmp_path / "new").obs_parts == (("observation.state", 3),)


def test_a_written_data_set_has_the_columns_types_and_tables_of_lerobot(real, tmp_path):
    us.load(real).save(f"lerobot:{tmp_path / 'new'}")
    new = tmp_path / "new"
    theirs, ours = pq.read_schema(real / DATA), pq.read_schema(new / DATA)
    left_out = {"observation.grid", "observation.images.top"}
    assert set(ours.names) == set(theirs.names) - left_out
    for name in ours.names:
        theirs_type, ours_type = theirs.field(name).type, ours.field(name).type
        assert ours_type.equals(theirs_type) or str(ours_type).replace("item", "element") == str(theirs_type), name
    theirs, ours = pq.read_table(real / EPISODES), pq.read_table(new / EPISODES)
    for name in ours.column_names:
        assert ours.column(name).to_pylist() == theirs.column(name).to_pylist(), name
    info, new_info = (json.loads((path / "meta/info.json").read_text(encoding="utf-8")) for path in (real, new))
    assert set(new_info) == set(info)
    assert {name: new_info[name] for name in info if name not in ("features", "robot_type")} == {
        name: info[name] for name in info if name not in ("features", "robot_type")
    }
    stats, new_stats = (json.loads((path / "meta/stats.json").read_text(encoding="utf-8")) for path in (real, new))
    for name, numbers in new_stats.items():
        for kind, values in numbers.items():
            np.testing.assert_allclose(
                values, np.array(stats[name][kind], float), rtol=1e-5, atol=1e-7, err_msg=f"{name} {kind}"
            )
    frame = pd_index(new / "meta/tasks.parquet")
    assert frame == {"push": 0, "pull": 1} == pd_index(real / "meta/tasks.parquet")


def pd_index(path):
    frame = pq.read_table(path).to_pandas()
    return dict(zip(frame.index, frame["task_index"], strict=True))


def test_an_old_data_set_is_replaced_and_nothing_else(tmp_path):
    path = tmp_path / "new"
    for _ in range(2):
        demonstrations().save(f"lerobot:{path}")
    with pytest.raises(RunError, match="holds"):
        demonstrations().save(f"lerobot:{path}", replace=False)
    (path / "videos").mkdir()
    (path / "videos/mine.mp4").write_bytes(b"mine")
    with pytest.raises(RunError, match="holds"):
        demonstrations().save(f"lerobot:{path}")
    assert (path / "videos/mine.mp4").read_bytes() == b"mine"


def test_without_pyarrow_the_error_says_what_to_install(real, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(ExtraError, match=r"understudy-il\[data\]"):
        us.load(real)


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


def replaced(name, array):
    return lambda table: table.set_column(table.column_names.index(name), name, array)


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
