"""robomimic's files, written with h5py: values, keys, filters, and what is refused."""

import h5py
import numpy as np
import pytest

import understudy as us
from support.hdf5_files import write_robomimic
from understudy.core.errors import DemonstrationError, UnknownNameError

KEYS = ("gripper", "object", "robot0_joint_pos")


def flat(demo, keys, group="obs"):
    columns = [demo[f"{group}/{key}"] for key in keys]
    return np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1).astype(np.float32)


def test_all_values_are_read(tmp_path):
    demos = write_robomimic(tmp_path / "a.hdf5")
    d = us.load(tmp_path / "a.hdf5")
    assert d.lengths.tolist() == [5, 3, 4]
    assert d.obs_parts == (("gripper", 1), ("object", 10), ("robot0_joint_pos", 7))
    np.testing.assert_array_equal(d.observations, np.concatenate([flat(demo, KEYS) for demo in demos]))
    np.testing.assert_array_equal(d.next_observations, np.concatenate([flat(demo, KEYS, "next_obs") for demo in demos]))
    np.testing.assert_array_equal(d.actions, np.concatenate([demo["actions"] for demo in demos]).astype(np.float32))
    np.testing.assert_array_equal(d.rewards, np.concatenate([demo["rewards"] for demo in demos]))
    assert d.action_space == us.Continuous((-1.0,) * 4, (1.0,) * 4)
    assert d.details.action_units == "normalized to [-1, 1]"
    assert d.details.successes.tolist() == [True, False, True]
    assert (d.env, d.details.origin) == ("Lift", "robomimic Lift, without agentview_image")


def test_dones_are_no_terminal_states(tmp_path):
    write_robomimic(tmp_path / "a.hdf5")
    assert us.load(tmp_path / "a.hdf5").terminals is None
    assert not us.load(tmp_path / "a.hdf5").transitions().terminal.any()
    assert us.load(tmp_path / "a.hdf5", ends="terminal").transitions().terminal.sum() == 3


def test_demonstrations_are_in_natural_order(tmp_path):
    lengths = tuple(range(1, 13))
    write_robomimic(tmp_path / "a.hdf5", lengths)
    assert us.load(tmp_path / "a.hdf5").lengths.tolist() == list(lengths)
    assert us.load(tmp_path / "a.hdf5", episodes=3).lengths.tolist() == [1, 2, 3]


def test_keys_choose_observations_in_their_order(tmp_path):
    demos = write_robomimic(tmp_path / "a.hdf5")
    d = us.load(tmp_path / "a.hdf5", keys=["robot0_joint_pos", "gripper"])
    assert d.obs_parts == (("robot0_joint_pos", 7), ("gripper", 1))
    np.testing.assert_array_equal(d.observations[:5], flat(demos[0], ("robot0_joint_pos", "gripper")))
    assert d.details.origin == "robomimic Lift"


def test_a_filter_chooses_demonstrations(tmp_path):
    filters = {"train": np.array(["demo_2", "demo_0"], "S"), "valid": ["demo_1"], "wrong": ["demo_9"]}
    write_robomimic(tmp_path / "a.hdf5", filters=filters)
    assert us.load(tmp_path / "a.hdf5", filter="train").lengths.tolist() == [5, 4]
    assert us.load(tmp_path / "a.hdf5", filter="valid").lengths.tolist() == [3]
    with pytest.raises(DemonstrationError, match="'demo_9', which is not there"):
        us.load(tmp_path / "a.hdf5", filter="wrong")
    with pytest.raises(UnknownNameError, match="did you mean 'valid'"):
        us.load(tmp_path / "a.hdf5", filter="validation")


def changed(path, name, array):
    with h5py.File(path, "a") as file:
        if name in file:
            del file[name]
        if array is not None:
            file[name] = array


def test_actions_beyond_one_take_their_bounds_from_the_data(tmp_path):
    write_robomimic(tmp_path / "a.hdf5")
    changed(tmp_path / "a.hdf5", "data/demo_0/actions", np.full((5, 4), 2.0))
    d = us.load(tmp_path / "a.hdf5")
    assert d.bounds_from_data
    assert d.details.action_units is None


def test_success_is_unknown_with_shaped_rewards_or_no_reward_at_all(tmp_path):
    for rewards in (np.linspace(0, 1, 5), np.zeros(5)):
        write_robomimic(tmp_path / "a.hdf5", (5,))
        changed(tmp_path / "a.hdf5", "data/demo_0/rewards", rewards)
        assert us.load(tmp_path / "a.hdf5").details.successes is None


def test_without_next_obs_the_final_observation_is_unknown(tmp_path):
    write_robomimic(tmp_path / "a.hdf5", (5,))
    changed(tmp_path / "a.hdf5", "data/demo_0/next_obs", None)
    assert us.load(tmp_path / "a.hdf5").next_observations is None


def test_a_matrix_is_flattened_if_it_is_asked_for(tmp_path):
    write_robomimic(tmp_path / "a.hdf5", (5,))
    matrices = np.arange(45.0).reshape(5, 3, 3)
    changed(tmp_path / "a.hdf5", "data/demo_0/obs/pose", matrices)
    changed(tmp_path / "a.hdf5", "data/demo_0/next_obs/pose", matrices)
    d = us.load(tmp_path / "a.hdf5", keys=["pose"])
    np.testing.assert_array_equal(d.observations, matrices.reshape(5, 9))
    assert "pose" in us.load(tmp_path / "a.hdf5").details.origin


def test_images_and_unknown_keys_are_refused(tmp_path):
    write_robomimic(tmp_path / "a.hdf5")
    with pytest.raises(DemonstrationError, match=r"the image 'agentview_image' of shape \(84, 84, 3\)"):
        us.load(tmp_path / "a.hdf5", keys=["agentview_image"])
    with pytest.raises(UnknownNameError, match="did you mean 'object'"):
        us.load(tmp_path / "a.hdf5", keys=["objects"])


WRONG = {
    "rows": ("data/demo_1/rewards", np.zeros(4), "'data/demo_1/rewards' has shape"),
    "width": ("data/demo_1/obs/object", np.zeros((3, 9)), "9 numbers per step, and 10 are needed"),
    "missing key": ("data/demo_1/obs/object", None, "it has no 'data/demo_1/obs/object'"),
    "no actions": ("data/demo_2/actions", None, "it has no 'data/demo_2/actions'"),
    "empty": ("data/demo_0/actions", np.zeros((0, 4)), "0 rows"),
    "nan": ("data/demo_0/obs/object", np.full((5, 10), np.nan), "NaN or infinite"),
    "nan actions": ("data/demo_0/actions", np.full((5, 4), np.nan), "NaN or infinite"),
    "texts": ("data/demo_0/obs/object", [["a"]] * 5, "type object"),
    "link": ("data/demo_0/obs/object", h5py.ExternalLink("/etc/passwd", "/x"), "links are not followed"),
    "linked demo": ("data/demo_1", h5py.SoftLink("/data/demo_0"), "links are not followed"),
    "no observations": ("data/demo_0/obs", None, "dataset_states_to_obs"),
    "no group": ("data/demo_0/obs", np.zeros(3), "is not a group"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_files_are_refused_in_one_line_with_their_name(tmp_path, kind):
    name, array, words = WRONG[kind]
    write_robomimic(tmp_path / "a.hdf5")
    changed(tmp_path / "a.hdf5", name, array)
    with pytest.raises(DemonstrationError, match=words) as raised:
        us.load(tmp_path / "a.hdf5")
    assert "a.hdf5" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"env_name": 3}', '{"env_name": "a\\nb"}', "[" * 100_000])
def test_wrong_settings_of_the_environment_are_refused(tmp_path, text):
    write_robomimic(tmp_path / "a.hdf5", (2,))
    with h5py.File(tmp_path / "a.hdf5", "a") as file:
        file["data"].attrs["env_args"] = text
    with pytest.raises(DemonstrationError, match=r"a\.hdf5"):
        us.load(tmp_path / "a.hdf5")


def test_a_file_without_demonstrations_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_group("data")
    with pytest.raises(DemonstrationError, match="no demonstrations"):
        us.load(tmp_path / "a.hdf5")
