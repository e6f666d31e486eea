"""Independent categoricals, for multi-discrete actions with too many combinations for one categorical."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import understudy as us
from support.spaces import Shaped
from understudy.core.errors import DemonstrationError, NeedsError, RunError, SettingError, SpecError
from understudy.core.spaces import actions_of
from understudy.core.types import Spec
from understudy.policies import MLP, Independent, start
from understudy.policies.actor import Actor
from understudy.policies.checks import check_policy

NVEC = (2, 3, 4)
MANY = spaces.MultiDiscrete([20, 20, 20], start=[1, 0, 0])
SMALL = {"rounds": 2, "gradient_steps": 2, "batch_size": 8, "hidden": (8,)}


@pytest.fixture(scope="module")
def policy():
    return Independent.init(jax.random.key(0), 5, NVEC, (8,))


def test_the_density_sums_to_one_over_all_combinations_and_its_largest_is_the_mode(policy):
    obs = jnp.linspace(-1, 1, 5)
    acts = jnp.array(list(itertools.product(*map(range, NVEC))))
    densities = jax.vmap(lambda act: jnp.exp(policy.log_prob(start(), obs, act)))(acts)
    assert float(densities.sum()) == pytest.approx(1, abs=1e-5)
    np.testing.assert_array_equal(acts[densities.argmax()], policy.mode(start(), obs))


def test_draws_have_the_probabilities_of_the_density_on_numpy_and_jax(policy):
    obs, host = np.linspace(-1, 1, 5).astype(np.float32), jax.tree.map(np.asarray, policy)
    batch = np.repeat(obs[None], 20_000, 0)
    on_host = host.draw(start(), batch, np.random.default_rng(0))
    keys = jax.random.split(jax.random.key(1), len(batch))
    in_jax = jax.vmap(lambda key: policy.draw(start(), jnp.asarray(obs), key))(keys)
    for i, n in enumerate(NVEC):
        logits = np.asarray(policy.net(obs))[sum(NVEC[:i]) : sum(NVEC[: i + 1])]
        expected = np.exp(logits) / np.exp(logits).sum()
        for drawn in (on_host, np.asarray(in_jax)):
            np.testing.assert_allclose(np.bincount(drawn[:, i], minlength=n) / len(batch), expected, atol=0.015)
    for i, j in itertools.combinations(range(3), 2):
        assert abs(np.corrcoef(on_host[:, i], on_host[:, j])[0, 1]) < 0.03, "independent"
    np.testing.assert_array_equal(host.mode(start(), batch)[0], policy.mode(start(), jnp.asarray(obs)))
    acts, weights = policy.support(start(), jnp.asarray(obs), jax.random.key(0))
    assert (acts.shape, weights.tolist()) == ((1, 3), [1.0])


def test_a_policy_is_saved_and_its_file_is_checked(policy, tmp_path):
    spec = Spec((5,), us.MultiDiscrete(NVEC), 7)
    actor = Actor(policy, spec)
    actor.save(tmp_path / "p.npz")
    back, obs = us.load_policy(tmp_path / "p.npz"), np.ones((3, 5), np.float32)
    assert back.spec == spec
    np.testing.assert_array_equal(back(obs), actor(obs))
    assert back(obs).dtype == np.int64
    with pytest.raises(SpecError, match="nvec is"):
        check_policy(actor.policy, Spec((5,), us.MultiDiscrete((3, 2, 4)), 7))
    with pytest.raises(SpecError, match="a Independent for discrete actions"):
        check_policy(actor.policy, Spec((5,), us.Discrete(9), 7))
    Actor(policy, Spec((5,), us.MultiDiscrete((4, 3, 2)), 7)).save(tmp_path / "wrong.npz")
    with pytest.raises(RunError, match="nvec is"):
        us.load_policy(tmp_path / "wrong.npz")


def test_actions_are_encoded_and_decoded():
    actions = actions_of(MANY, "env")
    assert actions.space == us.MultiDiscrete((20, 20, 20))
    given = np.array([[1, 0, 19], [20, 5, 5]])
    np.testing.assert_array_equal(actions.encode(given), [[0, 0, 19], [19, 5, 5]])
    np.testing.assert_array_equal(actions.decode(actions.encode(given)), given)
    for bad in (np.array([[0, 0, 0]]), np.array([[1, 20, 0]]), np.array([[1.0, 1, 1]])):
        with pytest.raises(ValueError, match="discrete action"):
            actions.encode(bad)
    grid = actions_of(spaces.MultiBinary((4, 4)), "env")
    assert grid.decode(np.ones((2, 16), int)).shape == (2, 4, 4)
    with pytest.raises(SpecError, match=r"^env has the action space"):
        actions_of(spaces.MultiDiscrete([60_000, 60_000]), "env")


@pytest.mark.parametrize("bad", [(), (0, 2), (1.5,), (True,), 3, (40_000, 40_000)])
def test_invalid_counts_are_refused(bad):
    with pytest.raises(SpecError, match=r"^a multi-discrete action space has nvec"):
        us.MultiDiscrete(bad)


def expert(obs):
    """Each number depends on one of the observed ones."""
    return np.stack([(obs[:, i % 2] > 0).astype(int) * (3 + i) for i in range(3)], axis=1)


@pytest.fixture(scope="module")
def demos():
    return us.record(us.make(functools.partial(Shaped, actions=MANY), 6), expert, 40, workers=0)


def test_demonstrations_keep_their_space_in_a_file(demos, tmp_path):
    assert demos.action_space == us.MultiDiscrete((20, 20, 20))
    demos.save(tmp_path / "d.npz")
    back = us.load(tmp_path / "d.npz")
    assert back.action_space == demos.action_space
    np.testing.assert_array_equal(back.actions, demos.actions)
    for actions, words in ((demos.actions + 17, "out of range"), (demos.actions * 1.0, "3 integers per step")):
        with pytest.raises(DemonstrationError, match=words):
            us.Demonstrations.from_arrays(demos.observations, actions, action_space=demos.action_space)
    noisy = us.record(us.make(functools.partial(Shaped, actions=MANY), 6), expert, 2, noise=1.0, workers=0)
    assert len(np.unique(noisy.actions)) > 10


@pytest.mark.parametrize("name", ["bc", pytest.param("dagger", marks=pytest.mark.slow)])
def test_cloning_learns_the_expert(demos, name):
    env = us.make(functools.partial(Shaped, actions=MANY), 6)
    settings = {"rounds": 2, "gradient_steps": 400, "batch_size": 64, "hidden": (32,), "lr": 1e-2}
    given = {} if name == "bc" else {"expert": expert, "workers": 0}
    extra = {"ema_decay": 0.0} if name == "bc" else {"episodes_per_round": 2}
    result = us.imitate(us.ALGORITHMS[name](**settings, **extra), demos, env, **given)
    obs = np.random.default_rng(0).uniform(-1, 1, (500, 2)).astype(np.float32)
    assert (result.policy(obs) == expert(obs)).all(axis=1).mean() > 0.9
    assert result.evaluate(episodes=2, workers=0).returns.shape == (1, 2)
    assert np.isfinite(result.runs[0].payoff)


def test_other_algorithms_say_in_one_line_that_they_do_not_take_them(demos):
    env = us.make(functools.partial(Shaped, actions=MANY), 6)
    with pytest.raises(NeedsError, match=r"^AdVIL takes .*; these are multi-discrete$"):
        us.imitate(us.advil(), demos)
    with pytest.raises(SpecError, match=r"^Shaped has multi-discrete actions"):
        us.learn(us.rl.PPO(), env, 10)
    with pytest.raises(SettingError, match="multi-discrete actions need one network"):
        us.imitate(us.bc(**SMALL, ensemble_size=2), demos)
    net = {"w0": np.zeros((2, 60), np.float32), "b0": np.zeros(60, np.float32)}
    with pytest.raises(SpecError, match="multi-discrete"):
        us.policy_from_weights(net, env)
    other = Independent(MLP((np.zeros((2, 61)),), (np.zeros(61),), "relu"), (20, 41))
    with pytest.raises(SpecError, match=r"Shaped has observations .* 60 multi-discrete actions"):
        us.evaluate([Actor(other, Spec((2,), us.MultiDiscrete((20, 41)), 6))], env)


def test_a_wrong_answer_of_the_expert_is_named(demos):
    env = us.make(functools.partial(Shaped, actions=MANY), 6)
    with pytest.raises(SpecError, match="whole numbers from 0, 0, 0 to 19, 19, 19"):
        us.record(env, lambda obs: np.full((len(obs), 3), 20), 1, workers=0)
