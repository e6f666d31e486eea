"""Minari data sets: those of the real Minari are read, and the real Minari reads ours."""

import json
import os
import subprocess
import sys

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from gymnasium import spaces

import understudy as us
from support.hdf5_files import ACTED, OBSERVED, write_minari
from understudy.core.errors import DemonstrationError, RunError, SettingError, UnknownNameError
from understudy.core.spaces import actions_of, flat_observations

pytestmark = pytest.mark.filterwarnings("ignore")  # Minari warns of metadata that nobody gave


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("acted", ACTED)
@pytest.mark.parametrize("observed", OBSERVED)
def test_a_data_set_of_minari_is_read_value_by_value(tmp_path, observed, acted):
    path, buffers = write_minari(tmp_path, observed, acted)
    d = us.load(path)
    assert d.lengths.tolist() == [4, 1, 3]
    flat = [flat_observations(OBSERVED[observed], one.observations, len(one.rewards) + 1) for one in buffers]
    np.testing.assert_array_equal(d.observations, np.concatenate([one[:-1] for one in flat]))
    np.testing.assert_array_equal(d.next_observations, np.concatenate([one[1:] for one in flat]))
    encoded = [actions_of(ACTED[acted], "").encode(one.actions) for one in buffers]
    np.testing.assert_array_equal(d.actions, np.concatenate(encoded))
    np.testing.assert_array_equal(d.rewards, np.concatenate([one.rewards for one in buffers]).astype(np.float32))
    assert np.flatnonzero(d.terminals).tolist() == [7]
    assert d.details.origin == f"test/{observed}-{acted}-v0"
    assert d.bounds_from_data == (acted == "unbounded")
    if acted != "unbounded":
        assert d.action_space == actions_of(ACTED[acted], "").space


def test_recorded_episodes_of_an_environment_are_read(root):
    env = minari.DataCollector(gymnasium.make("Pendulum-v1", max_episode_steps=6), record_infos=True)
    env.action_space.seed(0)
    for seed in range(2):
        env.reset(seed=seed)
        done = False
        while not done:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            done = terminated or truncated
    made = env.create_dataset("pendulum/random-v0")
    d = us.load("minari:pendulum/random-v0")
    assert (d.env, d.horizon, d.lengths.tolist()) == ("Pendulum-v1", 6, [6, 6])
    assert d.action_space == us.Continuous((-2.0,), (2.0,))
    assert not d.transitions().terminal.any()
    for start, episode in zip((0, 6), made.iterate_episodes(), strict=True):
        np.testing.assert_array_equal(d.observations[start : start + 6], episode.observations[:-1])
        np.testing.assert_array_equal(d.next_observations[start : start + 6], episode.observations[1:])
        np.testing.assert_array_equal(d.actions[start : start + 6], episode.actions)
        np.testing.assert_array_equal(d.rewards[start : start + 6], episode.rewards.astype(np.float32))


def test_an_episode_is_a_success_if_any_of_its_steps_is(tmp_path):
    path, _ = write_minari(tmp_path, "box", "box", infos=True)
    assert us.load(path).details.successes.tolist() == [True, False, False]


def test_the_directory_its_folder_data_and_its_main_file_are_the_same_data_set(tmp_path):
    path, _ = write_minari(tmp_path, "box", "box")
    assert [us.load(one).steps for one in (path, path / "data", path / "data" / "main_data.hdf5")] == [8, 8, 8]
    assert us.load(path, episodes=2).lengths.tolist() == [4, 1]
    with pytest.raises(DemonstrationError, match="choose 1 to 3"):
        us.load(path, episodes=4)


def test_keys_choose_parts_of_a_dict(tmp_path):
    path, buffers = write_minari(tmp_path, "dict", "box")
    d = us.load(path, keys=["goal", "arm"])
    assert d.obs_parts == (("goal", 2), ("arm.pos", 3))
    np.testing.assert_array_equal(d.observations[:4, :2], buffers[0].observations["goal"][:-1])
    assert us.load(path, keys=["arm.pos"]).obs_parts == (("arm.pos", 3),)
    with pytest.raises(UnknownNameError, match="did you mean 'goal'"):
        us.load(path, keys=["goals"])
    box, _ = write_minari(tmp_path, "box", "box")
    with pytest.raises(DemonstrationError, match="no observation keys"):
        us.load(box, keys=["goal"])


def test_images_are_refused_unless_keys_leave_them_out(tmp_path, monkeypatch):
    images = spaces.Box(0, 255, (40, 40, 3), np.uint8)
    space = spaces.Dict({"camera": images, "joints": spaces.Box(-1, 1, (2,)), "task": spaces.Text(5)})
    monkeypatch.setitem(OBSERVED, "seen", space)
    path, buffers = write_minari(tmp_path, "seen", "box", (2,))
    with pytest.raises(DemonstrationError, match=r"'camera'.*keys=\['joints'\]"):
        us.load(path)
    d = us.load(path, keys=["joints"])
    np.testing.assert_array_equal(d.observations, buffers[0].observations["joints"][:-1])


def random_demonstrations(**options):
    rng = np.random.default_rng(0)
    arrays = {"last_observations": rng.normal(size=(3, 4)), "rewards": rng.normal(size=8)}
    given = {"actions": rng.uniform(-1, 1, (8, 2)), "terminals": np.arange(8) == 7, "horizon": 9, **arrays, **options}
    return us.Demonstrations.from_arrays(rng.normal(size=(8, 4)), lengths=[4, 1, 3], **given)


WRITTEN = {
    "box": {"action_space": us.Continuous((-1.0, -2.0), (1.0, 3.0)), "env": "Pendulum-v1"},
    "no bounds": {"env": "My own"},
    "discrete": {"actions": np.arange(8) % 3, "action_space": us.Discrete(5)},
    "parts": {"obs_parts": (("speed", 3), ("arm.angle", 1))},
    "no rewards": {"rewards": None},
    "no terminals": {"terminals": None, "ends": "terminal"},
    "success": {"details": us.data.details.Details(successes=np.array([True, False, True]))},
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_is_written_is_read_again_the_same(root, kind):
    d = random_demonstrations(**WRITTEN[kind])
    d.save("minari:ours/test-v0")
    again = us.load("minari:ours/test-v0")
    for name in ("observations", "next_observations", "actions", "lengths", "rewards"):
        np.testing.assert_array_equal(getattr(again, name), getattr(d, name))
    np.testing.assert_array_equal(again.transitions().terminal, d.transitions().terminal)
    np.testing.assert_array_equal(again.details.successes, d.details.successes)
    for name in ("action_space", "horizon", "env", "obs_parts", "bounds_from_data"):
        assert getattr(again, name) == getattr(d, name)


@pytest.mark.parametrize("kind", WRITTEN)
def test_minari_reads_what_is_written(root, kind):
    d = random_demonstrations(**WRITTEN[kind])
    d.save("minari:ours/test-v0")
    made = minari.load_dataset("ours/test-v0")
    assert list(minari.list_local_datasets()) == ["ours/test-v0"]
    assert (made.total_episodes, made.total_steps) == (3, 8)
    terminal, start = d.transitions().terminal, 0
    for episode, length in zip(made.iterate_episodes(), d.lengths, strict=True):
        rows = slice(start, start + length)
        seen = episode.observations
        if isinstance(seen, dict):
            seen = np.concatenate([seen[name] for name, _ in d.obs_parts], axis=1)
            assert made.observation_space["speed"].shape == (3,)
        np.testing.assert_array_equal(seen[:-1], d.observations[rows])
        np.testing.assert_array_equal(seen[1:], d.next_observations[rows])
        np.testing.assert_array_equal(episode.actions, d.actions[rows])
        np.testing.assert_array_equal(
            episode.rewards, np.full(length, np.nan) if d.rewards is None else d.rewards[rows]
        )
        np.testing.assert_array_equal(episode.terminations, terminal[rows])
        assert episode.truncations[-1] == (not terminal[rows][-1])
        assert not episode.truncations[:-1].any()
        start += length
    if d.env == "Pendulum-v1":
        assert made.recover_environment().spec.max_episode_steps == 9
    if not d.bounds_from_data:
        assert actions_of(made.action_space, "").space == d.action_space


def test_minari_can_write_on_from_what_is_written(root):
    """A data set that Minari copies has the same episodes."""
    random_demonstrations().save("minari:first-v0")
    minari.combine_datasets([minari.load_dataset("first-v0")], "second-v0")
    first, second = us.load("minari:first-v0"), us.load("minari:second-v0")
    np.testing.assert_array_equal(first.observations, second.observations)
    np.testing.assert_array_equal(first.actions, second.actions)


def test_unknown_next_observations_cannot_be_written(tmp_path):
    with pytest.raises(DemonstrationError, match="the observation after the last step"):
        random_demonstrations(last_observations=None).save(f"minari:{tmp_path}/a-v0")
    other = {"last_observations": None, "next_observations": np.zeros((8, 4))}
    with pytest.raises(DemonstrationError, match="not the observation of the next step"):
        random_demonstrations(**other).save(f"minari:{tmp_path}/a-v0")
    with pytest.raises(DemonstrationError, match="no names such as 'a/b'"):
        random_demonstrations(obs_parts=(("a/b", 4),)).save(f"minari:{tmp_path}/a-v0")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    """The HDF5 library alone would crash. A limit of the file size stands for the full disk."""
    code = """
import resource, signal, sys
import understudy as us
d = us.load("Pendulum")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    d.save(f"minari:{sys.argv[1]}")
except OSError as error:
    print(error.strerror)
"""
    for limit in (100, 10_000, 100_000):
        words = [sys.executable, "-c", code, str(tmp_path / "full-v0"), str(limit)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "File too large\n"), done.stderr
        assert list(tmp_path.iterdir()) == []


def test_a_data_set_is_replaced_only_if_it_holds_nothing_else(tmp_path):
    d, path = random_demonstrations(), tmp_path / "my set"
    d.save(f"minari:{path}")
    assert us.load(path).details.origin == "my-set-v0"
    d.first(1).save(f"minari:{path}")
    assert us.load(path).episodes == 1
    with pytest.raises(RunError, match="holds"):
        d.save(f"minari:{path}", replace=False)
    (path / "data" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match=r"notes\.txt"):
        d.save(f"minari:{path}")
    assert us.load(path).episodes == 1


def test_a_missing_id_lists_the_local_ones_and_says_how_to_download(root):
    write_minari(root, "box", "box")
    with pytest.raises(DemonstrationError, match=r"there: test/box-box-v0\): 'minari download D4RL/door/human-v2'"):
        us.load("minari:D4RL/door/human-v2")
    with pytest.raises(DemonstrationError, match="pass a Minari data set or its id"):
        us.load("minari:nowhere")


def test_filters_are_refused(tmp_path):
    path, _ = write_minari(tmp_path, "box", "box")
    with pytest.raises(SettingError, match="no filters"):
        us.load(path, filter="train")


def set_metadata(path, **values):
    file = path / "data" / "metadata.json"
    whole = {**json.loads(file.read_text(encoding="utf-8")), **values}
    file.write_text(json.dumps({key: value for key, value in whole.items() if value is not None}), encoding="utf-8")


def box(**values):
    return json.dumps({"type": "Box", "dtype": "float32", "shape": [3], "low": [-1] * 3, "high": [1] * 3, **values})


def nested(depth):
    return '{"type": "Dict", "subspaces": {"a": ' * depth + box() + "}}" * depth


WIDE = [box(shape=[2_000_000], low=0, high=1)] * 100
METADATA = {
    "no space": {"observation_space": None},
    "episodes": {"total_episodes": 4},
    "no episodes": {"total_episodes": 0},
    "many episodes": {"total_episodes": 10**9},
    "format": {"data_format": "zarr"},
    "text": {"observation_space": "hello"},
    "list": {"observation_space": "[]"},
    "type": {"observation_space": '{"type": "Graph"}'},
    "no low": {"observation_space": '{"type": "Box", "dtype": "float32", "shape": [3], "high": 1}'},
    "dtype": {"observation_space": box(dtype="object")},
    "shape": {"observation_space": box(shape=[4])},
    "negative shape": {"observation_space": box(shape=[-3])},
    "huge shape": {"observation_space": box(shape=[10**12], low=0, high=1)},
    "many boxes": {"observation_space": f'{{"type": "Tuple", "subspaces": [{", ".join(WIDE)}]}}'},
    "many bits": {"action_space": '{"type": "MultiBinary", "n": 10000000}'},
    "nan": {"observation_space": box(low=float("nan"))},
    "infinite integer": {"observation_space": box(dtype="int64", low=[float("-inf")] * 3)},
    "other shape": {"observation_space": box(shape=[2], low=0, high=1)},
    "other type": {"observation_space": '{"type": "Discrete", "n": 3, "start": 0}'},
    "huge one-hot": {"observation_space": '{"type": "Discrete", "n": 2000000000, "start": 0}'},
    "nothing": {"observation_space": '{"type": "Dict", "subspaces": {}}'},
    "deep": {"observation_space": nested(100)},
    "very deep": {"observation_space": nested(50_000)},
    "actions": {"action_space": '{"type": "Dict", "subspaces": {"a": ' + box() + "}}"},
    "actions of another size": {"action_space": box()},
    "too small bounds": {"action_space": box(shape=[2], low=[0, 0], high=[1e-3, 1e-3])},
    "equal bounds": {"action_space": box(shape=[2], low=[0, 0], high=[0, 0])},
    "env_spec": {"env_spec": "{"},
    "env_spec without id": {"env_spec": "{}"},
    "id": {"env_spec": '{"id": "a\\u001b[31m"}'},
    "time limit": {"env_spec": '{"id": "A-v0", "max_episode_steps": -1}'},
    "our entry": {"understudy": {"env": "A", "horizon": 10**30}},
}


@pytest.mark.parametrize("kind", METADATA)
def test_wrong_metadata_is_refused_in_one_line_with_the_file(tmp_path, kind):
    path, _ = write_minari(tmp_path, "box", "box")
    set_metadata(path, **METADATA[kind])
    with pytest.raises(DemonstrationError) as raised:
        us.load(path)
    assert "box-box-v0" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 800


EPISODES = {
    "rows": ("observations", np.zeros((4, 3)), r"shape \(4, 3\), and \(5, 3\) is needed"),
    "width": ("observations", np.zeros((5, 2)), r"shape \(5, 2\)"),
    "nan": ("observations", np.full((5, 3), np.nan), "NaN or infinite"),
    "missing": ("terminations", None, "it has no 'episode_0/terminations'"),
    "inside": ("terminations", np.ones(4, bool), "terminals is True inside an episode"),
    "rewards": ("rewards", np.zeros((4, 2)), r"shape \(4, 2\)"),
    "some rewards": ("rewards", np.full(4, np.nan), "NaN or infinite"),
    "actions": ("actions", np.full((4, 2), 9.0), "outside the bounds"),
    "texts": ("actions", ["a"] * 4, "type object"),
    "link": ("actions", h5py.ExternalLink("/etc/passwd", "/x"), "links are not followed"),
    "no steps": ("rewards", np.zeros(0), "'episode_0/rewards' has shape"),
}


@pytest.mark.parametrize("kind", EPISODES)
def test_wrong_episodes_are_refused_in_one_line_with_the_file(tmp_path, kind):
    name, array, words = EPISODES[kind]
    path, _ = write_minari(tmp_path, "box", "box")
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file[f"episode_0/{name}"]
        if array is not None:
            file[f"episode_0/{name}"] = array
    with pytest.raises(DemonstrationError, match=words) as raised:
        us.load(path)
    assert os.fspath(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_discrete_values_out_of_range_are_refused(tmp_path):
    for observed, acted, name in (("discrete", "box", "observations"), ("box", "discrete", "actions")):
        path, _ = write_minari(tmp_path, observed, acted)
        with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
            file[f"episode_1/{name}"][0] = 77
        with pytest.raises(DemonstrationError, match="episode 1 does not fit its spaces"):
            us.load(path)


def test_the_order_of_keys_in_the_file_is_kept(tmp_path):
    path, _ = write_minari(tmp_path, "dict", "box")
    spaces_ = json.loads(json.loads((path / "data" / "metadata.json").read_text(encoding="utf-8"))["observation_space"])
    turned = {"type": "Dict", "subspaces": dict(reversed(spaces_["subspaces"].items()))}
    set_metadata(path, observation_space=json.dumps(turned))
    assert [name for name, _ in us.load(path).obs_parts] == ["goal", "arm.pos"]


def test_multi_discrete_actions_with_many_combinations_are_written_and_read(tmp_path):
    rng = np.random.default_rng(0)
    given = us.Demonstrations.from_arrays(
        rng.normal(size=(6, 2)),
        rng.integers(0, 20, (6, 3)),
        [2, 4],
        last_observations=np.ones((2, 2)),
        action_space=us.MultiDiscrete((20, 20, 20)),
    )
    given.save(f"minari:{tmp_path / 'many-v0'}")
    read = us.load(tmp_path / "many-v0")
    assert read.action_space == given.action_space
    np.testing.assert_array_equal(read.actions, given.actions)
    assert read.actions.dtype == np.int32
