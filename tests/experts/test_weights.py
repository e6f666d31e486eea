"""A policy from plain weights, and an expert that answers with its mode."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.cli.main import main as cli
from understudy.collect.collectors import Fused, Hosted
from understudy.core.errors import NeedsError, RunError, SettingError, SpecError
from understudy.core.types import Dataset
from understudy.experts.expert import Expert, as_expert
from understudy.experts.weights import holds_weights
from understudy.policies import Categorical, start
from understudy.train.loop import traced

RANDOM = np.random.default_rng(0)
CART = {"w0": RANDOM.normal(size=(4, 6)), "b0": np.ones(6), "w1": RANDOM.normal(size=(6, 2)), "b1": np.zeros(2)}
SWING = {"w0": 3 * RANDOM.normal(size=(3, 5)), "b0": np.zeros(5), "w1": RANDOM.normal(size=(5, 1)), "b1": np.ones(1)}
OBS = RANDOM.normal(size=(50, 4)).astype(np.float32)


@pytest.mark.parametrize(("activation", "bend"), [("tanh", np.tanh), ("relu", lambda x: np.maximum(x, 0))])
def test_discrete_actions_are_the_largest_output(activation, bend, tmp_path):
    expected = (bend(OBS @ CART["w0"] + CART["b0"]) @ CART["w1"] + CART["b1"]).argmax(1)
    actor = us.policy_from_weights(CART, "CartPole-v1", activation)
    np.testing.assert_array_equal(actor(OBS), expected)
    assert set(expected) == {0, 1}
    assert isinstance(actor.policy, Categorical)
    actor.save(tmp_path / "saved.npz")
    np.testing.assert_array_equal(us.load_policy(tmp_path / "saved.npz")(OBS), expected)


def test_continuous_actions_are_the_output_or_squashed_into_the_range():
    """Pendulum's torque lies in [-2, 2]."""
    obs = OBS[:, :3]
    out = np.maximum(obs @ SWING["w0"], 0) @ SWING["w1"] + 1
    assert np.abs(out).max() > 2
    plain = us.policy_from_weights(SWING, "Pendulum", "relu")
    np.testing.assert_allclose(plain(obs), np.clip(out, -2, 2), rtol=1e-4, atol=1e-5)
    squashed = us.policy_from_weights({**SWING, "squash": True, "clip": 1.5}, "Pendulum", "relu")
    np.testing.assert_allclose(squashed(obs), 2 * np.tanh(np.clip(out, -1.5, 1.5)), rtol=1e-4, atol=1e-5)
    assert np.abs(squashed(obs)).max() < 2 * np.tanh(1.5) + 1e-4


def test_what_a_file_says_of_its_weights_is_read_and_not_contradicted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("told.npz", **CART, activation="tanh")
    np.savez("silent.npz", **CART)
    tanh, relu = (us.policy_from_weights(CART, "CartPole-v1", kind)(OBS) for kind in ("tanh", "relu"))
    assert not np.array_equal(tanh, relu)
    np.testing.assert_array_equal(us.policy_from_weights("told.npz", "CartPole-v1")(OBS), tanh)
    np.testing.assert_array_equal(us.policy_from_weights("silent.npz", "CartPole-v1", "relu")(OBS), relu)
    with pytest.raises(SettingError, match=r"activation is 'relu', but 'told.npz' says 'tanh'"):
        us.policy_from_weights("told.npz", "CartPole-v1", "relu")
    with pytest.raises(NeedsError, match="not what lies between the layers"):
        us.policy_from_weights("silent.npz", "CartPole-v1")
    assert holds_weights("told.npz")
    us.policy_from_weights("told.npz", "CartPole-v1").save("saved.npz")
    assert not holds_weights("saved.npz")
    assert not holds_weights("absent.npz")


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"b1": None}, SpecError, "has no b1"),
        ({"w1": np.ones((5, 2))}, SpecError, r"w1 of shape \(5, 2\) and b1 of shape \(2,\) behind 6 numbers"),
        ({"w0": np.full((4, 6), np.nan)}, SpecError, "NaN or infinity in w0"),
        ({"w0": np.ones((3, 6))}, SpecError, "takes 3 numbers to 2: in CartPole-v1 a policy takes 4 to 2"),
        ({"activation": "gelu"}, SettingError, "activation is 'gelu'"),
        ({"clip": 2.0}, SettingError, "pass squash=True"),
    ],
)
def test_what_is_wrong_with_weights_is_named(change, error, said):
    arrays = {name: value for name, value in {**CART, "activation": "tanh", **change}.items() if value is not None}
    with pytest.raises(error, match=said):
        us.policy_from_weights(arrays, "CartPole-v1")


def test_a_file_that_holds_no_arrays_is_named(tmp_path):
    (tmp_path / "text.npz").write_text("nothing")
    with pytest.raises(RunError, match="is not an npz file of weights"):
        us.policy_from_weights(tmp_path / "text.npz", "CartPole-v1", "tanh")


def test_what_was_saved_answers_with_its_mode_and_a_script_draws(tmp_path):
    host, forest = us.make("CartPole-v1"), us.make("Forest")
    np.savez(tmp_path / "weights.npz", **CART, activation="tanh")
    actor = us.policy_from_weights(tmp_path / "weights.npz", host)
    actor.save(tmp_path / "saved.npz")
    for given in (actor, tmp_path / "weights.npz", str(tmp_path / "saved.npz")):
        expert = as_expert(given, host)
        assert expert.deterministic
        assert expert.budget(3).deterministic
        for seed in range(3):
            np.testing.assert_array_equal(expert.ask(OBS, host.spec, np.random.default_rng(seed)), actor(OBS))
    drawn = Expert(actor.policy).ask(OBS, host.spec, np.random.default_rng(0))
    assert not np.array_equal(drawn, actor(OBS))
    assert not as_expert("scripted", forest).deterministic
    assert not as_expert(forest.expert(), forest).deterministic


def test_both_collectors_ask_for_the_mode(surroundings, discrete):
    """The same expert, inside the compiled program and on the host."""
    walk = surroundings["discrete"]["env"]
    policy = walk.expert()
    algorithm = traced(us.dagger(rounds=2, gradient_steps=1, episodes_per_round=3, hidden=(4,)))
    data, _ = discrete.split([2], 0.0)
    state = algorithm.init(jax.random.key(0), walk.spec, data.of(0))
    fused = Fused(walk, policy, np.int32(1000), True)
    found = fused.collect(algorithm, state, jnp.asarray(1), jnp.zeros((), jnp.int32), jax.random.key(1))
    hosted = Hosted(walk, Expert(policy, deterministic=True), [0])
    stacked = hosted.gather(algorithm, jax.tree.map(lambda x: x[None], state), 1, np.zeros(1, int), np.array([True]))
    for rollouts, answers in (
        (found.rollouts, found.expert_actions),
        (jax.tree.map(lambda x: x[0], stacked.rollouts), stacked.expert_actions[0]),
    ):
        assert isinstance(rollouts, Dataset)
        size = int(rollouts.size)
        assert size > 3
        expected = policy.mode(start((size,)), jnp.asarray(rollouts.steps.obs[:size]))
        np.testing.assert_array_equal(answers[:size], expected)


def test_the_command_line_asks_an_expert_of_weights(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("silent.npz", **CART)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["understudy", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code or 0, capsys.readouterr().err

    collect = ["demos", "collect", "CartPole-v1", "--expert", "silent.npz", "--episodes", "2", "--out", "demos.npz"]
    status, said = run(*collect)
    assert status == 2
    assert "--expert-activation" in said
    assert run(*collect, "--expert-activation", "tanh")[0] == 0
    demos = us.load("demos.npz")
    np.testing.assert_array_equal(
        demos.actions, us.policy_from_weights(CART, "CartPole-v1", "tanh")(demos.observations)
    )
    small = ["--rounds", "2", "--steps", "2", "--episodes-per-round", "2", "--hidden", "8", "--batch-size", "8"]
    train = ["train", "dagger", "--demos", "demos.npz", "--env", "CartPole-v1", "--expert", "silent.npz", *small]
    assert run(*train)[0] == 2
    assert run(*train, "--expert-activation", "tanh")[0] == 0
    assert us.load_run("runs/dagger").history["queries"][0, -1] > 0
    status, said = run("train", "bc", "--demos", "demos.npz", "--expert-activation", "tanh")
    assert status == 2
    assert "--expert-activation is for weights" in said
