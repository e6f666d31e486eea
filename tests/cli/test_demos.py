"""`understudy demos inspect` and `convert`, and the demonstrations' options of `train`."""

import numpy as np
import pytest

import understudy as us
from support.format_fuzzing import demonstrations
from understudy.core import display
from understudy.core.errors import SettingError
from understudy.data.inspection import facts, histogram, lost_facts, ranges

SMALL = ("--rounds", "1", "--gradient-steps", "2", "--hidden", "8")


@pytest.fixture
def wide(tmp_path):
    """Demonstrations of 120 dimensions, with constant and huge ones."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(5, 60, 30)
    observations = rng.normal(size=(lengths.sum(), 120))
    observations[:, [7, 50]] = 3.0
    observations[:, 99] *= 1e6
    actions = np.clip(rng.normal(size=(lengths.sum(), 3)), -1, 1)
    box = us.Continuous((-1.0,) * 3, (1.0,) * 3)
    us.Demonstrations.from_arrays(observations, actions, lengths, action_space=box).save("wide.npz")
    return actions


def test_inspect_shows_every_fact(understudy, tmp_path):
    demonstrations(False).save(tmp_path / "d.npz")
    status, out, err = understudy("demos", "inspect", "d.npz")
    assert (status, err) == (0, "")
    for words in (
        *("understudy npz", "Somewhere-v0", "12, horizon 8", "3 to 5, median 4 [███]", "arm.joints (2), goal (1)"),
        *("continuous, 2 numbers, N: push, pull", "[-2, 2], [-3, 1]; 0.0%", "2 of 3 in a terminal state, 1 truncated"),
        *("2 of 3 episodes (67%)", "'lift, slowly' 2", "25.0% of the steps, in 3 of 3 episodes", "somewhere/data-v0"),
        *("arm.joints[1]", "steps per second   30"),
    ):
        assert words in out, words


def test_inspect_shortens_many_dimensions_and_warns_of_odd_ones(understudy, wide):
    status, out, _ = understudy("demos", "inspect", "wide.npz")
    assert status == 0
    assert "15 of 120 dimensions" in out
    assert "The other 105 dimensions are between" in out
    assert "warning: constant: observation dimensions 7, 50" in out
    assert "warning: above 10000: observation dimension 99" in out
    low, high = (wide == -1).mean(), (wide == 1).mean()
    assert f"[-1, 1] in all; {low:.1%} of the numbers at the low one, {high:.1%} at the high one" in out
    assert len(out.splitlines()) < 40


def test_inspect_takes_keys_episodes_and_ends(understudy, tmp_path):
    demonstrations(True).save(tmp_path / "d.csv")
    status, out, _ = understudy("demos", "inspect", "d.csv", "--keys", "goal", "--episodes", "2")
    assert status == 0
    assert "1 number: goal (1)" in out
    assert "discrete, 3 (0: 43%, 1: 29%, 2: 29%)" in out
    np.savez(tmp_path / "plain.npz", obs=np.zeros((4, 1)), acts=np.ones((4, 1)), lengths=[2, 2])
    assert "treated as terminal" in understudy("demos", "inspect", "plain.npz", "--ends", "terminal")[1]
    assert "not recorded; the extremes" in understudy("demos", "inspect", "plain.npz")[1]
    assert understudy("demos", "inspect", "plain.npz", "--filter", "train")[0] == 2


def test_a_sparkline_is_drawn_with_other_signs_where_blocks_cannot_be_shown(monkeypatch):
    assert display.sparkline([0, 1, 4, 8]) == " ▁▄█"
    monkeypatch.setattr(display, "encodable", lambda text: "?" * len(text))
    assert display.sparkline([0, 1, 4, 8]) == " _=#"


def test_ranges_and_histograms_are_those_of_numpy():
    array = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    found = ranges(array)
    np.testing.assert_allclose(found.mean, array.mean(0, np.float64))
    np.testing.assert_allclose(found.std, array.std(0, np.float64))
    assert histogram(np.array([3, 4, 4, 6])) == [1, 2, 0, 1]
    assert histogram(np.array([2.0, 2.0])) == [2]
    assert sum(histogram(array[:, 0])) == 1000


def test_convert_says_what_was_written_and_what_was_lost(understudy, tmp_path):
    demonstrations(False).save(tmp_path / "d.npz")
    status, out, err = understudy("demos", "convert", "d.npz", "d.csv")
    assert (status, err) == (0, "")
    assert "3 episodes, 12 steps as CSV: d.csv" in out
    assert "no place for it: environment, horizon, action bounds, units of actions, origin" in out
    status, out, _ = understudy("demos", "convert", "d.csv", "arrays:folder", "--episodes", "2", "--keys", "goal")
    assert (status, out.count("\n")) == (0, 1)
    back = us.load("folder")
    assert (back.episodes, back.obs_parts) == (2, (("goal", 1),))


def test_convert_takes_name_bounds_and_horizon_from_an_environment(understudy, tmp_path):
    assert understudy("demos", "convert", "Pendulum", "d.csv", "--episodes", "2")[0] == 0
    assert us.load("d.csv").bounds_from_data
    assert understudy("demos", "convert", "d.csv", "d.npz", "--env", "Pendulum")[0] == 0
    given, back = us.load("Pendulum", episodes=2), us.load("d.npz")
    assert (back.env, back.spec) == ("Pendulum", given.spec)
    assert lost_facts(given, back) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("Pendulum d.csv", "'d.csv' already exists: pass --replace"),
        ("Pendulum d.foo", "'d.foo' names no known format: choose the ending .csv"),
        ("Pendulum pickle:d", "pickle data sets cannot be written"),
        ("none.npz e.csv", "no file 'none.npz'"),
        ("Pendulum e.csv --episodes 99", "episodes is 99"),
        ("Pendulum e.csv --env CartPole-v1", "shape (3,)"),
    ],
)
def test_convert_names_what_is_wrong(understudy, tmp_path, words, message):
    (tmp_path / "d.csv").write_text("mine")
    status, _, err = understudy("demos", "convert", *words.split())
    assert status == 2
    assert message in err
    assert (tmp_path / "d.csv").read_text() == "mine"
    assert not (tmp_path / "e.csv").exists()


def test_an_old_file_is_replaced_if_told(understudy, tmp_path):
    us.load("Pendulum", episodes=2).save(tmp_path / "d.csv")
    assert understudy("demos", "convert", "Pendulum", "d.csv", "--episodes", "1", "--replace")[0] == 0
    assert us.load("d.csv").episodes == 1


@pytest.mark.parametrize("name", ["d.csv", "d.npz"])
def test_a_file_that_is_no_data_set_is_never_replaced(understudy, tmp_path, name):
    (tmp_path / name).write_text("a manuscript")
    status, _, said = understudy("demos", "convert", "Pendulum", name, "--replace")
    assert status == 2
    assert "is not a data set" in said
    assert (tmp_path / name).read_text() == "a manuscript"


def test_training_takes_keys_of_the_demonstrations(understudy, tmp_path):
    demonstrations(False).save(tmp_path / "d.csv")
    assert understudy("train", "bc", "--demos", "d.csv", "--keys", "goal", *SMALL)[0] == 0
    assert us.load_policy("runs/bc").spec.obs_parts == (("goal", 1),)
    status, _, err = understudy("train", "bc", "--env", "Pendulum", "--filter", "train", *SMALL)
    assert (status, "--demos" in err) == (2, True)


def test_facts_are_those_that_are_recorded():
    assert set(facts(us.Demonstrations.from_arrays(np.zeros((2, 1)), np.ones((2, 1))))) == set()
    assert "terminal states" in facts(us.Demonstrations.from_arrays(np.zeros((2, 1)), np.ones((2, 1)), ends="terminal"))
    assert len(facts(demonstrations(False))) == 14


def test_training_without_an_environment_says_that_evaluation_needs_one(understudy, tmp_path):
    demonstrations(False).save(tmp_path / "d.csv")
    assert understudy("train", "bc", "--demos", "d.csv", *SMALL)[1].endswith("understudy evaluate runs/bc --env ENV\n")
    status, _, err = understudy("evaluate", "runs/bc")
    assert (status, "pass env= (--env)" in err) == (2, True)


@pytest.mark.parametrize("target", ["d.hdf5", "lerobto:d", "d4rl:d", "pickle:d"])
def test_nothing_is_recorded_for_an_unknown_format(understudy, tmp_path, target, monkeypatch):
    monkeypatch.setattr("understudy.cli.demos_commands.record", None)  # it would raise TypeError
    status, _, err = understudy("demos", "record", "Pendulum", "--out", target)
    assert (status, err.count("\n")) == (2, 1)
    assert "lerobot:PATH" in err
    with pytest.raises(SettingError, match="lerobot:PATH"):
        us.load("Pendulum", episodes=1).save(target)
    assert list(tmp_path.iterdir()) == []


def test_an_old_recording_is_replaced_only_if_told(understudy):
    pytest.importorskip("pyarrow")
    for target in ("d.npz", "lerobot:d"):
        words = ("demos", "record", "Pendulum", "--episodes", "1", "--out", target)
        assert understudy(*words)[0] == 0
        assert understudy(*words)[0] == 2
        assert understudy(*words, "--replace")[0] == 0
