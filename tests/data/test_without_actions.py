"""Demonstrations of observations alone: they are read, written and checked like others, and have no actions."""

import numpy as np
import pytest

import understudy as us
from understudy.cli.demos_report import show_demonstrations
from understudy.core.errors import DemonstrationError, SettingError
from understudy.data.files import WITHOUT_ACTIONS
from understudy.data.formats import FORMATS
from understudy.data.inspection import lost_facts

OBS = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
LENGTHS = np.array([5, 7])
FINAL = np.ones((2, 2), np.float32)
SPACES = {"continuous": us.Continuous((-1.0, 0.5), (1.0, 2.0)), "discrete": us.Discrete(3)}


def demonstrations(space=None):
    return us.Demonstrations.from_arrays(
        OBS, None, LENGTHS, last_observations=FINAL, terminals=np.arange(12) == 4, action_space=space
    )


@pytest.mark.parametrize("space", [None, *SPACES.values()], ids=["unknown", *SPACES])
@pytest.mark.parametrize("name", WITHOUT_ACTIONS)
def test_they_are_read_as_they_were_written(name, space, tmp_path):
    given = demonstrations(space)
    given.save(f"{name}:{tmp_path / 'demos'}{FORMATS[name].suffix or ''}")
    back = us.load(tmp_path / f"demos{FORMATS[name].suffix or ''}")
    assert not back.has_actions
    assert back.recorded_space == (None if name == "csv" else space)
    assert lost_facts(given, back) == (["action bounds"] if name == "csv" and space else [])
    np.testing.assert_array_equal(back.next_observations, given.next_observations)


@pytest.mark.parametrize("name", [name for name, one in FORMATS.items() if one.write and name not in WITHOUT_ACTIONS])
def test_formats_with_actions_refuse_them(name, tmp_path):
    with pytest.raises(SettingError, match="cannot hold demonstrations without actions: write one of npz, csv, arrays"):
        demonstrations(us.Discrete(2)).save(f"{name}:{tmp_path / 'demos-v0'}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["obs", "states"])
def test_plain_arrays_without_actions_are_read(name, tmp_path):
    np.savez(tmp_path / "a.npz", **{name: OBS.reshape(3, 4, 2)})
    loaded = us.load(tmp_path / "a.npz")
    assert (loaded.episodes, loaded.steps, loaded.has_actions) == (3, 12, False)
    np.savez(tmp_path / "b.npz", **{name: OBS, "episode_ends": np.array([5, 12])})
    np.testing.assert_array_equal(us.load(tmp_path / "b.npz").lengths, LENGTHS)


def test_an_array_of_unknown_name_may_be_the_actions(tmp_path):
    np.savez(tmp_path / "a.npz", obs=OBS, lengths=LENGTHS, moves=OBS)
    with pytest.raises(DemonstrationError, match="it has no actions"):
        us.load(f"arrays:{tmp_path / 'a.npz'}")


def test_whatever_reads_actions_raises_one_line():
    given = demonstrations()
    with pytest.raises(DemonstrationError, match=r"have no actions: record them .* preset 'observations'"):
        _ = given.actions
    with pytest.raises(DemonstrationError, match="neither actions nor an action space: pass the environment"):
        _ = given.spec
    assert "no actions, 2 episodes, 12 steps, observations of 2" in repr(given)


def test_parts_of_them_have_no_actions_either():
    given = demonstrations()
    parts = (given.first(1), given.after(1), given.with_keys([1]), us.load("Pendulum", episodes=2).without_actions())
    assert not any(part.has_actions for part in parts)


def test_an_environment_gives_the_action_space_and_the_actions_are_valid():
    given = demonstrations()
    task = us.Spec((2,), SPACES["continuous"], 9)
    placed = given.for_task(task, "Somewhere")
    assert placed.spec == us.Spec((2,), SPACES["continuous"], 9)
    assert not placed.has_actions
    np.testing.assert_array_equal(placed.transitions().act, np.tile([0.0, 0.5], (12, 1)))
    with pytest.raises(DemonstrationError, match="actions are discrete, those of Somewhere continuous"):
        demonstrations(us.Discrete(2)).for_task(task, "Somewhere")


def test_actions_removed_from_recorded_ones_leave_only_stated_bounds():
    bounds = us.load("Pendulum", episodes=1)
    assert bounds.without_actions().recorded_space == bounds.action_space
    guessed = us.Demonstrations.from_arrays(OBS, OBS, LENGTHS)
    assert guessed.without_actions().recorded_space is None


def test_inspecting_them_says_so(capsys):
    show_demonstrations(demonstrations(SPACES["continuous"]), "npz", "demos.npz")
    assert "no actions" in capsys.readouterr().out
