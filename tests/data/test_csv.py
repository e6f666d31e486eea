"""CSV files: one row per step."""

import csv
import dataclasses

import numpy as np
import pytest

import understudy as us
from support.format_fuzzing import FORMAT_TARGETS, assert_same_facts, demonstrations, fuzz_format
from understudy.core.errors import DemonstrationError, RunError, SettingError, UnknownNameError
from understudy.data import files

LOST = ("horizon", "horizon_from_data", "env", "recorded_space", "bounds_from_data")
LOST_DETAILS = ("action_units", "origin")


@pytest.mark.parametrize("discrete", [False, True])
def test_a_csv_file_keeps_all_but_bounds_horizon_and_origin(tmp_path, discrete):
    given = demonstrations(discrete)
    if discrete:  # a discrete action has no names of dimensions
        given = dataclasses.replace(given, details=dataclasses.replace(given.details, action_names=None))
    given.save(tmp_path / "d.csv")
    assert_same_facts(us.load(tmp_path / "d.csv"), given, LOST, LOST_DETAILS)


def test_episodes_that_end_in_terminal_states_do_so_after_a_csv_file(tmp_path):
    given = us.Demonstrations.from_arrays(np.zeros((5, 2)), np.zeros((5, 1)), [2, 3], ends="terminal")
    assert given.terminals is None
    given.save(tmp_path / "d.csv")
    np.testing.assert_array_equal(us.load(tmp_path / "d.csv").transitions().terminal, given.transitions().terminal)


def test_other_next_observations_stand_in_every_row(tmp_path):
    rng = np.random.default_rng(0)
    given = us.Demonstrations.from_arrays(
        rng.normal(size=(6, 2)), rng.normal(size=(6, 1)), [2, 4], next_observations=rng.normal(size=(6, 2))
    )
    given.save(tmp_path / "d.csv")
    assert_same_facts(us.load(tmp_path / "d.csv"), given, ("recorded_space",), ())


def test_many_rows_are_read_in_blocks(tmp_path):
    rng = np.random.default_rng(0)
    given = us.Demonstrations.from_arrays(
        rng.normal(size=(10_000, 2)), rng.normal(size=(10_000, 1)), [4000, 96, 5904], last_observations=np.ones((3, 2))
    )
    given.save(tmp_path / "d.csv")
    assert_same_facts(us.load(tmp_path / "d.csv"), given, ("recorded_space",), ())


def text(folder, header, *rows):
    path = folder / "d.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_a_file_of_another_program_is_read(tmp_path):
    path = text(
        tmp_path,
        "time,timestamp,episode,obs_1,obs_0,action_0,terminated,success",
        "noon,0.0,7,1.5,0.5,1,False,False",
        "noon,0.1,7,2.5,1,-1,True,True",
        "",
        '"a, b",0.0,3,3.5,2,0.25,False,False',
    )
    d = us.load(path)
    np.testing.assert_array_equal(d.observations, [[0.5, 1.5], [1, 2.5], [2, 3.5]])
    np.testing.assert_array_equal(d.actions, [[1], [-1], [0.25]])
    assert d.lengths.tolist() == [2, 1]
    assert d.terminals.tolist() == [False, True, False]
    assert d.details.successes.tolist() == [True, False]
    assert d.details.fps == 10.0
    assert d.last_observations is None


def test_episodes_end_at_terminal_or_truncated_steps_without_numbers(tmp_path):
    path = text(tmp_path, "obs_0,action,terminal,truncated", "1,0,0,0", "2,1,1,0", "3,2,0,1", "4,0,0,0")
    d = us.load(path)
    assert d.lengths.tolist() == [2, 1, 1]
    assert d.terminals.tolist() == [False, True, False, False]
    assert d.action_space == us.Discrete(3)


def test_keys_choose_columns_by_the_names_of_parts(tmp_path):
    demonstrations(False).save(tmp_path / "d.csv")
    d = us.load(tmp_path / "d.csv", keys=["goal", "arm.joints"])
    assert d.obs_parts == (("goal", 1), ("arm.joints", 2))
    np.testing.assert_array_equal(d.observations, demonstrations(False).observations[:, [2, 0, 1]])
    np.testing.assert_array_equal(d.last_observations, demonstrations(False).last_observations[:, [2, 0, 1]])
    with pytest.raises(UnknownNameError, match="did you mean 'goal'"):
        us.load(tmp_path / "d.csv", keys=["goals"])
    with pytest.raises(SettingError, match="CSV files have no named subsets"):
        us.load(tmp_path / "d.csv", filter="train")


BAD = {
    "misnamed actions": (
        ("obs_0,act_0,episode", "1,1,0"),
        "no columns action.NAME, action_0 or action, only obs_0",
    ),
    "no observations": (("action_0,episode", "1,0"), "no columns observation.NAME"),
    "no end of episodes": (("obs_0,action_0", "1,2"), "nothing says where episodes end.*episodes=1"),
    "a gap": (("obs_0,obs_2,action_0,episode", "1,1,1,0"), "no column obs_1"),
    "two kinds": (("obs_0,observation.x,action_0,episode", "1,1,1,0"), "observation.NAME and obs_0"),
    "a column twice": (("obs_0,obs_0,action_0,episode", "1,1,1,0"), "'obs_0' twice"),
    "an empty cell": (("obs_0,action_0,episode", "1,2,0", "1,,0"), "'action_0' has '' in row 1: a number is needed"),
    "text": (("obs_0,action_0,episode", "one,2,0"), "'obs_0' has 'one' in row 0"),
    "NaN": (("obs_0,action_0,episode", "nan,2,0"), "observations has 1 values that are NaN"),
    "a number too large": (("obs_0,action_0,episode", "1e300,2,0"), "observations has 1 values"),
    "half a row": (("obs_0,action_0,episode", "1,2"), "row 0 has 2 of 3 columns"),
    "nothing": (("",), "it is empty: a header"),
    "no rows": (("obs_0,action_0,episode",), "a header and no rows"),
    "mixed episodes": (("obs_0,action_0,episode", "1,1,0", "1,1,1", "1,1,0"), "episode 0 are not consecutive"),
    "a half action": (("obs_0,action,episode", "1,0.5,0"), "action is 0.5 in row 0.*action_0"),
    "a flag of 2": (("obs_0,action,episode,terminal", "1,0,0,2"), "'terminal' has '2' in row 0: 0, 1, True or False"),
    "a terminal state inside": (("obs_0,action,episode,terminal", "1,0,0,1", "1,0,0,0"), "terminals is True inside"),
    "some next observations": (
        ("obs_0,action,episode,next_obs_0", "1,0,0,2", "1,0,0,", "1,0,0,2"),
        "2 of 3 rows have a next observation",
    ),
    "a next observation too few": (
        ("obs_0,obs_1,action,episode,next_obs_0", "1,1,0,0,2"),
        "1 columns of next",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_in_one_line(case, tmp_path):
    lines, words = BAD[case]
    with pytest.raises(DemonstrationError, match=words) as error:
        us.load(text(tmp_path, *lines))
    assert "d.csv" in str(error.value)
    assert "\n" not in str(error.value)


def test_one_episode_needs_no_mark_if_it_is_asked_for(tmp_path):
    path = text(tmp_path, "obs_0,action_0", "1,2", "2,3")
    assert us.load(path, episodes=1).lengths.tolist() == [2]


def test_a_csv_file_is_recognised_by_its_header_and_replaced_only_if_told(tmp_path):
    demonstrations(False).save(tmp_path / "d.csv")
    (tmp_path / "d.csv").rename(tmp_path / "d.txt")
    assert files.find_format(tmp_path / "d.txt")[0].name == "csv"
    with pytest.raises(RunError, match="already exists"):
        demonstrations(False).save(f"csv:{tmp_path / 'd.txt'}", replace=False)
    with open(tmp_path / "d.txt", newline="") as file:
        assert len(list(csv.reader(file))) == 13


def test_damaged_csv_files_are_read_or_refused_by_name(tmp_path):
    outcomes = fuzz_format(FORMAT_TARGETS["csv"], tmp_path, range(150))
    assert outcomes["refused"] > 75
