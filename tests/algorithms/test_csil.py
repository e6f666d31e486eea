"""CSIL: the coherent reward on a finite MDP, the clone in closed form, its prior far from the data, settings."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.reward import INIT, STEPS_WITH_ENDS, UPDATE, RecordingSAC, demonstrations, learner_steps, round_data
from understudy.core.errors import SettingError
from understudy.rl import SAC


def soft_optimal(transitions, reward, temperature, discount, regularized_to):
    """The policy of max E Σ γ^t [ r − α log(π / `regularized_to`) ], and its values, by value iteration."""
    value = jnp.zeros(len(transitions))
    for _ in range(600):
        q = reward + discount * transitions @ value
        value = temperature * jax.nn.logsumexp(q / temperature + jnp.log(regularized_to), axis=1)
    return jax.nn.softmax(q / temperature + jnp.log(regularized_to), axis=1), value


@pytest.mark.parametrize("temperature", [0.1, 2.0])
def test_a_clone_is_soft_optimal_for_its_coherent_reward(temperature):
    """Exactly: with the prior as the reference all soft values are 0, and the policy is the clone, in any MDP."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        transitions = jnp.asarray(rng.dirichlet(np.ones(6), (6, 3)))
        clone, prior = (jnp.asarray(rng.dirichlet(np.ones(3), 6)) for _ in range(2))
        reward = temperature * (jnp.log(clone) - jnp.log(prior))
        policy, value = soft_optimal(transitions, reward, temperature, 0.9, prior)
        np.testing.assert_allclose(policy, clone, atol=1e-12)
        np.testing.assert_allclose(value, 0, atol=1e-12)


def test_with_the_clone_as_the_reference_the_policy_seeks_the_states_that_the_clone_knows():
    """Two actions lead to two states: the clone is sure of one action in the first, and knows nothing of the second.
    In a third state, which it does not know either, the policy chooses the way to the first."""
    with jax.enable_x64(True):
        to = jnp.eye(3)[jnp.array([[0, 0], [1, 1], [0, 1]])]
        clone, prior = jnp.array([[0.98, 0.02], [0.5, 0.5], [0.5, 0.5]]), jnp.full((3, 2), 0.5)
        reward = 0.1 * (jnp.log(clone) - jnp.log(prior))
        policy, value = soft_optimal(to, reward, 0.01, 0.9, clone)
        assert policy[2, 0] > 0.99
        assert value[0] > 0.5
        np.testing.assert_allclose(value[1], 0, atol=1e-12)
        plain, _ = soft_optimal(to, reward, 0.1, 0.9, prior)
        np.testing.assert_allclose(plain, clone, atol=1e-12)  # it does not care


# ------------------------------------------------------------------------------------------------- the reward


def algorithm(**settings):
    given = {"rounds": 4, "round_steps": 12, "frequency": 12, "random_steps": 0, "batch_size": 64, "clone_steps": 0}
    player = RecordingSAC(hidden=(4,), discount=0.9, temperature=0.05)
    return us.csil(**given | {"points": 64, "noise": 0.1} | settings, sac=player)


@pytest.fixture(scope="module")
def demos():
    return demonstrations()


@pytest.fixture(scope="module")
def data(demos):
    return demos.split([4], 0.0)[0].of(0)


@pytest.fixture(scope="module")
def moments(demos, data):
    """Of round 0."""
    before = INIT(algorithm(), demos.spec, data)
    return UPDATE(algorithm(), before, round_data(data, learner_steps(3), 0))[0].moments


def test_the_clone_is_a_gaussian_process_with_the_demonstrated_steps(moments, data):
    """In NumPy, from the definition: 34 steps, some of which are listed twice."""
    steps = jax.tree.map(lambda x: x[: int(data.size)], data.steps)
    points = np.asarray(moments.kernel.points(steps), np.float64)
    states, acts = points[:, :2], points[:, 2]
    width = float(moments.bandwidth * moments.kernel.bandwidth)

    def near(x, y):
        return np.exp(-np.square(x[:, None] - y).sum(-1) / (2 * width**2))

    tried = steps._replace(obs=steps.obs + 0.1, act=steps.act * 0.5)
    at = np.asarray(moments.kernel.points(tried), np.float64)
    inverse = np.linalg.inv(near(states, states) + 0.01 * np.eye(len(states)))
    cross = near(at[:, :2], states)
    mean, variance = cross @ inverse @ acts, 1 - ((cross @ inverse) * cross).sum(1) + 0.01
    log_q = -0.5 * (at[:, 2] - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)
    log_p = -0.5 * at[:, 2] ** 2 / 1.01 - 0.5 * np.log(2 * np.pi * 1.01)
    ours = moments.log_ratio(tried)
    np.testing.assert_allclose(ours[0], log_q, rtol=1e-2, atol=2e-2)
    np.testing.assert_allclose(ours[1], log_p, rtol=1e-4)
    wanted = np.clip(0.1 * (log_q - log_p) + 0.05 * log_q, -10, 10)
    np.testing.assert_allclose(moments.reward(tried), wanted, rtol=1e-2, atol=5e-3)


def test_the_experts_actions_are_rewarded_and_others_in_its_states_are_not(moments, data):
    steps = jax.tree.map(lambda x: x[: int(data.size)], data.steps)
    away = steps._replace(act=jnp.where(steps.act > 0, steps.act - 1.5, steps.act + 1.5))
    assert float(moments.reward(steps).mean()) > 0.1
    assert float(moments.reward(away).mean()) < -0.5


@pytest.mark.parametrize("act", [-2.0, 0.0, 1.0])
def test_far_from_the_data_the_clone_is_the_prior_and_the_coherent_reward_is_zero(moments, data, act):
    steps = jax.tree.map(lambda x: x[:5], data.steps)
    far = steps._replace(obs=steps.obs + 1e4, act=jnp.full_like(steps.act, act))
    log_q, log_p = moments.log_ratio(far)
    np.testing.assert_allclose(log_q, log_p, atol=1e-5)
    assert float(moments.absorbing_reward(None, True)) == 0


def test_observations_that_critics_do_not_see_are_not_taken_for_actions(demos, data):
    """With `critic_obs` a hidden number of the observation is 0 in the kernel, so the reward does not depend on it."""
    spec = replace(demos.spec, critic_obs=(1,))
    before = INIT(algorithm(), spec, data)
    fitted = UPDATE(algorithm(), before, round_data(data, learner_steps(3), 0))[0].moments
    steps = jax.tree.map(lambda x: x[: int(data.size)], data.steps)
    assert fitted.answers.shape == (64, 1)
    hidden, seen = (steps._replace(obs=steps.obs.at[:, number].add(0.3)) for number in (0, 1))
    np.testing.assert_array_equal(fitted.reward(hidden), fitted.reward(steps))
    assert np.abs(np.asarray(fitted.reward(seen) - fitted.reward(steps))).max() > 0.01
    _, log_p = fitted.log_ratio(steps)
    act = np.asarray(fitted.kernel.points(steps))[:, 2]
    np.testing.assert_allclose(log_p, -0.5 * act**2 / 1.01 - 0.5 * np.log(2 * np.pi * 1.01), rtol=1e-4)


def test_discrete_actions_are_counted_near_a_state():
    """Two demonstrated actions in one place: (c / 2 + 2) / (c + 2); uniform far away."""
    obs, act = np.array([[0.0], [0.0], [50.0], [51.0]] * 5), np.array([0, 0, 1, 1] * 5)
    demos = us.Demonstrations.from_arrays(obs, act, [4] * 5, action_space=us.Discrete(2))
    data = demos.split([5], 0.0)[0].of(0)
    learner = us.csil(points=20, prior_count=0.1, bandwidth=0.05, round_steps=12, frequency=12, batch_size=8)
    before = learner.init(jax.random.key(0), demos.spec, data)
    rows = data.evenly_spaced(20)
    fitted = before.moments.fitted(jax.tree.map(lambda x: x[rows], data.steps), jnp.zeros(20, bool))
    steps = jax.tree.map(lambda x: x[:2], data.steps)._replace(act=jnp.array([0, 1]))
    log_q, log_p = fitted.log_ratio(steps)
    np.testing.assert_allclose(np.exp(log_q), [10.05 / 10.1, 0.05 / 10.1], rtol=1e-3)
    np.testing.assert_allclose(np.exp(log_p), 0.5, rtol=1e-5)
    far, _ = fitted.log_ratio(steps._replace(obs=steps.obs + 1e4))
    np.testing.assert_allclose(np.exp(far), 0.5, rtol=1e-5)


def test_the_reward_is_made_in_round_0_and_stays(demos, data, moments):
    before = INIT(algorithm(), demos.spec, data)
    after, info = UPDATE(algorithm(), before._replace(moments=moments), round_data(data, STEPS_WITH_ENDS, 2))
    for one, other in zip(jax.tree.leaves(moments), jax.tree.leaves(after.moments), strict=True):
        np.testing.assert_array_equal(one, other)
    sampled = info.metrics["sampled"]
    assert np.isfinite(np.asarray(sampled.reward)).all()
    np.testing.assert_array_equal(sampled.terminal_value, 0)


# -------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "settings",
    [{"scale": 0.0}, {"points": 0}, {"bandwidth": -1.0}, {"noise": 0.0}, {"prior_count": 0.0}, {"clip": 0.0}],
)
def test_invalid_settings_are_named(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        us.csil(**settings)


def test_the_temperature_is_fixed():
    with pytest.raises(SettingError, match=r"sac\.temperature"):
        us.csil(sac=SAC())
    with pytest.raises(SettingError, match=r"soft_q\.target_entropy"):
        us.csil(soft_q={"target_entropy": 0.1})
