"""A policy that sees part of the observation, under every algorithm; critics still see all of it."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import test_protocol
import understudy as us
from understudy.cli.main import main as cli
from understudy.core.errors import RunError, SettingError
from understudy.core.types import Spec
from understudy.policies import Categorical, start
from understudy.policies.actor import Actor
from understudy.policies.networks import MLP
from understudy.train import checkpoints
from understudy.train import imitate as front_door
from understudy.train.loop import traced

CASES, SMALL = test_protocol.CASES, test_protocol.SMALL
demonstrations = test_protocol.demonstrations  # a fixture
SEEN = (2, 0)


@pytest.fixture
def masked(surroundings):
    """A run whose policy sees two numbers of the observation, by an algorithm's name."""

    def call(name, demonstrations, policy_obs=SEEN, **options):
        kind = "discrete" if isinstance(demonstrations.action_space, us.Discrete) else "continuous"
        algorithm = us.ALGORITHMS[name](**SMALL[name])
        needed = surroundings[kind] if "environment" in algorithm.card.needs else {}
        return us.imitate(algorithm, demonstrations, **needed, policy_obs=policy_obs, **options)

    return call


def changed(obs, where, seed=1):
    """The observations with other numbers in the given places."""
    other = np.array(obs)
    other[:, where] = 3 * np.random.default_rng(seed).normal(size=(len(obs), len(where)))
    return other


@pytest.mark.parametrize(("name", "demonstrations"), CASES, indirect=["demonstrations"])
def test_actions_depend_on_what_the_policy_sees_and_on_nothing_else(name, demonstrations):
    """Of the policy before training: what it reads is no number, so a round, traced here, cannot change it."""
    algorithm, spec = traced(us.ALGORITHMS[name](**SMALL[name])), replace(demonstrations.spec, policy_obs=SEEN)
    data = jax.tree.map(lambda x: x[0] if x.ndim == 1 and len(x) == 1 else x, demonstrations.split([2], 0.0)[0])
    state = jax.jit(lambda key: algorithm.init(key, spec, data))(jax.random.key(0))
    after, _ = jax.eval_shape(algorithm.update, state, test_protocol.stand_in(algorithm, data), jax.random.key(1))
    assert jax.tree.structure(after) == jax.tree.structure(state)

    inside, obs = algorithm.policy(state), data.steps.obs[:80]
    hidden = [i for i in range(obs.shape[1]) if i not in SEEN]

    @jax.jit
    @jax.vmap
    def act(one):
        """The action without chance and, of discrete ones, the probabilities: an argmax may well stay."""
        actions, weights = inside.support(start(), one, jax.random.key(0))
        return inside.mode(start(), one), weights if isinstance(spec.action, us.Discrete) else actions

    chosen, told = act(obs)
    for same, other in zip((chosen, told), act(changed(obs, hidden)), strict=True):
        np.testing.assert_array_equal(same, other)
    assert not np.array_equal(told, act(changed(obs, list(SEEN)))[1])
    np.testing.assert_allclose(Actor(inside, spec)(obs), chosen, atol=1e-5)  # the host's copy is the JAX policy


def test_without_it_a_network_is_what_it_was():
    """No number of the network changes for its being able to read less."""
    key, spec = jax.random.key(0), Spec((3,), us.Discrete(2), 5)
    assert Categorical.init(key, 3, 2, (8,)).net.reads is None
    all_ = Categorical.init(key, 3, 2, (8,), reads=(0, 1, 2))
    for left, right in zip(jax.tree.leaves(all_), jax.tree.leaves(Categorical.init(key, 3, 2, (8,))), strict=True):
        np.testing.assert_array_equal(left, right)
    assert spec.policy_obs is None
    assert spec.with_extra_obs(1) == Spec((4,), us.Discrete(2), 5)


def test_a_network_reads_single_inputs_and_batches_in_the_order_given():
    net = MLP((np.eye(2, dtype=np.float32),), (np.zeros(2, np.float32),), "identity", reads=(2, 0))
    batch = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(net(batch[0]), [2, 0])
    np.testing.assert_array_equal(net(batch), [[2, 0], [5, 3]])
    np.testing.assert_array_equal(net(jnp.asarray(batch)), [[2, 0], [5, 3]])


def test_an_added_mark_is_seen_too():
    """ValueDICE marks the absorbing state behind the observation."""
    spec = Spec((3,), us.Discrete(2), 5, (2, 0)).with_extra_obs(1)
    assert (spec.obs_shape, spec.policy_obs) == ((4,), (2, 0, 3))


@pytest.mark.parametrize("name", ["advil", "daequil"])
def test_the_critic_sees_what_the_policy_does_not(name, discrete, masked):
    """After training, to which the critic's choice of moments belongs."""
    kept = []

    def visit(done, states):
        kept.append(jax.device_get(jax.tree.map(lambda x: x[0], states())))

    policy, state = masked(name, discrete, visit=visit).policy, kept[-1]
    critic = state.critic if name == "advil" else jax.tree.map(lambda x: x[1], state.critics)
    assert critic.net.weights[0].shape[0] == 4 + 3
    obs, act = discrete.observations[:80], np.eye(3, dtype=np.float32)[np.zeros(80, int)]
    other, f = changed(obs, [1, 3]), jax.vmap(critic, (None, 0, 0))
    np.testing.assert_array_equal(policy(obs), policy(other))
    assert not np.allclose(f(0, obs, act), f(0, other, act))


def test_it_is_saved_with_the_policy_and_with_the_run(continuous, masked, tmp_path):
    result = masked("bc", continuous)
    result.save(tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["policy_obs"] == list(SEEN)
    back, obs = us.load_policy(tmp_path / "run"), continuous.observations[:20]
    assert back.spec.policy_obs == SEEN
    np.testing.assert_array_equal(back(obs), result.policy(obs))
    np.testing.assert_array_equal(back(obs[0]), result.policy(obs)[0])
    assert masked("bc", continuous, policy_obs=None).config["policy_obs"] is None


def test_a_policy_saved_before_there_was_such_a_thing_still_loads(tmp_path):
    actor = Actor(Categorical.init(jax.random.key(0), 4, 3, (8,)), Spec((4,), us.Discrete(3), 5))
    actor.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as file:
        arrays = dict(file)
    structure = json.loads(str(arrays["structure.json"]))
    structure["format"] = 1
    del structure["spec"]["policy_obs"], structure["policy"]["fields"]["net"]["fields"]["reads"]
    arrays["structure.json"] = np.array(json.dumps(structure))
    np.savez(tmp_path / "old.npz", **arrays)
    obs = np.random.default_rng(0).normal(size=(9, 4))
    np.testing.assert_array_equal(us.load_policy(tmp_path / "old.npz")(obs), actor(obs))


@pytest.mark.parametrize("bad", [(), (0, 0), (0, 3), (-1,), (0.5,), (True,), "01", 1, [[0, 1]]])
def test_indices_that_name_no_part_of_the_observation_are_refused(bad, continuous):
    with pytest.raises(SettingError, match=r"policy_obs is .*: different whole numbers from 0 to 2 are needed"):
        us.imitate(us.bc(**SMALL["bc"]), continuous, policy_obs=bad)


def test_a_checkpoint_of_another_view_is_refused(continuous, masked, tmp_path, monkeypatch):
    class Often(checkpoints.Checkpoint):
        due = True

    monkeypatch.setattr(front_door, "Checkpoint", Often)
    place = tmp_path / "place.npz"

    def until_stopped(done, states):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        masked("bc", continuous, checkpoint=place, visit=until_stopped)
    for other in (None, (0, 2), (0, 1)):
        with pytest.raises(RunError, match="is a checkpoint of other policy_obs"):
            masked("bc", continuous, policy_obs=other, checkpoint=place)
    went_on = masked("bc", continuous, checkpoint=place)
    obs = continuous.observations[:20]
    np.testing.assert_array_equal(went_on.policy(obs), masked("bc", continuous).policy(obs))


def test_the_command_line_takes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        small = ["--rounds", "2", "--steps", "2", "--hidden", "8", "--batch-size", "8"]
        monkeypatch.setattr(sys, "argv", ["understudy", "train", "bc", "--demos", "Pendulum", *words, *small])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code or 0, capsys.readouterr().err

    assert run("--policy-obs", "0", "2", "--out", "r")[0] == 0
    assert us.load_policy("r").spec.policy_obs == (0, 2)
    status, said = run("--policy-obs", "0", "3", "--out", "other")
    assert status == 2
    assert "policy_obs is (0, 3): different whole numbers from 0 to 2 are needed" in said


def test_the_documents_example_is_right_that_the_speed_is_missed():
    page = (Path(__file__).parents[2] / "docs/demonstrations.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "policy_obs" in block)
    names, said = {}, []
    exec(code, {"print": said.append}, names)
    assert said[0][None].high < said[0][0, 1].low
    assert names["action"].shape == (1,)
