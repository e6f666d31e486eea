"""A finite MDP as an environment: sampled returns agree with what `tabular` computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import SpecError
from understudy.envs.finite import FiniteState
from understudy.envs.values import MonteCarlo
from understudy.policies import Carry
from understudy.tabular import FiniteMDP, examples, performance, q_values

T, S, A = 4, 3, 2


def random_task(seed=0):
    """Random transitions, expert and reward. The expert is stochastic and depends on time."""
    random = np.random.default_rng(seed)
    mdp = FiniteMDP(random.dirichlet(np.ones(S), size=(S, A)), random.dirichlet(np.ones(S)), T)
    return mdp, random.dirichlet(np.ones(A), size=(T, S)), random.normal(size=(T, S, A))


def test_the_experts_return_is_its_performance():
    mdp, expert, reward = random_task()
    env = us.Finite(mdp, expert, reward)
    returns = us.rollout(env, env.expert(), 4000, deterministic=False).returns
    error = returns.std() / np.sqrt(len(returns))
    assert returns.mean() == pytest.approx(float(performance(mdp, reward, expert)), abs=4 * error)


def test_monte_carlo_values_are_the_experts_q_values():
    """At every (t, s, a), within sampling error of dynamic programming. `Finite.values` is exact in float32."""
    mdp, expert, reward = random_task()
    env = us.Finite(mdp, expert, reward)
    exact = q_values(mdp, reward, expert)
    t, s, a = (jnp.asarray(index.ravel(), jnp.int32) for index in np.indices(exact.shape))
    obs = jax.vmap(env.observe)(FiniteState(t, s))

    @jax.jit
    def sampled(values, key):
        keys = jax.random.split(key, len(t))
        return jax.vmap(values)(t, FiniteState(t, s), obs, a, keys)

    sample = jax.jit(jax.vmap(sampled, (None, 0)))(
        MonteCarlo(env, env.expert()), jax.random.split(jax.random.key(0), 3000)
    )
    error = np.asarray(sample).std(0) / np.sqrt(len(sample))
    assert (np.abs(sample.mean(0) - exact.ravel()) <= 4.5 * error + 1e-5).all()
    assert error[:-1].max() > 0.01  # the samples are random
    np.testing.assert_allclose(sampled(env.values(), jax.random.key(0)), exact.ravel(), atol=1e-6)


def test_the_observation_is_the_one_hot_state_and_optionally_the_time():
    mdp, expert, reward = random_task()
    state = FiniteState(jnp.asarray(2), jnp.asarray(1))
    np.testing.assert_array_equal(us.Finite(mdp, expert, reward).observe(state), [0, 1, 0])
    timed = us.Finite(mdp, expert, reward, time=True)
    np.testing.assert_array_equal(timed.observe(state), [0, 1, 0, 0, 0, 1, 0])
    assert timed.spec.obs_shape == (S + T,)
    assert all(leaf.dtype in (jnp.float32, jnp.int32) for leaf in jax.tree.leaves(timed))


def test_the_expert_depends_on_state_and_time_on_numpy_and_jax():
    mdp, expert, reward = random_task()
    policy = us.Finite(mdp, expert, reward).expert()
    time, states = np.array([0, 3, 9]), np.array([2, 0, 1])
    obs = np.eye(S, dtype=np.float32)[states]
    rows = policy.row(Carry(time, time), obs)
    np.testing.assert_allclose(rows, expert[np.minimum(time, T - 1), states], rtol=1e-6)
    inside = jax.vmap(lambda t, o: policy.row(Carry(t, t), o))(jnp.asarray(time), jnp.asarray(obs))
    np.testing.assert_array_equal(inside, rows)
    many = Carry(np.zeros(4000, int), np.zeros(4000, int))
    drawn = policy.draw(many, np.tile(obs[:1], (4000, 1)), np.random.default_rng(0))
    assert np.mean(drawn == 1) == pytest.approx(expert[0, 2, 1], abs=0.04)


def test_the_papers_examples_are_environments():
    """In CLIFF a fall costs −1 per step. In s_x the unavailable action is replaced by the available one."""
    env = us.Finite.of(examples.cliff(5))
    np.testing.assert_array_equal(us.rollout(env, env.expert(), 3).returns, 0)
    falls = us.rollout(env, lambda obs: np.ones(len(obs), int), 2)
    np.testing.assert_array_equal(falls.returns, -5)
    np.testing.assert_array_equal(falls.steps.obs[0].argmax(-1), [0, 5, 5, 5, 5])
    assert us.make(env) is env


def test_a_table_of_the_wrong_shape_raises():
    mdp, expert, reward = random_task()
    with pytest.raises(SpecError, match="the expert has shape"):
        us.Finite(mdp, expert[0], reward)
    with pytest.raises(SpecError, match="the reward has shape"):
        us.Finite(mdp, expert, reward[:, :1])
