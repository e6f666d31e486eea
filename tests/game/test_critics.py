"""Critics and their gradient penalties, against hand-computed numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from understudy.core.types import Continuous, Discrete, Pair, Samples, Spec
from understudy.game.critics import LinearCritic, MLPCritic, gradient_penalty, interpolate, penalty_between
from understudy.game.payoffs import payoff
from understudy.policies.networks import MLP, orthogonal_penalty

SPEC = Spec((2,), Continuous((-1.0,), (1.0,)), 10)
T = jnp.array(0)


def test_the_gradient_penalty_of_a_linear_function_is_known():
    """f(s, a) = 3 s_1 + 4 a has gradient norm 5 everywhere."""
    critic = LinearCritic(jnp.array([3.0, 0.0, 4.0]), LinearCritic.init(SPEC).features, None)
    assert float(gradient_penalty(critic, T, jnp.ones(2), jnp.ones(1), 0.4)) == pytest.approx((5 - 0.4) ** 2, rel=1e-5)


def test_the_gradient_penalty_is_differentiable_where_the_gradient_vanishes():
    critic = LinearCritic.init(SPEC)
    slope = jax.grad(
        lambda w: gradient_penalty(LinearCritic(w, critic.features, None), T, jnp.ones(2), jnp.ones(1), 0.4)
    )
    assert jnp.isfinite(slope(critic.weights)).all()


def test_the_orthogonal_penalty_is_zero_for_orthogonal_columns_and_known_otherwise():
    orthogonal = MLP((jnp.eye(3)[:, :2],), (jnp.zeros(2),), "relu")
    assert float(orthogonal_penalty(orthogonal, "outputs")) == 0
    skewed = MLP((jnp.array([[1.0, 2.0], [0.0, 1.0]]),), (jnp.zeros(2),), "relu")  # columns' inner product: 2
    assert float(orthogonal_penalty(skewed, "outputs")) == pytest.approx(8.0)


def test_a_fresh_network_has_orthogonal_layers():
    network = MLP.init(jax.random.key(0), 16, (16,), 16)
    for between in ("inputs", "outputs"):
        assert float(orthogonal_penalty(network, between)) == pytest.approx(0, abs=1e-8)


def test_a_layer_that_widens_can_be_orthogonal_between_its_inputs_only():
    network = MLP.init(jax.random.key(0), 4, (), 16)
    assert float(orthogonal_penalty(network, "inputs")) == pytest.approx(0, abs=1e-8)
    gram = np.asarray(network.weights[0]).T @ np.asarray(network.weights[0])
    expected = np.sum(gram**2) - np.sum(np.diag(gram) ** 2)
    assert float(orthogonal_penalty(network, "outputs")) == pytest.approx(expected, rel=1e-5)
    assert expected > 1


def test_interpolated_points_and_their_penalty_lie_between_the_two_sides():
    learner = Samples(jnp.zeros(50, int), jnp.zeros((50, 2)), jnp.zeros((50, 1)), jnp.full(50, 0.02))
    expert = learner._replace(obs=jnp.ones((50, 2)), act=jnp.full((50, 1), 2.0))
    obs, act = jax.vmap(interpolate)(jax.random.split(jax.random.key(0), 50), learner, expert)
    assert ((obs >= 0) & (obs <= 1)).all()
    np.testing.assert_allclose(obs * 2, np.repeat(act, 2, axis=1), rtol=1e-6)  # one mixing weight per sample
    assert len(np.unique(act)) == 50
    quadratic = MLPCritic(MLP((jnp.ones((1, 1)),), (jnp.zeros(1),), "relu"), lambda s, a: jnp.sum(s**2)[None] / 2, None)
    norms = jnp.linalg.norm(obs, axis=1)
    found = penalty_between(quadratic, Pair(learner, expert), 0.5, jax.random.key(0))
    assert float(found) == pytest.approx(float(jnp.square(norms - 0.5).mean()), rel=1e-4)
    with pytest.raises(TypeError, match="vector"):
        jax.vmap(interpolate)(jax.random.split(jax.random.key(0), 50), learner._replace(act=jnp.zeros(50, int)), expert)


def test_a_discrete_action_is_an_index_or_probabilities():
    spec = Spec((2,), Discrete(3), 10)
    critic = MLPCritic.init(jax.random.key(0), spec, (8,))
    by_index = [critic(T, jnp.ones(2), jnp.array(a)) for a in range(3)]
    by_vector = [critic(T, jnp.ones(2), jnp.eye(3)[a]) for a in range(3)]
    np.testing.assert_allclose(by_index, by_vector, rtol=1e-6)
    assert len({float(value) for value in by_index}) == 3


def test_a_critic_takes_moments_of_the_users_choice():
    critic = LinearCritic.init(SPEC, lambda obs, act: jnp.array([jnp.abs(act[0] - obs[0])]))
    assert critic.weights.shape == (1,)
    critic = LinearCritic(jnp.array([2.0]), critic.features, None)
    assert float(critic(T, jnp.array([0.5, 0.0]), jnp.array([-1.0]))) == pytest.approx(3.0)


def test_the_payoff_is_the_weighted_difference():
    critic = LinearCritic(jnp.array([1.0, 0.0, 0.0]), LinearCritic.init(SPEC).features, None)
    learner = Samples(jnp.zeros(2, int), jnp.array([[1.0, 0], [3.0, 0]]), jnp.zeros((2, 1)), jnp.array([0.25, 0.75]))
    expert = Samples(jnp.zeros(1, int), jnp.array([[1.0, 0]]), jnp.zeros((1, 1)), jnp.array([1.0]))
    assert float(payoff(critic, Pair(learner, expert))) == pytest.approx(0.25 + 2.25 - 1)
