"""Minari's Arrow and Parquet episodes: those that Minari wrote are read value by value, damage is refused."""

import os
import shutil
import warnings
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

import understudy as us
from support.arrow_data import as_column
from understudy.core.errors import DemonstrationError
from understudy.core.spaces import leaves
from understudy.data.formats.minari_arrow import open_arrow_episodes

LENGTHS = (4, 5, 6)
NESTED = spaces.Dict(
    {
        "a": spaces.Box(-1, 1, (2, 2), np.float64, seed=1),
        "b": spaces.Discrete(3, seed=2),
        "c": spaces.Tuple((spaces.MultiBinary(3, seed=3), spaces.Box(0, 1, (), np.float32, seed=4))),
    }
)
BOX = spaces.Box(-1, 1, (3,), np.float32, seed=5)
ACTIONS = (
    spaces.Box(-1, 1, (2,), np.float32, seed=6),
    spaces.Discrete(4, seed=7),
    spaces.MultiDiscrete([2, 3], seed=8),
)


def stacked(space, values):
    if isinstance(space, spaces.Dict):
        return {name: stacked(one, [value[name] for value in values]) for name, one in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(one, [value[i] for value in values]) for i, one in enumerate(space.spaces))
    return list(values)


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """Writes a data set with Minari itself; returns it with its folder."""
    root = tmp_path_factory.mktemp("minari")
    os.environ["MINARI_DATASETS_PATH"] = str(root)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import minari
        from minari.data_collector.episode_buffer import EpisodeBuffer

        def write(data_format, observed, acted, infos=True):
            name = f"test/{data_format}{len(list(root.glob('test/*-v*')))}-v0"
            episodes = [
                EpisodeBuffer(
                    id=i,
                    observations=stacked(observed, [observed.sample() for _ in range(length + 1)]),
                    actions=stacked(acted, [acted.sample() for _ in range(length)]),
                    rewards=list(np.random.default_rng(i).normal(size=length)),
                    terminations=[False] * (length - 1) + [i != 1],
                    truncations=[False] * (length - 1) + [i == 1],
                    infos={"success": [False] * length + [i != 1], "note": ["x"] * (length + 1)} if infos else {},
                )
                for i, length in enumerate(LENGTHS)
            ]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = minari.create_dataset_from_buffers(
                    name, buffer=episodes, observation_space=observed, action_space=acted, data_format=data_format
                )
            return made, root / name / "data"

        yield write
    del os.environ["MINARI_DATASETS_PATH"]


def described(folder, observed=BOX, acted=ACTIONS[0]):
    data_format = next(folder.glob("0/part-0.*")).suffix.removeprefix(".")
    return SimpleNamespace(folder=folder, data_format=data_format, leaves=tuple(leaves(observed)), action_space=acted)


def at(values, path):
    for name in path:
        values = values[int(name)] if isinstance(values, tuple) else values[name]
    return values


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
@pytest.mark.parametrize(("observed", "acted"), [(BOX, ACTIONS[0]), (NESTED, ACTIONS[1]), (BOX, ACTIONS[2])])
def test_all_numbers_that_minari_wrote_are_read(write, data_format, observed, acted):
    theirs, folder = write(data_format, observed, acted)
    about = described(folder, observed, acted)
    with open_arrow_episodes(about, 3) as source:
        assert source.lengths == list(LENGTHS)
        for i, episode in enumerate(theirs.iterate_episodes()):
            found = source.episode(i)
            for (path, space), values in zip(about.leaves, found.observations, strict=True):
                np.testing.assert_array_equal(values, at(episode.observations, path))
                assert values.shape == (LENGTHS[i] + 1, *space.shape)
            np.testing.assert_array_equal(found.actions, episode.actions)
            np.testing.assert_array_equal(found.rewards, episode.rewards)
            np.testing.assert_array_equal(found.terminations, episode.terminations)
            np.testing.assert_array_equal(found.success, [False] * LENGTHS[i] + [i != 1])


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
@pytest.mark.parametrize("observed", [BOX, NESTED], ids=["box", "nested"])
def test_a_whole_data_set_is_loaded(write, data_format, observed):
    theirs, folder = write(data_format, observed, ACTIONS[2])
    ours = us.load(folder.parent)
    flat = [[spaces.flatten(observed, one) for one in rows_of(observed, e.observations)] for e in theirs]
    np.testing.assert_array_equal(ours.observations, np.float32(np.concatenate([rows[:-1] for rows in flat])))
    np.testing.assert_array_equal(ours.last_observations, np.float32([rows[-1] for rows in flat]))
    np.testing.assert_array_equal(ours.actions, np.concatenate([e.actions @ [3, 1] for e in theirs]))
    np.testing.assert_array_equal(ours.rewards, np.float32(np.concatenate([e.rewards for e in theirs])))
    np.testing.assert_array_equal(ours.terminals, np.concatenate([e.terminations for e in theirs]))
    assert ours.details.successes.tolist() == [True, False, True]
    assert ours.action_space == us.Discrete(6)


def rows_of(space, values):
    """The observations of an episode, one after the other."""
    if isinstance(space, spaces.Dict):
        columns = {name: rows_of(one, values[name]) for name, one in space.spaces.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(space, spaces.Tuple):
        return list(zip(*(rows_of(one, values[i]) for i, one in enumerate(space.spaces)), strict=True))
    return list(values)


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
def test_chosen_keys_and_first_episodes_are_read(write, data_format):
    theirs, folder = write(data_format, NESTED, ACTIONS[0], infos=False)
    about = described(folder, NESTED)
    about.leaves = (about.leaves[3], about.leaves[0])
    shutil.rmtree(folder / "2")
    with open_arrow_episodes(about, 2) as source:
        found = source.episode(1)
        observations = theirs[1].observations
        np.testing.assert_array_equal(found.observations[0], observations["c"][1])
        np.testing.assert_array_equal(found.observations[1], observations["a"])
        assert found.success is None


COLUMNS = {
    "observations": as_column(np.zeros((5, 3), np.float32)),
    "actions": as_column(np.zeros((5, 2), np.float32)),
    "rewards": pa.array(np.zeros(5)),
    "terminations": pa.array([False] * 5),
    "truncations": pa.array([False] * 5),
}


def written(folder, data_format, **changes):
    """One episode of four steps."""
    table = pa.table({**COLUMNS, **changes})
    path = folder / "0" / f"part-0.{data_format}"
    path.parent.mkdir(parents=True)
    if data_format == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=2)
    return folder


def read_all(folder):
    with open_arrow_episodes(described(folder), 1) as source:
        return source.episode(0)


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
def test_several_record_batches_are_joined(tmp_path, data_format):
    episode = read_all(written(tmp_path / "data", data_format, rewards=pa.array(np.arange(5.0))))
    np.testing.assert_array_equal(episode.rewards, np.arange(4.0))
    assert episode.observations[0].shape == (5, 3)


DAMAGE = {
    "a missing number": {"rewards": pa.array([None, 1.0, 2.0, 3.0, 4.0])},
    "a missing row": {"observations": pa.array([None] + [[0.0] * 3] * 4, pa.list_(pa.float32(), 3))},
    "text": {"rewards": pa.array(["x"] * 5)},
    "images": {"observations": pa.array([b"jpeg"] * 5)},
    "records": {"observations": pa.array([{"a": 1.0}] * 5)},
    "too wide rows": {"observations": as_column(np.zeros((5, 4), np.float32))},
    "rows of different lengths": {"actions": pa.array([[0.0] * (2 + (i == 1)) for i in range(5)])},
    "flags that are none": {"terminations": pa.array(range(5))},
}


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_columns_are_refused_in_one_line(tmp_path, data_format, damage):
    folder = written(tmp_path / "data", data_format, **DAMAGE[damage])
    with pytest.raises(DemonstrationError, match="part-0") as error:
        read_all(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
def test_an_episode_without_steps_a_cut_file_and_a_link_outside_are_refused(tmp_path, data_format):
    short = {name: column[:1] for name, column in COLUMNS.items()}
    with pytest.raises(DemonstrationError, match="1 rows"):
        read_all(written(tmp_path / "short", data_format, **short))
    path = written(tmp_path / "data", data_format) / "0" / f"part-0.{data_format}"
    whole = path.read_bytes()
    for length in (0, 3, 8, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DemonstrationError, match="part-0"):
            read_all(tmp_path / "data")
    path.write_bytes(whole)
    shutil.move(path, tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(DemonstrationError, match="link out of the directory"):
        read_all(tmp_path / "data")


@pytest.mark.parametrize("infos", [[{"success": "yes"}] * 5, [{"success": None}] * 5, [1] * 5])
@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
def test_infos_that_are_no_flags_are_left_out(tmp_path, data_format, infos):
    assert read_all(written(tmp_path / "data", data_format, infos=pa.array(infos))).success is None
