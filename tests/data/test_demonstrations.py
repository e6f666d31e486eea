"""Demonstrations: checks of the data, and saving and loading."""

import dataclasses
import os
import pickle
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import gymnasium
import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import understudy as us
from understudy.core.errors import DemonstrationError, SettingError, SpecError, UnknownNameError
from understudy.core.storage import write_npz
from understudy.data import bundled
from understudy.data.details import Details
from understudy.data.formats import npz

N = 30


def arrays(**changes):
    """The arrays of a valid file with some changed. None removes a key."""
    rng = np.random.default_rng(0)
    base = {
        "observations": rng.normal(size=(N, 2)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (N, 1)).astype(np.float32),
        "lengths": np.array([10, 15, 5]),
    }
    return {key: value for key, value in {**base, **changes}.items() if value is not None}


def write(path, **changes):
    np.savez(path, **arrays(**changes))
    return str(path)


def changed(array, index, value):
    array = array.copy()
    array[index] = value
    return array


def test_loading_returns_what_was_saved(tmp_path):
    terminals = np.zeros(N, bool)
    terminals[[9, 29]] = True
    given = us.Demonstrations.from_arrays(
        **arrays(),
        next_observations=arrays()["observations"] + 1,
        terminals=terminals,
        rewards=np.arange(N),
        action_space=us.Continuous((-2.0,), (3.0,)),
        horizon=20,
        env="Somewhere",
    )
    given.save(tmp_path / "demos.npz")
    back = us.load(tmp_path / "demos.npz")
    for name in ("observations", "actions", "lengths", "next_observations", "terminals", "rewards"):
        np.testing.assert_array_equal(getattr(back, name), getattr(given, name))
    assert (back.spec, back.env, back.ends) == (given.spec, "Somewhere", "time_limit")
    np.testing.assert_allclose(back.returns, [45, 255, 135])
    assert [p.name for p in tmp_path.iterdir()] == ["demos.npz"]


def continuous_episodes(lengths, width=2, seed=0):
    """Episodes in which each observation is the previous next observation. Some numbers are 0.0 and -0.0."""
    rng = np.random.default_rng(seed)
    paths = [rng.normal(size=(length + 1, width)).astype(np.float32) for length in lengths]
    for path in paths:
        path[rng.random(path.shape) < 0.3] *= 0
    return {
        "observations": np.concatenate([path[:-1] for path in paths]),
        "next_observations": np.concatenate([path[1:] for path in paths]),
        "actions": rng.uniform(-1, 1, (sum(lengths), 1)).astype(np.float32),
        "lengths": np.array(lengths),
    }


@hypothesis.given(
    episodes=st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=5),
    width=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@hypothesis.settings(max_examples=40, deadline=None)
def test_repeated_next_observations_are_saved_as_last_observations_bit_for_bit(tmp_path_factory, episodes, width, seed):
    path = tmp_path_factory.getbasetemp() / "episodes.npz"
    lengths, terminal = zip(*episodes, strict=True)
    terminals = np.zeros(sum(lengths), bool)
    terminals[np.cumsum(lengths) - 1] = terminal
    saved = us.Demonstrations.from_arrays(**continuous_episodes(lengths, width, seed), terminals=terminals)
    saved.save(path)
    with np.load(path) as file:
        assert "next_observations" not in file.files
        assert file["last_observations"].shape == (len(lengths), width)
    back = us.load(path)
    for name in ("observations", "actions", "lengths", "next_observations", "terminals"):
        one, other = getattr(back, name), getattr(saved, name)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@pytest.mark.parametrize("value", [7.0, -0.0], ids=["another number", "another sign of zero"])
def test_other_next_observations_are_saved_in_full(value, tmp_path):
    given = continuous_episodes([3, 1, 4])
    given["observations"][1] = 0.0
    given["next_observations"][0] = value
    us.Demonstrations.from_arrays(**given).save(tmp_path / "d.npz")
    with np.load(tmp_path / "d.npz") as file:
        assert "last_observations" not in file.files
    assert us.load(tmp_path / "d.npz").next_observations.tobytes() == given["next_observations"].tobytes()


def test_a_file_may_have_next_observations_or_last_ones_or_both(tmp_path):
    given = continuous_episodes([3, 1, 4])
    whole = given.pop("next_observations")
    ends = {"last_observations": whole[[2, 3, 7]].astype(np.float64)}
    for forms in ({"next_observations": whole}, ends, {"next_observations": whole, **ends}):
        np.savez(tmp_path / "d.npz", **given, **forms)
        np.testing.assert_array_equal(us.load(tmp_path / "d.npz").next_observations, whole)
    first = us.load(tmp_path / "d.npz", episodes=2)
    np.testing.assert_array_equal(first.next_observations, whole[:4])
    # Inside an episode, next_observations may differ from the next row.
    np.savez(tmp_path / "d.npz", **given, **ends, next_observations=changed(whole, 0, 7.0))
    np.testing.assert_array_equal(us.load(tmp_path / "d.npz").next_observations[0], 7.0)


def test_bundled_files_have_last_observations_only():
    for path in bundled().values():
        with np.load(path) as file:
            assert "next_observations" not in file.files
            assert file["last_observations"].shape == (25, file["observations"].shape[1])


def test_a_file_with_the_required_arrays_is_enough(tmp_path):
    path = write(tmp_path / "d.npz", mean_return=np.array(5.0), std_return=np.array(1.0))
    loaded = us.load(path, episodes=2)
    assert (loaded.episodes, loaded.steps) == (2, 25)
    assert loaded.bounds_from_data
    assert loaded.expert_return == (5.0, 1.0, 3)  # over all three episodes, not only the loaded ones
    assert loaded.action_space.low[0] == pytest.approx(float(arrays()["actions"].min()))


def test_integer_actions_are_discrete(tmp_path):
    loaded = us.load(write(tmp_path / "d.npz", actions=np.arange(N).reshape(N, 1) % 3))
    assert loaded.action_space == us.Discrete(3)
    assert loaded.actions.shape == (N,)


def test_transitions_have_time_steps_and_episode_ends():
    steps = us.Demonstrations.from_arrays(**arrays()).transitions()
    np.testing.assert_array_equal(steps.t[:12], [*range(10), 0, 1])
    np.testing.assert_array_equal(np.flatnonzero(steps.last), [9, 24, 29])
    assert not steps.terminal.any()
    np.testing.assert_array_equal(steps.known_next, ~steps.last)
    np.testing.assert_array_equal(steps.next_obs[:9], steps.obs[1:10])
    ended = us.Demonstrations.from_arrays(**arrays(), ends="terminal").transitions()
    np.testing.assert_array_equal(ended.terminal, ended.last)


def test_bundled_demonstrations_fit_their_environments():
    for name in ("Forest", "Pendulum"):
        demonstrations = us.load(name)
        assert demonstrations.episodes == 25
        assert demonstrations.spec == us.make(name).spec
        assert demonstrations.for_task(us.make(name).spec, name).env == name


def test_bundled_demonstrations_are_recorded_from_the_scripted_expert():
    again = us.record("Pendulum", episodes=25, seed=0)
    np.testing.assert_allclose(again.observations[:5], us.load("Pendulum").observations[:5], atol=1e-5)


BAD = {
    "a missing key": ({"lengths": None}, "nothing says where episodes end: add lengths"),
    "misnamed actions": ({"actions": None, "moves": np.zeros(N)}, "it has no actions, but moves: rename the actions"),
    "no episodes": (
        {"lengths": np.array([], int), "observations": np.zeros((0, 2)), "actions": np.zeros((0, 1))},
        "no episodes",
    ),
    "an empty episode": ({"lengths": np.array([10, 0, 20])}, "episode 1 has length 0"),
    "lengths that do not add up": ({"lengths": np.array([10, 10])}, "lengths add up to 20"),
    "fractional lengths": ({"lengths": np.array([10.5, 19.5])}, "lengths has type float64"),
    "too few actions": ({"actions": np.zeros((29, 1))}, "actions has 29 rows"),
    "NaN": (
        {"observations": changed(changed(arrays()["observations"], (12, 1), np.nan), (20, 0), np.inf)},
        "observations has 2 values.*episode 1, step 2, dimension 1",
    ),
    "an infinite action": ({"actions": changed(arrays()["actions"], (3, 0), np.inf)}, "episode 0, step 3"),
    "actions outside the bounds": (
        {
            "actions": changed(arrays()["actions"], (11, 0), 7.0),
            "action_low": np.array([-1.0]),
            "action_high": np.array([1.0]),
        },
        r"1 action values.*7 at episode 1, step 1.*\[-1, 1\]",
    ),
    "a discrete action out of range": (
        {"actions": np.arange(N) % 4, "action_count": np.array(3)},
        "the first 3 at episode 0, step 3: .*0 to 2",
    ),
    "a pickled object array": (
        {"observations": np.array([{"a": 1}] * N)},
        "'observations'",
    ),
    "text": ({"observations": np.array(["a"] * N)}, "'observations' has type"),
    "a terminal inside an episode": ({"terminals": changed(np.zeros(N, bool), 4, True)}, "terminals.*step 4"),
    "next observations of another shape": ({"next_observations": np.zeros((N, 3))}, "next_observations has shape"),
    "last observations of another width": (
        {"last_observations": np.zeros((3, 3))},
        r"last_observations has shape \(3, 3\): \(3, 2\)",
    ),
    "last observations of too many episodes": (
        {"last_observations": np.zeros((4, 2))},
        r"has shape \(4, 2\): \(3, 2\)",
    ),
    "no last observations": ({"last_observations": np.zeros((0, 2))}, r"last_observations has shape \(0, 2\)"),
    "a last observation of NaN": (
        {"last_observations": changed(np.zeros((3, 2)), (1, 0), np.nan)},
        "last_observations has 1 values.*episode 1, dimension 0",
    ),
    "two last observations of one episode": (
        {"next_observations": np.zeros((N, 2)), "last_observations": changed(np.zeros((3, 2)), (2, 1), 4.0)},
        "last_observations and next_observations.*episode 2, dimension 1: 4 and",
    ),
    "observations of three dimensions": ({"observations": np.zeros((N, 2, 2))}, r"observations has shape \(30, 2, 2\)"),
    "empty observations": ({"observations": np.zeros((N, 0))}, r"shape \(30, 0\)"),
    "two rewards a step": ({"rewards": np.zeros((N, 2))}, "rewards has shape"),
    "no rewards a step": ({"rewards": np.zeros((N, 0))}, "rewards has shape"),
    "two terminals a step": ({"terminals": np.zeros((N, 2))}, "terminals has shape"),
    "a horizon of text": ({"horizon": np.array("long")}, "'horizon' has type"),
    "a fractional horizon": ({"horizon": np.array(15.5)}, "horizon is 15.5"),
    "many action counts": ({"actions": np.arange(N) % 3, "action_count": np.array([3, 3])}, "action_count is"),
    "one bound of two": ({"action_low": np.array([-1.0])}, "action_low"),
    "low above high": ({"action_low": np.array([1.0]), "action_high": np.array([-1.0])}, "low < high"),
    "a mean return of NaN": ({"mean_return": np.array(np.nan), "std_return": np.array(1.0)}, "mean_return is"),
    "an enormous length": ({"lengths": np.array([2**62, 2**62, 5])}, "episode 0 has length"),
    "an enormous discrete action": ({"actions": np.full(N, 2**62)}, "a discrete action is 4611686018427387904"),
    "numbers too large for float32": (
        {"observations": changed(np.zeros((N, 2)), (0, 0), 1e300)},
        "observations has 1 values",
    ),
    "a horizon too short": ({"horizon": np.array(9)}, "horizon is 9"),
    "an endless horizon": ({"horizon": np.array(1e300)}, r"horizon is 1e\+300: .*from 1 to 1e\+07"),
    "a negative horizon": ({"horizon": np.array(-5)}, "horizon is -5"),
    "a horizon of NaN": ({"horizon": np.array(np.nan)}, "horizon is nan"),
    "several horizons": ({"horizon": np.array([20, 20])}, r"horizon is an array of shape \(2,\)"),
    "an action count of 0": ({"actions": np.arange(N) % 3, "action_count": np.array(0)}, "action_count is 0"),
    "a million actions": (
        {"actions": changed(np.arange(N) % 3, 4, 999_998)},
        "action is 999998.* 999999 actions takes about 5.1 GB to train: at most 65536",
    ),
    "an action beyond int64": ({"actions": np.full(N, 2**64 - 1, np.uint64)}, "action is 18446744073709551615"),
    "a negative action": ({"actions": changed(np.arange(N) % 3, 4, -1)}, "the first -1 at episode 0, step 4"),
    "lengths beyond int64": (
        {"lengths": np.array([2**64 - 10, 40], np.uint64)},
        "episode 0 has length 18446744073709551606",
    ),
    "negative lengths": ({"lengths": np.array([40, -10])}, "episode 1 has length -10"),
    "a spread below 0": ({"mean_return": np.array(1.0), "std_return": np.array(-1.0)}, "std_return is -1"),
    "bounds beyond float32": (
        {"action_low": np.array([-1e300]), "action_high": np.array([1e300])},
        r"bounds \[-1e\+300, 1e\+300\]",
    ),
    "bounds that are equal in float32": (
        {"action_low": np.array([1.0]), "action_high": np.array([1.0 + 1e-12])},
        "equal in float32",
    ),
    "bounds in a matrix": ({"action_low": np.zeros((2, 2)), "action_high": np.ones((2, 2))}, "one number per action"),
    "an environment with escape sequences": ({"env": np.array("\x1b[31mred")}, r"env is '\?\[31mred'"),
    "an environment with a long name": ({"env": np.array("x" * 1000)}, "'env' has 4.0 kB"),
    "an environment of numbers": ({"env": np.array(3)}, "'env' has type"),
    "an unknown end": ({"ends": np.array("slowly")}, "ends is 'slowly'"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_demonstrations_raise_with_the_file_and_the_value(case, tmp_path):
    changes, words = BAD[case]
    path = write(tmp_path / "bad.npz", **changes)
    with pytest.raises(DemonstrationError, match=words) as error:
        us.load(path)
    assert "bad.npz" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_without_demonstrations_raises(tmp_path):
    with pytest.raises(DemonstrationError, match=r"nowhere\.npz"):
        us.load("nowhere.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DemonstrationError, match="not an npz"):
        us.load(tmp_path / "text.npz")
    (tmp_path / "cut.npz").write_bytes(Path(write(tmp_path / "d.npz")).read_bytes()[:200])
    with pytest.raises(DemonstrationError, match="cut off or damaged"):
        us.load(tmp_path / "cut.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DemonstrationError, match="a single array"):
        us.load(tmp_path / "one.npy")
    (tmp_path / "one.pkl").write_bytes(pickle.dumps({"observations": np.zeros(3)}))
    with pytest.raises(DemonstrationError, match="a pickle"):
        us.load(tmp_path / "one.pkl")
    with pytest.raises(DemonstrationError, match="a directory"):
        us.load(tmp_path)
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(DemonstrationError, match="not a regular file"):
        us.load(tmp_path / "pipe.npz")
    with pytest.raises(UnknownNameError, match="did you mean 'Pendulum'"):
        us.load("Pendulumm")


def test_other_members_of_a_file_are_not_decompressed(tmp_path):
    path = tmp_path / "more.npz"
    np.savez_compressed(path, **arrays(bomb=np.zeros(5_000_000), objects=np.array([None], object)))
    tracemalloc.start()
    demonstrations = us.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert demonstrations.steps == N
    assert peak < 5_000_000


def test_a_small_file_with_many_rows_is_refused_before_it_is_decompressed(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(
        path, observations=np.zeros((100_000_000, 1), bool), actions=np.zeros((N, 1)), lengths=np.array([N])
    )
    tracemalloc.start()
    with pytest.raises(DemonstrationError, match=r"declares 400\.0 MB of arrays.*UNDERSTUDY_READ_LIMIT=1GB"):
        us.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_too_many_episodes_raise_with_the_available_number():
    with pytest.raises(DemonstrationError, match=r"episodes is 99.*1 to 25"):
        us.load("Pendulum", episodes=99)
    with pytest.raises(DemonstrationError, match="episodes is 0"):
        us.load("Pendulum", episodes=0)


@pytest.mark.parametrize(
    ("env", "words"),
    [("Forest", r"shape \(3,\).*Forest.*\(4,\)"), ("CartPole-v1", r"shape \(3,\).*CartPole-v1.*\(4,\)")],
)
def test_demonstrations_of_another_environment_raise(env, words):
    with pytest.raises(DemonstrationError, match=words):
        us.imitate(us.bc(rounds=1), us.load("Pendulum"), env=env)


def test_actions_outside_the_environments_space_raise():
    discrete = us.Demonstrations.from_arrays(np.zeros((N, 3)), np.zeros(N, int))
    with pytest.raises(DemonstrationError, match=r"actions are discrete.*Pendulum continuous"):
        discrete.for_task(us.Pendulum().spec, "Pendulum")
    large = us.Demonstrations.from_arrays(np.zeros((N, 3)), np.full((N, 1), 5.0))
    with pytest.raises(DemonstrationError, match=r"the first 5 .*\[-2, 2\]"):
        large.for_task(us.Pendulum().spec, "Pendulum")


def test_arguments_of_the_wrong_type_raise():
    with pytest.raises(DemonstrationError, match="observations has rows of different lengths"):
        us.Demonstrations.from_arrays([[1.0], [1.0, 2.0]], np.zeros((2, 1)))
    with pytest.raises(DemonstrationError, match="action_space is a Box"):
        us.Demonstrations.from_arrays(**arrays(), action_space=gymnasium.spaces.Box(-1, 1, (1,)))
    with pytest.raises(DemonstrationError, match="demonstrations is a int"):
        us.imitate(us.bc(), 3)
    with pytest.raises(SettingError, match=r"episodes is 1.5"):
        us.load("Pendulum", episodes=1.5)


def test_bounds_can_be_lists_and_must_be_numbers():
    assert us.Continuous([-1.0], [1.0]) == us.Continuous((-1.0,), (1.0,))
    with pytest.raises(SpecError, match="low is 3"):
        us.Continuous(3, 4)
    with pytest.raises(SpecError, match=r"n = 2\.5"):
        us.Discrete(2.5)


def detailed():
    parts = (("arm.position", 1), ("goal", 1))
    return us.Demonstrations.from_arrays(
        **arrays(),
        obs_parts=parts,
        details=Details(
            successes=[True, False, True],
            tasks=("lift the cube", "", "lift the cube"),
            interventions=np.arange(N) % 3 == 0,
            action_names=("torque",),
            action_units="N m",
            fps=30,
            origin="somewhere/lift-v0",
        ),
    )


def test_names_of_parts_and_details_are_saved(tmp_path):
    given = detailed()
    given.save(tmp_path / "d.npz")
    back = us.load(tmp_path / "d.npz")
    assert back.obs_parts == given.obs_parts
    for field in dataclasses.fields(Details):
        one, other = getattr(back.details, field.name), getattr(given.details, field.name)
        np.testing.assert_array_equal(one, other)
        assert type(one) is type(other), field.name
    first = us.load(tmp_path / "d.npz", episodes=2).details
    assert (len(first.successes), first.tasks, len(first.interventions)) == (2, ("lift the cube", ""), 25)


BAD_DETAILS = {
    "names without sizes": ({"obs_names": np.array(["a", "b"])}, "obs_names and obs_sizes"),
    "sizes that do not fill": ({"obs_names": np.array(["a"]), "obs_sizes": np.array([3])}, "have 3 numbers"),
    "names of many megabytes": (
        {"obs_names": np.array(["a", "b" * 999_999]), "obs_sizes": np.array([1, 1])},
        "'obs_names' has 8.0 MB",
    ),
    "a task that is not there": (
        {"task_names": np.array(["a"]), "task_index": np.array([0, 1, 0])},
        "task_index must have",
    ),
    "too few tasks": ({"task_names": np.array(["a"]), "task_index": np.array([0, 0])}, "3 lines of printable text"),
    "a success of 2": ({"successes": np.array([0, 1, 2])}, "successes has shape"),
    "too few interventions": ({"interventions": np.zeros(4, bool)}, "interventions has 4 rows"),
    "a rate of 0": ({"fps": np.array(0.0)}, "fps is 0"),
    "escape sequences": ({"action_names": np.array(["\x1b[31m"])}, "action_names is"),
    "an origin of two lines": ({"origin": np.array("a\nb")}, "origin is 'a b'"),
}


@pytest.mark.parametrize("case", BAD_DETAILS)
def test_invalid_details_raise_with_the_file_and_the_value(case, tmp_path):
    changes, words = BAD_DETAILS[case]
    with pytest.raises(DemonstrationError, match=words) as error:
        us.load(write(tmp_path / "bad.npz", **changes))
    assert "bad.npz" in str(error.value)
    assert "\n" not in str(error.value)


def test_columns_take_the_order_of_the_environments_parts():
    given = us.Demonstrations.from_arrays(
        np.arange(12.0).reshape(4, 3),
        np.zeros((4, 1)),
        next_observations=np.arange(12.0).reshape(4, 3) + 100,
        obs_parts=(("goal", 1), ("joints", 2)),
    )
    spec = dataclasses.replace(given.spec, obs_parts=(("joints", 2), ("goal", 1)))
    task = given.for_task(spec, "Arm")
    assert task.obs_parts == spec.obs_parts
    np.testing.assert_array_equal(task.observations[0], [1, 2, 0])
    np.testing.assert_array_equal(task.next_observations[0], [101, 102, 100])
    np.testing.assert_array_equal(task.last_observations[0], [110, 111, 109])
    unnamed = dataclasses.replace(given, obs_parts=())
    assert unnamed.for_task(spec, "Arm").obs_parts == spec.obs_parts
    np.testing.assert_array_equal(unnamed.for_task(spec, "Arm").observations, given.observations)
    for other in ((("joints", 1), ("goal", 2)), (("joints", 2), ("target", 1))):
        with pytest.raises(DemonstrationError, match=r"fit Arm: .* goal \(1\), joints \(2\)"):
            given.for_task(dataclasses.replace(spec, obs_parts=other), "Arm")


def test_arrays_of_the_right_type_are_copied_unless_told_otherwise():
    given = arrays()
    copied = us.Demonstrations.from_arrays(**given)
    kept = us.Demonstrations.from_arrays(**given, copy=False)
    given["observations"][0] = 7.0
    assert copied.observations[0, 0] != 7.0
    assert kept.observations[0, 0] == 7.0


def traced(call):
    """What a call returns, and the most memory that it took."""
    tracemalloc.start()
    result = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return result, peak


def test_loading_and_saving_take_little_more_memory_than_the_data(tmp_path):
    steps = 200_000
    random = np.random.default_rng(0)
    given = {
        "observations": random.standard_normal((steps, 50), np.float32),
        "actions": random.random((steps, 4), np.float32),
        "lengths": np.full(200, 1000),
        "last_observations": random.standard_normal((200, 50), np.float32),
        "terminals": np.zeros(steps, bool),
        "rewards": random.random(steps, np.float32),
    }
    np.savez(tmp_path / "d.npz", **given)
    size = sum(array.nbytes for array in given.values())
    d, peak = traced(lambda: us.load(tmp_path / "d.npz"))
    assert peak < 1.3 * size
    _, peak = traced(lambda: write_npz(tmp_path / "again.npz", npz.members_of(d), compressed=False))
    assert peak < 0.5 * size
    after = d.next_observations
    again, peak = traced(lambda: us.Demonstrations.from_arrays(d.observations, d.actions, d.lengths, copy=False))
    assert peak < 0.3 * size
    again, peak = traced(
        lambda: us.Demonstrations.from_arrays(d.observations, d.actions, d.lengths, next_observations=after, copy=False)
    )
    assert peak < 0.3 * size
    assert again.other_next is None  # they are the next rows
    np.testing.assert_array_equal(again.last_observations, given["last_observations"])


def test_large_files_are_not_compressed(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "COMPRESSED", 100)
    us.Demonstrations.from_arrays(**arrays()).save(tmp_path / "d.npz")
    with zipfile.ZipFile(tmp_path / "d.npz") as archive:
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}


def test_a_signalling_nan_is_refused_without_a_warning():
    """Converting one to float32 makes the processor raise a flag, which NumPy shows as a RuntimeWarning."""
    observations = np.zeros((4, 2))
    observations[2, 1] = np.array([0x7FF0000000000001], np.uint64).view(np.float64)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DemonstrationError, match=r"1 values that are NaN .* at episode 0, step 2"):
            us.Demonstrations.from_arrays(observations, np.zeros((4, 1)))
