"""LeRobot data sets: what lerobot wrote is read value by value, what is written reads the same, damage is refused."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import understudy as us
from support.arrow_data import (
    LENGTHS,
    TASKS,
    assert_equal,
    change_info,
    copied,
    demonstrations,
    lerobot_frames,
    replaced,
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
