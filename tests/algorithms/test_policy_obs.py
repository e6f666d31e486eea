"""policy_obs: a policy that gets part of the observation, for every algorithm. Critics get all of it."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_protocol

import understudy as us
from support.commands import understudy  # noqa: F401
from support.training import every_round  # noqa: F401
from understudy.algorithms import find
from understudy.core.errors import RunError, SettingError
from understudy.core.types import Spec
from understudy.policies import Categorical, start
from understudy.policies.actor import Actor
from understudy.policies.networks import MLP
from understudy.train.programs import traced

demonstrations = test_protocol.demonstrations  # a fixture
POLICY_OBS = (2, 0)
CASES = [(name, kind) for name, kind in test_protocol.ONE_KIND if name in us.ALGORITHMS]


@pytest.fixture
def masked(tasks):
    """A function that trains the named algorithm with two observations for the policy."""

    def call(name, demonstrations, policy_obs=POLICY_OBS, **options):
        kind = "discrete" if isinstance(demonstrations.action_space, us.Discrete) else "continuous"
        algorithm = find(name)(**find(name).small)
        needed = tasks[kind] if "environment" in algorithm.card.needs else {}
        return us.imitate(algorithm, demonstrations, **needed, policy_obs=policy_obs, **options)

    return call


def changed(obs, where, seed=1):
    """The observations with other numbers in the given columns."""
    other = np.array(obs)
    other[:, where] = 3 * np.random.default_rng(seed).normal(size=(len(obs), len(where)))
    return other


@pytest.mark.parametrize(("name", "demonstrations"), CASES, indirect=["demonstrations"])
def test_actions_depend_on_policy_obs_only(name, demonstrations):
    """Before training; an update keeps the structure of the state, which the input indices are part of."""
    algorithm, spec = traced(find(name)(**find(name).small)), replace(demonstrations.spec, policy_obs=POLICY_OBS)
    data = jax.tree.map(lambda x: x[0] if x.ndim == 1 and len(x) == 1 else x, demonstrations.split([2], 0.0)[0])
    state = jax.jit(lambda key: algorithm.init(key, spec, data))(jax.random.key(0))
    after, _ = jax.eval_shape(algorithm.update, state, test_protocol.stand_in(algorithm, data), jax.random.key(1))
    assert jax.tree.structure(after) == jax.tree.structure(state)

    policy, obs = algorithm.policy(state), data.steps.obs[:80]
    hidden = [i for i in range(obs.shape[1]) if i not in POLICY_OBS]

    @jax.jit
    @jax.vmap
    def act(one):
        """The deterministic action and the action or probabilities: an argmax may not change."""
        actions, weights = policy.support(start(), one, jax.random.key(0))
        return policy.mode(start(), one), weights if isinstance(spec.action, us.Discrete) else actions

    actions, support = act(obs)
    for same, other in zip((actions, support), act(changed(obs, hidden)), strict=True):
        np.testing.assert_array_equal(same, other)
    assert not np.array_equal(support, act(changed(obs, list(POLICY_OBS)))[1])
    np.testing.assert_allclose(Actor(policy, spec).predict(obs, None, True)[0], actions, atol=1e-5)


def test_all_indices_give_the_same_network_as_none():
    key, spec = jax.random.key(0), Spec((3,), us.Discrete(2), 5)
    assert Categorical.init(key, 3, 2, (8,)).net.input_indices is None
    all_ = Categorical.init(key, 3, 2, (8,), input_indices=(0, 1, 2))
    for left, right in zip(jax.tree.leaves(all_), jax.tree.leaves(Categorical.init(key, 3, 2, (8,))), strict=True):
        np.testing.assert_array_equal(left, right)
    assert spec.policy_obs is None
    assert spec.with_extra_obs(1) == Spec((4,), us.Discrete(2), 5)


def test_a_network_selects_its_inputs_in_the_order_given():
    net = MLP((np.eye(2, dtype=np.float32),), (np.zeros(2, np.float32),), "identity", input_indices=(2, 0))
    batch = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(net(batch[0]), [2, 0])
    np.testing.assert_array_equal(net(batch), [[2, 0], [5, 3]])
    np.testing.assert_array_equal(net(jnp.asarray(batch)), [[2, 0], [5, 3]])


def test_extra_observations_are_inputs_of_the_policy():
    """ValueDICE appends a mark of the absorbing state."""
    spec = Spec((3,), us.Discrete(2), 5, (2, 0)).with_extra_obs(1)
    assert (spec.obs_shape, spec.policy_obs) == ((4,), (2, 0, 3))


@pytest.mark.parametrize("name", ["advil", "daequil"])
def test_the_critic_gets_the_whole_observation(name, discrete, masked):
    kept = []

    def visit(done, states):
        kept.append(jax.device_get(jax.tree.map(lambda x: x[0], states())))

    policy, state = masked(name, discrete, visit=visit).policy, kept[-1]
    critic = state.critic if name == "advil" else jax.tree.map(lambda x: x[1], state.critics)
    assert critic.net.weights[0].shape[0] == 4 + 3
    obs, act = discrete.observations[:80], np.eye(3, dtype=np.float32)[np.zeros(80, int)]
    other, f = changed(obs, [1, 3]), jax.vmap(critic, (None, 0, 0))
    t = jnp.asarray(0)
    np.testing.assert_array_equal(policy(obs), policy(other))
    assert not np.allclose(f(t, obs, act), f(t, other, act))


def test_policy_obs_is_saved_with_the_policy_and_the_run(continuous, masked, tmp_path):
    result = masked("bc", continuous)
    result.save(tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["policy_obs"] == list(POLICY_OBS)
    back, obs = us.load_policy(tmp_path / "run"), continuous.observations[:20]
    assert back.spec.policy_obs == POLICY_OBS
    np.testing.assert_array_equal(back(obs), result.policy(obs))
    np.testing.assert_array_equal(back(obs[0]), result.policy(obs)[0])
    assert masked("bc", continuous, policy_obs=None).config["policy_obs"] is None


@pytest.mark.parametrize("bad", [(), (0, 0), (0, 3), (-1,), (0.5,), (True,), "01", 1, [[0, 1]]])
def test_invalid_indices_are_refused(bad, continuous):
    with pytest.raises(SettingError, match="policy_obs is "):
        us.imitate(us.bc(**us.bc.small), continuous, policy_obs=bad)


@pytest.mark.usefixtures("every_round")
def test_a_checkpoint_of_other_policy_obs_is_refused(continuous, masked, tmp_path):
    path = tmp_path / "checkpoint.npz"

    def interrupt(done, states):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        masked("bc", continuous, checkpoint=path, visit=interrupt)
    for other in (None, (0, 2)):
        with pytest.raises(RunError, match="policy_obs"):
            masked("bc", continuous, policy_obs=other, checkpoint=path)
    resumed = masked("bc", continuous, checkpoint=path)
    obs = continuous.observations[:20]
    np.testing.assert_array_equal(resumed.policy(obs), masked("bc", continuous).policy(obs))


def test_the_command_line_has_an_option(understudy):  # noqa: F811
    small = ["--rounds", "2", "--gradient-steps", "2", "--hidden", "8", "--batch-size", "8"]
    train = ["train", "bc", "--demos", "Pendulum", *small, "--policy-obs"]
    assert understudy(*train, "0", "2", "--out", "run")[0] == 0
    assert us.load_policy("run").spec.policy_obs == (0, 2)
    status, _, error = understudy(*train, "0", "3", "--out", "other")
    assert status == 2
    assert "policy_obs is (0, 3)" in error
