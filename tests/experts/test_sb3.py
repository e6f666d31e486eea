"""Zip files of Stable-Baselines3. tools/sb3_fixtures.py made them, with SB3's own predictions."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from support.sb3_mutations import archive, changed, unzipped
from understudy.core.errors import NeedsError, RunError, SettingError, SpecError
from understudy.experts.expert import as_expert
from understudy.policies import Categorical, Deterministic, Normalized

MODELS = Path(__file__).parents[1] / "data_files" / "sb3"
NAMES = ("sac", "sac-sde-tanh", "tqc", "td3", "ppo", "ppo-sde-squashed", "ppo-discrete", "a2c", "dqn")
ENVS = {3: us.make("Pendulum-v1"), 4: us.make("CartPole-v1")}


def predictions(name):
    """Observations, SB3's actions, and the environment."""
    with np.load(MODELS / f"{name}.npz") as stored:
        obs, actions = stored["observations"], stored["actions"]
    return obs, actions, ENVS[obs.shape[1]]


def with_settings(tmp_path, name, change):
    """A copy of a model whose settings are changed."""
    path = tmp_path / f"{name}.zip"

    def edited(old):
        values = json.loads(old)
        change(values)
        return json.dumps(values).encode()

    path.write_bytes(changed((MODELS / f"{name}.zip").read_bytes(), "data", edited))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_the_actions_are_those_of_stable_baselines(name, tmp_path):
    obs, actions, env = predictions(name)
    actor = us.policy_from_sb3(MODELS / f"{name}.zip", env)
    np.testing.assert_allclose(actor(obs), actions, rtol=0, atol=1e-5)
    assert len(np.unique(actions)) > 1
    actor.save(tmp_path / "saved.npz")
    np.testing.assert_array_equal(us.load_policy(tmp_path / "saved.npz")(obs), actor(obs))


def test_no_module_of_pytorch_or_stable_baselines_is_imported():
    assert sys.modules.get("torch") is None
    assert sys.modules.get("stable_baselines3") is None


def test_the_policies_are_of_our_own_classes():
    sde = us.policy_from_sb3(MODELS / "sac-sde-tanh.zip", ENVS[3]).policy
    assert isinstance(sde, Normalized)
    assert isinstance(sde.policy, Deterministic)
    assert (sde.policy.clip, sde.policy.squash, sde.policy.net.activation) == (2.0, True, "tanh")
    assert isinstance(us.policy_from_sb3(MODELS / "dqn.zip", ENVS[4]).policy, Categorical)
    bounded = us.policy_from_sb3(MODELS / "ppo.zip", ENVS[3])(predictions("ppo")[0])
    assert np.abs(bounded).max() == 2  # clipped to the bounds of Pendulum-v1


def test_statistics_of_vecnormalize_are_applied_inside_the_policy(tmp_path):
    obs, actions, env = predictions("ppo-normalized")
    model, statistics = MODELS / "ppo-normalized.zip", MODELS / "ppo-normalized.npz"
    actor = us.policy_from_sb3(model, env, normalization=statistics)
    np.testing.assert_allclose(actor(obs), actions, rtol=0, atol=1e-5)
    assert not np.allclose(us.policy_from_sb3(model, env)(obs), actions, atol=1e-2)
    actor.save(tmp_path / "saved.npz")
    np.testing.assert_array_equal(us.load_policy(tmp_path / "saved.npz")(obs), actor(obs))
    with np.load(statistics) as stored:
        scaled = (obs - stored["obs_mean"]) / np.sqrt(stored["obs_var"] + stored["epsilon"])
        assert np.abs(scaled).max() > stored["clip_obs"]  # so the clip matters
    far, further = np.full((1, 3), 1e3), np.full((1, 3), 1e6)
    np.testing.assert_array_equal(actor(far), actor(further))
    recorded = us.record(env, model, 1, workers=0, expert_normalization=statistics)
    np.testing.assert_allclose(actor(recorded.observations), recorded.actions, atol=1e-5)


def test_statistics_for_discrete_actions_are_applied_too(tmp_path):
    obs, actions, env = predictions("dqn")
    np.savez(tmp_path / "s.npz", obs_mean=np.ones(4), obs_var=np.full(4, 0.25), clip_obs=100.0, epsilon=0.0)
    actor = us.policy_from_sb3(MODELS / "dqn.zip", env, normalization=tmp_path / "s.npz")
    np.testing.assert_array_equal(actor(obs / 2 + 1), actions)


GOOD = {"obs_mean": np.zeros(3), "obs_var": np.ones(3), "clip_obs": 10.0, "epsilon": 1e-8}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"obs_var": None}, "it has no obs_var.*np.savez"),
        ({"obs_var": -np.ones(3)}, "3 means and 3 variances"),
        ({"obs_var": np.ones(4)}, "3 means and 4 variances"),
        ({"obs_mean": np.full(3, np.nan)}, "NaN or infinite"),
        ({"clip_obs": -1.0}, "clip_obs -1"),
        ({"obs_var": np.zeros(3), "epsilon": 0.0}, "both 0"),
        ({"obs_mean": np.array([None] * 3)}, "pickled objects, which are never read"),
    ],
)
def test_wrong_statistics_are_refused_by_name(change, reason, tmp_path):
    np.savez(tmp_path / "stats.npz", **{name: x for name, x in {**GOOD, **change}.items() if x is not None})
    with pytest.raises(RunError, match=rf"stats\.npz.*{reason}"):
        us.policy_from_sb3(MODELS / "ppo.zip", ENVS[3], normalization=tmp_path / "stats.npz")


def test_statistics_of_other_observations_are_refused(tmp_path):
    np.savez(tmp_path / "stats.npz", **{**GOOD, "obs_mean": np.zeros(4), "obs_var": np.ones(4)})
    with pytest.raises(SpecError, match="3 inputs, and the statistics are of 4 observations"):
        us.policy_from_sb3(MODELS / "ppo.zip", ENVS[3], normalization=tmp_path / "stats.npz")


def test_the_activation_is_that_of_the_file_or_of_the_algorithm(tmp_path):
    with pytest.raises(SpecError, match="activation ELU: relu, tanh, identity are supported"):
        us.policy_from_sb3(MODELS / "ppo-elu.zip", ENVS[4])
    with pytest.raises(SettingError, match=r"activation is 'relu', but 'sac-sde-tanh.zip' contains 'tanh'"):
        us.policy_from_sb3(MODELS / "sac-sde-tanh.zip", ENVS[3], activation="relu")
    own = with_settings(tmp_path, "ppo", lambda values: values["policy_class"].update(__module__="__main__"))
    with pytest.raises(NeedsError, match=r"policy class of its own \(__main__\).*--expert-activation"):
        us.policy_from_sb3(own, ENVS[3])
    obs, actions, env = predictions("ppo")
    np.testing.assert_allclose(us.policy_from_sb3(own, env, activation="tanh")(obs), actions, atol=1e-5)
    np.testing.assert_allclose(as_expert(str(own), env, "tanh").policy.mode(None, obs), actions, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"policy_kwargs": {"features_extractor_class": "<class 'mine.Net'>"}}, "feature extractor <class 'mine.Net'>"),
        ({"action_space": {":type:": "<class 'MultiDiscrete'>"}}, "MultiDiscrete or MultiBinary actions"),
        ({"action_space": {":type:": "<class 'gymnasium.spaces.discrete.Discrete'>"}}, "trained for discrete actions"),
        ({"action_space": {":type:": "Box", "low": "[-1.]", "high": "[1.]"}}, r"whose low is \[-1.0\]: in Pendulum-v1"),
        ({"policy_kwargs": {"activation_fn": 7}}, "activation 7"),
    ],
)
def test_a_model_that_is_not_supported_is_refused_in_one_line(change, reason, tmp_path):
    path = with_settings(tmp_path, "ppo", lambda values: values.update(change))
    with pytest.raises(SpecError, match=reason) as failure:
        us.policy_from_sb3(path, ENVS[3])
    assert "'ppo.zip'" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_settings_that_would_fill_the_memory_are_refused(tmp_path):
    path = with_settings(tmp_path, "ppo", lambda values: values.update(filled=[[]] * 1_500_000))
    with pytest.raises(RunError, match="its data has"):
        us.policy_from_sb3(path, ENVS[3])


def renamed(tmp_path, old, new):
    """The model ppo.zip with tensors of another name of the same length."""
    assert len(old) == len(new)
    path = tmp_path / "model.zip"

    def inner(data):
        return archive([(name, text.replace(old, new)) for name, text in unzipped(data)])

    path.write_bytes(changed((MODELS / "ppo.zip").read_bytes(), "policy.pth", inner))
    return path


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"mlp_extractor.value_net.0", b"features_extractor.cnn.00", "the feature extractor features_extractor.cnn.00"),
        (b"action_net", b"quantile__", "the weights .*SAC, TQC, TD3, DDPG, PPO, A2C and DQN"),
        (b"mlp_extractor.value_net.", b"mlp_extractor.shared_net", "the weights"),
        (b"value_net.weight", b"lstm_actor.weigh", "the weights .*lstm_actor"),
        (b"policy_net.2.bias", b"policy_net.2.xxxx", "has no b1"),
        (b"action_net.bias", b"action_net.xxxx", "has no b2"),
    ],
)
def test_other_networks_are_refused_by_what_they_have(old, new, reason, tmp_path):
    with pytest.raises(SpecError, match=reason):
        us.policy_from_sb3(renamed(tmp_path, old, new), ENVS[3])


def test_a_model_for_another_task_is_refused():
    with pytest.raises(SpecError, match="trained for continuous actions: CartPole-v1 has discrete ones"):
        us.policy_from_sb3(MODELS / "sac.zip", ENVS[4])
    with pytest.raises(SpecError, match=r"'dqn.zip' has 4 inputs and 2 outputs.*6 inputs and 3 outputs"):
        us.policy_from_sb3(MODELS / "dqn.zip", "Acrobot-v1")
