"""Policies from plain weights, and experts that answer deterministically."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.cli.main import main
from understudy.core.errors import NeedsError, RunError, SettingError, SpecError, UnderstudyError
from understudy.experts.expert import Expert, as_expert, query_expert
from understudy.experts.weights import holds_weights
from understudy.policies import Categorical, start

RANDOM = np.random.default_rng(0)
CART = {"w0": RANDOM.normal(size=(4, 6)), "b0": np.ones(6), "w1": RANDOM.normal(size=(6, 2)), "b1": np.zeros(2)}
SWING = {"w0": 3 * RANDOM.normal(size=(3, 5)), "b0": np.zeros(5), "w1": RANDOM.normal(size=(5, 1)), "b1": np.ones(1)}
OBS = RANDOM.normal(size=(50, 4)).astype(np.float32)


@pytest.mark.parametrize(("activation", "function"), [("tanh", np.tanh), ("relu", lambda x: np.maximum(x, 0))])
def test_discrete_actions_are_the_largest_output(activation, function, tmp_path):
    expected = (function(OBS @ CART["w0"] + CART["b0"]) @ CART["w1"] + CART["b1"]).argmax(1)
    actor = us.policy_from_weights(CART, "CartPole-v1", activation)
    np.testing.assert_array_equal(actor(OBS), expected)
    assert set(expected) == {0, 1}
    assert isinstance(actor.policy, Categorical)
    actor.save(tmp_path / "saved.npz")
    np.testing.assert_array_equal(us.load_policy(tmp_path / "saved.npz")(OBS), expected)


def test_continuous_actions_are_clipped_or_squashed_to_the_action_range():
    """Pendulum's torque is in [-2, 2]."""
    obs = OBS[:, :3]
    out = np.maximum(obs @ SWING["w0"], 0) @ SWING["w1"] + 1
    assert np.abs(out).max() > 2
    plain = us.policy_from_weights(SWING, "Pendulum", "relu")
    np.testing.assert_allclose(plain(obs), np.clip(out, -2, 2), rtol=1e-4, atol=1e-5)
    squashed = us.policy_from_weights({**SWING, "squash": True, "clip": 1.5}, "Pendulum", "relu")
    np.testing.assert_allclose(squashed(obs), 2 * np.tanh(np.clip(out, -1.5, 1.5)), rtol=1e-4, atol=1e-5)
    assert np.abs(squashed(obs)).max() < 2 * np.tanh(1.5) + 1e-4


def test_settings_in_a_weights_file_are_used_and_cannot_be_contradicted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("complete.npz", **CART, activation="tanh")
    np.savez("incomplete.npz", **CART)
    tanh, relu = (us.policy_from_weights(CART, "CartPole-v1", kind)(OBS) for kind in ("tanh", "relu"))
    assert not np.array_equal(tanh, relu)
    np.testing.assert_array_equal(us.policy_from_weights("complete.npz", "CartPole-v1")(OBS), tanh)
    np.testing.assert_array_equal(us.policy_from_weights("incomplete.npz", "CartPole-v1", "relu")(OBS), relu)
    with pytest.raises(SettingError, match=r"activation is 'relu', but 'complete.npz' .*'tanh'"):
        us.policy_from_weights("complete.npz", "CartPole-v1", "relu")
    with pytest.raises(NeedsError, match="activation="):
        us.policy_from_weights("incomplete.npz", "CartPole-v1")
    assert holds_weights("complete.npz")
    us.policy_from_weights("complete.npz", "CartPole-v1").save("saved.npz")
    assert not holds_weights("saved.npz")
    assert not holds_weights("absent.npz")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"b1": None}, SpecError, "has no b1"),
        ({"w1": np.ones((5, 2))}, SpecError, r"w1 of shape \(5, 2\) and b1 of shape \(2,\)"),
        ({"w0": np.full((4, 6), np.nan)}, SpecError, "NaN or infinity in w0"),
        ({"w0": np.ones((3, 6))}, SpecError, "3 inputs and 2 outputs.*CartPole-v1 needs 4"),
        ({"activation": "gelu"}, SettingError, "activation is 'gelu'"),
        ({"clip": 2.0}, SettingError, "clip is 2.0"),
    ],
)
def test_invalid_weights_raise(change, error, message):
    arrays = {name: value for name, value in {**CART, "activation": "tanh", **change}.items() if value is not None}
    with pytest.raises(error, match=message):
        us.policy_from_weights(arrays, "CartPole-v1")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"activation": np.array("\x1b[31mgelu")}, "activation is"),
        ({"activation": np.array("x" * 1000)}, "'activation' has 4.0 kB"),
        ({"activation": np.array(3)}, "'activation' has type"),
        ({"squash": np.array("yes")}, "'squash' has type"),
        ({"squash": np.array(7)}, "squash is 7"),
        ({"squash": np.array([True, False])}, "squash is None"),
        ({"clip": np.array(np.nan), "squash": np.array(True)}, "clip is nan"),
        ({"clip": np.array(-1)}, "clip is -1"),
        ({"w0": np.array([None])}, "never read"),
        ({"w0": np.zeros((4, 6), complex)}, "'w0' has type complex128"),
        ({"w0": np.full((4, 6), 1e300)}, "NaN or infinity in w0"),
        ({"w0": np.full((4, 6), 3e38)}, "overflow"),
        ({"w0": None}, "has no w0"),
    ],
)
def test_a_damaged_file_of_weights_is_refused_by_name(change, reason, tmp_path):
    arrays = {name: value for name, value in {**CART, "activation": "tanh", **change}.items() if value is not None}
    np.savez(tmp_path / "weights.npz", **arrays)
    with pytest.raises(UnderstudyError, match=reason) as failure:
        us.policy_from_weights(tmp_path / "weights.npz", "CartPole-v1")
    assert "weights.npz" in str(failure.value)
    assert str(failure.value).isprintable()


def test_other_arrays_in_a_file_of_weights_are_left_alone(tmp_path):
    np.savez(tmp_path / "weights.npz", **CART, activation="tanh", optimizer=np.array([None]), w=np.zeros(3))
    expected = us.policy_from_weights(CART, "CartPole-v1", "tanh")(OBS)
    np.testing.assert_array_equal(us.policy_from_weights(tmp_path / "weights.npz", "CartPole-v1")(OBS), expected)


def test_a_file_without_arrays_raises(tmp_path):
    (tmp_path / "text.npz").write_text("nothing")
    with pytest.raises(RunError, match=r"text\.npz"):
        us.policy_from_weights(tmp_path / "text.npz", "CartPole-v1", "tanh")


def test_a_saved_policy_answers_deterministically_and_a_script_with_samples(tmp_path):
    host, forest = us.make("CartPole-v1"), us.make("Forest")
    np.savez(tmp_path / "weights.npz", **CART, activation="tanh")
    actor = us.policy_from_weights(tmp_path / "weights.npz", host)
    actor.save(tmp_path / "saved.npz")
    for given in (actor, tmp_path / "weights.npz", str(tmp_path / "saved.npz")):
        expert = as_expert(given, host)
        assert expert.deterministic
        assert expert.budget(3).deterministic
        for seed in range(3):
            np.testing.assert_array_equal(expert.query(OBS, host.spec, np.random.default_rng(seed)), actor(OBS))
    drawn = Expert(actor.policy).query(OBS, host.spec, np.random.default_rng(0))
    assert not np.array_equal(drawn, actor(OBS))
    assert not as_expert("scripted", forest).deterministic
    assert not as_expert(forest.expert(), forest).deterministic


def test_a_deterministic_expert_answers_with_its_mode_inside_and_outside_a_program(tasks):
    walk = tasks["discrete"]["env"]
    policy = walk.expert()
    obs = RANDOM.normal(size=(20, *walk.spec.obs_shape)).astype(np.float32)
    expected = policy.mode(start((len(obs),)), jnp.asarray(obs))
    keys = jax.random.split(jax.random.key(0), len(obs))
    compiled = jax.jit(jax.vmap(lambda o, k: query_expert(policy, True, jnp.asarray(0), o, k)))(obs, keys)
    np.testing.assert_array_equal(compiled, expected)
    on_host = Expert(policy, deterministic=True).query(obs, walk.spec, np.random.default_rng(0))
    np.testing.assert_array_equal(on_host, expected)


@pytest.mark.slow
def test_the_command_line_takes_an_expert_of_plain_weights(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("weights.npz", **CART)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["understudy", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code or 0, capsys.readouterr().err

    record = ["demos", "record", "CartPole-v1", "--expert", "weights.npz", "--episodes", "2", "--out", "demos.npz"]
    status, message = run(*record)
    assert status == 2
    assert "--expert-activation" in message
    assert run(*record, "--expert-activation", "tanh")[0] == 0
    demos = us.load("demos.npz")
    np.testing.assert_array_equal(
        demos.actions, us.policy_from_weights(CART, "CartPole-v1", "tanh")(demos.observations)
    )
    small = ["--rounds", "2", "--gradient-steps", "2", "--episodes-per-round", "2", "--hidden", "8"]
    train = ["train", "dagger", "--demos", "demos.npz", "--env", "CartPole-v1", "--expert", "weights.npz", *small]
    assert run(*train)[0] == 2
    assert run(*train, "--expert-activation", "tanh")[0] == 0
    assert us.load_run("runs/dagger").metrics["queries"][0, -1] > 0
