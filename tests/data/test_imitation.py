"""imitation's trajectories: those of imitation and datasets are read, they read what is written, damage is refused."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from support.arrow_data import LENGTHS, assert_equal, copied, demonstrations, write_old_imitation
from understudy.core.errors import DemonstrationError, RunError, SettingError

DATA = "data-00000-of-00001.arrow"


def rows(demos):
    """The rows of imitation's directory."""
    ends = np.cumsum(demos.lengths)
    spans = list(zip(ends - demos.lengths, ends, strict=True))
    return {
        "obs": [np.concatenate([demos.observations[a:b], demos.next_observations[b - 1 : b]]) for a, b in spans],
        "acts": [demos.actions[a:b] for a, b in spans],
        "infos": [["{}"] * (b - a) for a, b in spans],
        "terminal": [bool(demos.terminals[b - 1]) for _, b in spans],
        "rews": [demos.rewards[a:b] for a, b in spans],
    }


def write_directory(path, columns, **options):
    """A directory with one Arrow file, as datasets writes it."""
    path.mkdir()
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    with pa.ipc.new_stream(path / DATA, table.schema, **options) as stream:
        stream.write_table(table)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": DATA}]}), encoding="utf-8")
    (path / "dataset_info.json").write_text("{}", encoding="utf-8")
    return path


def lists(values, depth=2, kind=None):
    for _ in range(depth):
        kind = pa.list_(kind or pa.float32())
    return pa.array([one.tolist() if isinstance(one, np.ndarray) else one for one in values], kind)


def columns(demos):
    made = rows(demos)
    return {
        "obs": lists(made["obs"]),
        "acts": lists(made["acts"]),
        "infos": pa.array(made["infos"]),
        "terminal": pa.array(made["terminal"]),
        "rews": lists(made["rews"], 1),
    }


def test_what_imitation_wrote_is_read(tmp_path):
    demos = us.load(copied("imitation", tmp_path))
    obs = [np.random.default_rng(i).normal(size=(5 + i, 3)).astype(np.float32) for i in range(3)]
    np.testing.assert_array_equal(demos.observations, np.concatenate([one[:-1] for one in obs]))
    np.testing.assert_array_equal(demos.next_observations, np.concatenate([one[1:] for one in obs]))
    acts = [np.random.default_rng(i).normal(size=(4 + i, 2)).astype(np.float32) for i in range(3)]
    np.testing.assert_array_equal(demos.actions, np.concatenate(acts))
    np.testing.assert_array_equal(demos.rewards, np.concatenate([np.arange(4 + i) for i in range(3)]))
    np.testing.assert_array_equal(np.flatnonzero(demos.terminals), [8])


def test_what_imitation_wrote_without_rewards_and_with_whole_actions_is_read(tmp_path):
    demos = us.load(copied("imitation_discrete", tmp_path))
    assert demos.action_space == us.Discrete(3)
    np.testing.assert_array_equal(demos.actions, np.concatenate([np.arange(4 + i) % 3 for i in range(3)]))
    assert demos.rewards is None


@pytest.mark.slow
@pytest.mark.parametrize("discrete", [False, True])
def test_datasets_reads_what_is_written_and_the_other_way_round(tmp_path, discrete):
    import datasets

    demos = demonstrations(discrete)
    demos.save(f"imitation:{tmp_path / 'ours'}")
    found = datasets.load_from_disk(str(tmp_path / "ours"))
    made = rows(demos)
    for i, row in enumerate(found):  # imitation casts each row to arrays
        for name, value in row.items():
            np.testing.assert_array_equal(np.asarray(value), np.asarray(made[name][i]), err_msg=name)
    datasets.Dataset.from_dict(made).save_to_disk(str(tmp_path / "theirs"), num_shards=2)
    assert_equal(us.load(tmp_path / "theirs"), demos)
    assert us.load(tmp_path / "theirs", episodes=1).lengths.tolist() == [4]


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("rewards", [False, True])
def test_what_is_written_reads_the_same(tmp_path, discrete, rewards):
    demos = demonstrations(discrete, **({} if rewards else {"rewards": None}))
    for _ in range(2):
        demos.save(f"imitation:{tmp_path / 'new'}")
    assert_equal(us.load(tmp_path / "new"), demos)
    assert_equal(us.load(tmp_path / "new", episodes=2), demos.first(2))


def test_the_columns_are_those_of_imitation(tmp_path):
    demonstrations().save(f"imitation:{tmp_path / 'new'}")
    with pa.ipc.open_stream(tmp_path / "new" / DATA) as stream:
        ours = stream.read_all()
    with pa.ipc.open_stream(copied("imitation", tmp_path) / DATA) as stream:
        theirs = stream.schema
    assert ours.schema.names == theirs.names
    assert ours.column("infos").to_pylist() == [["{}"] * length for length in LENGTHS]


def test_the_final_observations_are_needed_to_write(tmp_path):
    with pytest.raises(DemonstrationError, match="unknown"):
        demonstrations(last_observations=None).save(f"imitation:{tmp_path / 'new'}")
    other = demonstrations(last_observations=None, next_observations=np.zeros((12, 3)))
    with pytest.raises(DemonstrationError, match="next step"):
        other.save(f"imitation:{tmp_path / 'new'}")
    assert not (tmp_path / "new").exists()


def test_nothing_of_somebody_else_is_replaced(tmp_path):
    path = copied("imitation", tmp_path)
    with pytest.raises(RunError, match="holds"):
        demonstrations().save(f"imitation:{path}", replace=False)
    (path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match="holds"):
        demonstrations().save(f"imitation:{path}")
    assert us.load(path).steps == 15


@pytest.mark.parametrize("discrete", [False, True])
def test_the_old_npz_is_read_without_its_infos(tmp_path, discrete):
    demos = demonstrations(discrete)
    assert_equal(us.load(write_old_imitation(tmp_path / "old.npz", demos)), demos)
    assert us.load(f"imitation:{tmp_path / 'old.npz'}", episodes=1).lengths.tolist() == [4]


NPZ_DAMAGE = {
    "too many splits": {"indices": [4, 7, 9]},
    "a split at 0": {"indices": [0, 7]},
    "unsorted splits": {"indices": [7, 4]},
    "splits beyond the end": {"indices": [4, 70]},
    "negative splits": {"indices": [-4, 7]},
    "real splits": {"indices": [4.0, 7.0]},
    "pickled observations": {"obs": np.array([None] * 15, object)},
    "a row too few": {"obs": np.zeros((14, 3))},
    "a NaN": {"obs": np.full((15, 3), np.nan)},
    "images": {"obs": np.zeros((15, 3, 3))},
    "a flag that is none": {"terminal": [0, 2, 1]},
    "a single flag": {"terminal": np.array(True)},
    "single numbers": {"obs": np.array(1.0), "acts": np.array(1.0)},
    "too few rewards": {"rews": np.zeros(11)},
}


@pytest.mark.parametrize("damage", NPZ_DAMAGE)
def test_a_damaged_npz_is_refused(tmp_path, damage):
    path = write_old_imitation(tmp_path / "old.npz", demonstrations(), **NPZ_DAMAGE[damage])
    with pytest.raises(DemonstrationError, match=r"old\.npz") as error:
        us.load(path)
    assert "\n" not in str(error.value)


MADE = demonstrations()
ROWS = rows(MADE)
DAMAGE = {
    "a NaN": {"obs": lists([one * np.nan for one in ROWS["obs"]])},
    "a missing episode": {"obs": lists([[[0.0] * 3] * 5, [[0.0] * 3] * 4, [[0.0] * 3] * 6]).take([0, None, 2])},
    "a missing number": {"rews": pa.array([[None] * n for n in LENGTHS], pa.list_(pa.float32()))},
    "a row too few": {"obs": lists([one[:-1] for one in ROWS["obs"]])},
    "rows of different widths": {
        "obs": lists([[[0.0] * (3 + (i == j == 1)) for j in range(n + 1)] for i, n in enumerate(LENGTHS)])
    },
    "images": {"obs": lists([[[[0.0]] * 3] * (n + 1) for n in LENGTHS], 3)},
    "five levels": {"obs": lists([[[[[0.0]]] * 3] * (n + 1) for n in LENGTHS], 4)},
    "text": {"acts": pa.array([["x"] * n for n in LENGTHS])},
    "records": {"acts": pa.array([[{"x": 1.0}] * n for n in LENGTHS])},
    "a dictionary": {"terminal": pa.array(["a", "b", "c"]).dictionary_encode()},
    "nothing": {"rews": pa.nulls(3)},
    "too few rewards": {"rews": lists([one[:-1] for one in ROWS["rews"]], 1)},
    "a flag that is none": {"terminal": pa.array([0, 2, 1])},
    "empty episodes": {"obs": lists([[[0.0] * 3]] * 3), "acts": lists([[]] * 3), "rews": lists([[]] * 3, 1)},
    "no width": {"obs": pa.array([[[]] * (n + 1) for n in LENGTHS], pa.list_(pa.list_(pa.float32(), 0)))},
    "dates": {"rews": pa.array([[0] * n for n in LENGTHS], pa.list_(pa.date32()))},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_columns_are_refused_in_one_line(tmp_path, damage):
    path = write_directory(tmp_path / "directory", {**columns(MADE), **DAMAGE[damage]})
    with pytest.raises(DemonstrationError, match="directory") as error:
        us.load(path)
    assert "\n" not in str(error.value)


def test_columns_as_they_should_be_are_read(tmp_path):
    assert_equal(us.load(write_directory(tmp_path / "directory", columns(MADE))), MADE)


def test_infos_are_not_decoded(tmp_path):
    infos = pa.array([[b"\xff\xfe \x80"] * n for n in LENGTHS])
    assert_equal(us.load(write_directory(tmp_path / "directory", {**columns(MADE), "infos": infos})), MADE)


@pytest.mark.parametrize("missing", ["obs", "acts", "terminal"])
def test_a_missing_column_is_named(tmp_path, missing):
    table = pa.table(columns(MADE)).drop_columns([missing])
    with pytest.raises(DemonstrationError, match=f"0 columns '{missing}'"):
        us.load(write_directory(tmp_path / "directory", table))


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    table = pa.table(columns(MADE))
    with pytest.raises(DemonstrationError, match="2 columns 'acts'"):
        us.load(write_directory(tmp_path / "directory", table.append_column("acts", table["acts"])))


def test_compressed_record_batches_are_refused(tmp_path):
    options = {"options": pa.ipc.IpcWriteOptions(compression="zstd")}
    with pytest.raises(DemonstrationError, match="compressed"):
        us.load(write_directory(tmp_path / "directory", columns(MADE), **options))


@pytest.mark.parametrize(
    "name", ["../outside.arrow", "/etc/passwd", "..", ".", "", "a/b", "x\0y", "x" * 300, "missing.arrow"]
)
def test_a_file_name_that_is_not_one_in_the_directory_is_refused(tmp_path, name):
    path = copied("imitation", tmp_path)
    shutil.copy(path / DATA, tmp_path / "outside.arrow")
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}), encoding="utf-8")
    with pytest.raises(DemonstrationError, match="imitation"):
        us.load(path)


def test_a_file_that_is_named_twice_is_refused(tmp_path):
    path = copied("imitation", tmp_path)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": DATA}] * 2}), encoding="utf-8")
    with pytest.raises(DemonstrationError, match="names a file twice"):
        us.load(path)


def test_links_out_of_the_directory_are_refused(tmp_path):
    path = copied("imitation", tmp_path)
    shutil.move(path / DATA, tmp_path / "outside")
    (path / DATA).symlink_to(tmp_path / "outside")
    with pytest.raises(DemonstrationError, match="link out of the directory"):
        us.load(path)


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"_data_files": []}', '{"_data_files": [{"filename": 3}]}'])
def test_a_damaged_state_is_refused(tmp_path, state):
    path = copied("imitation", tmp_path)
    (path / "state.json").write_text(state, encoding="utf-8")
    with pytest.raises(DemonstrationError, match="imitation"):
        us.load(path)


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 100, 1000, -1, -8, -9])
def test_a_cut_file_is_refused(tmp_path, cut):
    path = copied("imitation", tmp_path)
    os.truncate(path / DATA, cut % os.path.getsize(path / DATA))
    with pytest.raises(DemonstrationError, match="imitation"):
        us.load(path)


def test_keys_and_filters_are_refused(tmp_path):
    path = copied("imitation", tmp_path)
    for more in ({"keys": ["a"]}, {"filter": "train"}):
        with pytest.raises(SettingError, match="imitation"):
            us.load(path, **more)
