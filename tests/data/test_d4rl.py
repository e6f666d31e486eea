"""D4RL's files, written with h5py: values, ends of episodes, and what is refused."""

import h5py
import numpy as np
import pytest

import understudy as us
from support.hdf5_files import write_d4rl
from understudy.core.errors import DemonstrationError, ExtraError, RunError, SettingError


def test_all_values_are_read_and_episodes_end_at_terminals_and_timeouts(tmp_path):
    arrays = write_d4rl(tmp_path / "a.hdf5")
    d = us.load(tmp_path / "a.hdf5")
    assert d.lengths.tolist() == [4, 4, 4]  # a timeout, a terminal, cut off
    for name in ("observations", "actions", "rewards", "terminals"):
        np.testing.assert_array_equal(getattr(d, name), arrays[name])
    assert d.bounds_from_data
    assert (d.details.origin, d.env, d.horizon) == ("a", None, 4)


def test_after_a_timeout_the_next_row_is_another_episode(tmp_path):
    arrays = write_d4rl(tmp_path / "a.hdf5")
    steps = us.load(tmp_path / "a.hdf5").transitions()
    assert np.flatnonzero(steps.terminal).tolist() == [7]
    assert np.flatnonzero(steps.last).tolist() == [3, 7, 11]
    assert np.flatnonzero(~steps.known_next).tolist() == [3, 7, 11]
    assert not (steps.next_obs[3] == arrays["observations"][4]).any()


def test_next_observations_say_what_follows_a_timeout(tmp_path):
    after = np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32)
    write_d4rl(tmp_path / "a.hdf5", next_observations=after)
    steps = us.load(tmp_path / "a.hdf5").transitions()
    assert steps.known_next.all()
    np.testing.assert_array_equal(steps.next_obs, after)


def test_columns_and_numbers_in_place_of_booleans_are_read(tmp_path):
    write_d4rl(tmp_path / "plain.hdf5")
    columns = {
        "rewards": np.linspace(0, 1, 12).reshape(12, 1),
        "terminals": (np.arange(12) == 7).astype(np.float32).reshape(12, 1),
        "timeouts": (np.arange(12) == 3).astype(np.uint8).reshape(12, 1),
        "actions": np.arange(12) % 3,
    }
    write_d4rl(tmp_path / "a.hdf5", **columns)
    d = us.load(tmp_path / "a.hdf5")
    assert d.lengths.tolist() == [4, 4, 4]
    assert d.action_space == us.Discrete(3)
    np.testing.assert_array_equal(d.rewards, columns["rewards"][:, 0].astype(np.float32))


def test_the_first_episodes_are_read_without_the_others(tmp_path):
    observations = np.random.default_rng(1).normal(size=(12, 3))
    observations[8:] = np.nan
    write_d4rl(tmp_path / "a.hdf5", observations=observations)
    assert us.load(tmp_path / "a.hdf5", episodes=2).lengths.tolist() == [4, 4]
    with pytest.raises(DemonstrationError, match="NaN"):
        us.load(tmp_path / "a.hdf5")
    write_d4rl(tmp_path / "b.hdf5")
    with pytest.raises(DemonstrationError, match="choose 1 to 3"):
        us.load(tmp_path / "b.hdf5", episodes=4)


def test_without_timeouts_the_time_limit_of_a_known_task_cuts_episodes(tmp_path):
    terminals = np.isin(np.arange(3700), (499, 2999))
    rng = np.random.default_rng(0)
    options = {"observations": rng.normal(size=(3700, 3)), "actions": rng.uniform(-1, 1, (3700, 2))}
    options |= {"rewards": None, "terminals": terminals, "timeouts": None}
    for name in ("hopper_medium.hdf5", "Ant-v2.hdf5"):
        write_d4rl(tmp_path / name, 3700, **options)
        d = us.load(tmp_path / name)
        assert d.lengths.tolist() == [500, 1000, 1000, 500, 700]
        assert d.horizon == 1000
        assert np.flatnonzero(d.terminals).tolist() == [499, 2999]


@pytest.mark.parametrize("name", ["mine.hdf5", "Ant_maze_u-maze.hdf5", "pendulum.hdf5"])
def test_without_timeouts_an_unknown_time_limit_is_asked_for(tmp_path, name):
    write_d4rl(tmp_path / name, timeouts=None)
    with pytest.raises(DemonstrationError, match="no timeouts"):
        us.load(tmp_path / name)
    d = us.load(tmp_path / name, ends="terminal")
    assert d.lengths.tolist() == [8, 4]
    assert np.flatnonzero(d.transitions().terminal).tolist() == [7]  # the last episode was cut off


def test_timeouts_alone_end_episodes_in_no_terminal_state(tmp_path):
    write_d4rl(tmp_path / "a.hdf5", terminals=None)
    d = us.load(tmp_path / "a.hdf5")
    assert d.lengths.tolist() == [4, 8]
    assert not d.transitions().terminal.any()


WRONG = {
    "no actions": ({"actions": None}, "no actions"),
    "no ends": ({"terminals": None, "timeouts": None}, "neither terminals nor timeouts"),
    "other rows": ({"rewards": np.zeros(11)}, "'rewards' has shape"),
    "two columns": ({"terminals": np.zeros((12, 2))}, "'terminals' has shape"),
    "no flag": ({"timeouts": np.full(12, 0.5)}, "other numbers than 0 and 1"),
    "images": ({"observations": np.zeros((12, 32, 32), np.uint8)}, "a row of numbers per step"),
    "empty": ({"observations": np.zeros((12, 0))}, "'observations' has shape"),
    "infinite": ({"rewards": np.full(12, np.inf)}, "NaN or infinite"),
    "too large": ({"observations": np.full((12, 3), 1e300)}, "NaN or infinite"),
    "texts": ({"observations": np.full((12, 3), b"a")}, "type"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arrays_are_refused_in_one_line_with_the_file(tmp_path, kind):
    arrays, words = WRONG[kind]
    write_d4rl(tmp_path / "a.hdf5", **arrays)
    with pytest.raises(DemonstrationError, match=words) as raised:
        us.load(tmp_path / "a.hdf5")
    assert "a.hdf5" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_any_other_hdf5_file_is_refused_with_its_names(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["episode_0/x"], file["y"] = 1, 2
    with pytest.raises(DemonstrationError, match="only episode_0, y; a Minari data set needs its metadata"):
        us.load(tmp_path / "a.h5")


def test_keys_filters_and_writing_are_refused(tmp_path):
    write_d4rl(tmp_path / "a.hdf5")
    for options in ({"keys": ["a"]}, {"filter": "train"}):
        with pytest.raises(SettingError, match="D4RL files have none"):
            us.load(tmp_path / "a.hdf5", **options)
    with pytest.raises(SettingError, match="cannot be written"):
        us.load("Pendulum", episodes=1).save("d4rl:b.hdf5")


def test_without_h5py_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    write_d4rl(tmp_path / "a.hdf5")
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ExtraError, match=r"understudy-il\[data\]"):
        us.load(tmp_path / "a.hdf5")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises((DemonstrationError, RunError), match=r"b\.hdf5"):
        us.load(f"d4rl:{tmp_path}/b.hdf5")
