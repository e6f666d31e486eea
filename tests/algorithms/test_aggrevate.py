"""AggreVaTe: the action values it queries, the actions it tries, and what it learns from them."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.collect.choose import collector_for
from understudy.collect.episodes import JaxEpisodes, tried_actions, uniforms_needed
from understudy.core.errors import NeedsError, SettingError, SpecError
from understudy.envs.finite import ExactValues
from understudy.envs.values import MonteCarlo
from understudy.experts.expert import Expert
from understudy.tabular import FiniteMDP, best_response, performance, uniform
from understudy.train.programs import traced

TINY = {
    "rounds": 3,
    "gradient_steps": 2,
    "critic_steps": 2,
    "batch_size": 8,
    "hidden": (8,),
    "critic_hidden": (8,),
    "episodes_per_round": 2,
}
SMALL = {
    "rounds": 4,
    "gradient_steps": 400,
    "critic_steps": 400,
    "episodes_per_round": 20,
    "lr": 3e-3,
    "hidden": (16,),
    "critic_hidden": (32,),
    "standardize": False,
}
FOREST = us.make("Forest")
CLEARING = us.Forest(FOREST.trees - 1e3)
"""Without trees the expert flies straight on, deterministically."""


def straight_return(x, y, heading):
    """The return of flying straight on from (x, y)."""
    total = 0.0
    for _ in range(50):
        x, new = x + 5 * np.cos(heading), y + 5 * np.sin(heading)
        if not 0 <= x <= 100:
            return total - y
        if new >= 100:
            return total + 100 - y
        total, y = total + new - y, new
    return total


@functools.cache
def task(random_expert=False):
    """A random MDP, an optimal or uniformly random expert, and one demonstration."""
    random = np.random.default_rng(1)
    mdp = FiniteMDP(random.dirichlet(0.3 * np.ones(8), size=(8, 3)), np.ones(8) / 8, 6)
    reward = np.broadcast_to(random.normal(size=(8, 3)), mdp.shape)
    expert = uniform(mdp) if random_expert else np.broadcast_to(best_response(mdp, -reward)[0], mdp.shape)
    env = us.Finite(mdp, expert, reward)
    return mdp, reward, float(performance(mdp, reward, expert)), env, us.record(env, episodes=1, seed=3)


def return_of(actor, mdp, reward):
    """The exact J(π) of an actor's stochastic policy."""
    logits = actor.policy.policy.net(actor.policy.normalization.encode_obs(np.eye(mdp.states, dtype=np.float32)))
    table = np.asarray(jax.nn.softmax(logits), np.float64)
    table = table / table.sum(-1, keepdims=True)
    return float(performance(mdp, reward, np.broadcast_to(table, mdp.shape)))


@functools.cache
def trained():
    *_, env, demonstrations = task()
    return us.imitate(us.aggrevate(**SMALL), demonstrations, env, "scripted")


@pytest.mark.slow
def test_it_reaches_the_expert_where_cloning_one_demonstration_does_not():
    mdp, reward, optimum, _, demonstrations = task()
    assert return_of(trained().policy, mdp, reward) > optimum - 0.1
    cloned = us.imitate(us.bc(rounds=1, gradient_steps=300, hidden=(16,), lr=3e-3), demonstrations)
    assert cloned.metrics["loss"][0, -1] < 0.5
    acts = cloned.policy(np.eye(mdp.states, dtype=np.float32))
    table = np.broadcast_to(np.eye(mdp.actions)[acts], mdp.shape)
    assert float(performance(mdp, reward, table)) < optimum - 1.0


@pytest.mark.slow
def test_it_outperforms_a_random_expert():
    mdp, reward, expert_return, env, demonstrations = task(random_expert=True)
    best = task()[2]
    result = us.imitate(us.aggrevate(**SMALL, cloning_weight=0.0), demonstrations, env, "scripted")
    assert return_of(result.policy, mdp, reward) > expert_return + 0.7 * (best - expert_return)
    assert best - expert_return > 3


def test_the_critic_fits_the_values():
    error = trained().metrics["critic_error"][0]
    assert error[0] == 1  # nothing was tried in round 0
    assert error[-1] < 0.2


def test_each_value_is_a_query_and_a_budget_ends_the_run():
    *_, env, demonstrations = task()
    steps = SMALL["episodes_per_round"] * env.spec.horizon
    assert trained().metrics["queries"][0].tolist() == [0, steps, 2 * steps, 3 * steps]
    result = us.imitate(us.aggrevate(**SMALL), demonstrations, env, Expert(env.expert()).budget(50))
    assert result.metrics["queries"][0, :2].tolist() == [0, 50]  # round 0 is behavioral cloning
    assert "50 queries" in result.runs[0].status


@functools.cache
def tiny():
    """The algorithm before training, for Forest."""
    algorithm = traced(us.aggrevate(**TINY))
    data, _ = us.load("Forest").split([2], 0.0)
    init = jax.jit(lambda key: algorithm.init(key, FOREST.spec, data.of(0)))
    return algorithm, init(jax.random.key(0))


@jax.jit
def collect(collector, algorithm, state):
    left, index = jnp.asarray(1000, jnp.int32), jnp.asarray(1, jnp.int32)
    return collector.collect_run(algorithm, state, left, jax.random.key(1), index)


def collected(env, exploring):
    """A round's steps, the actions tried in their states and the values of those."""
    algorithm, state = tiny()
    algorithm = eqx.tree_at(lambda a: a.exploring, algorithm, jnp.asarray(exploring))
    found = collect(JaxEpisodes(env, env.expert(), values=MonteCarlo(env, env.expert())), algorithm, state)
    assert found.expert_actions is None
    size = int(found.rollouts.size)
    return jax.tree.map(lambda x: np.asarray(x)[:size], (found.rollouts.steps, found.action_values))


def test_a_value_is_the_return_of_the_action_followed_by_the_expert():
    steps, tried = collected(CLEARING, 1.0)
    expected = [straight_return(x, y, heading) for (_, x, y, _), (heading,) in zip(steps.obs, tried.act, strict=True)]
    np.testing.assert_allclose(tried.value, expected, atol=1e-3)
    assert len({round(float(value), 3) for value in tried.value}) > 3


def test_a_value_is_at_most_the_remaining_distance():
    steps, tried = collected(FOREST, 1.0)
    assert np.isfinite(tried.value).all()
    assert (tried.value <= 100 - steps.obs[:, 2] + 1e-4).all()
    assert (tried.value >= -steps.obs[:, 2] - 1e-4).all()  # a flight that leaves sideways scores 0
    assert np.ptp(tried.value) > 5


def test_the_action_tried_is_uniform_or_the_learners_or_the_experts():
    steps, tried = collected(CLEARING, 0.0)
    learners, experts = (np.isclose(tried.act[:, 0], own, atol=1e-6) for own in (steps.act[:, 0], steps.obs[:, 3]))
    assert (learners | experts).all()
    assert learners.any()
    assert experts.any()
    uniform = np.random.default_rng(0).random((3000, 2))
    for space, learner, expert in (
        (us.Discrete(3), np.full(3000, 1, np.int32), np.full(3000, 2, np.int32)),
        (us.Continuous((-1.0,), (3.0,)), np.full((3000, 1), 5.0, np.float32), np.full((3000, 1), 7.0, np.float32)),
    ):
        assert uniforms_needed(space) == 2
        acts = tried_actions(space, 0.4, learner, expert, uniform.astype(np.float32))
        program = jax.jit(tried_actions, static_argnums=0)(
            space, 0.4, learner, expert, jnp.asarray(uniform, jnp.float32)
        )
        np.testing.assert_allclose(acts, program, atol=1e-6)
        assert acts.dtype == learner.dtype
        share = 0.3 + (0.4 / 3 if isinstance(space, us.Discrete) else 0)  # a uniform action may equal theirs
        assert np.mean(acts == learner) == pytest.approx(share, abs=0.04)
        assert np.mean(acts == expert) == pytest.approx(share, abs=0.04)


class Balance:
    """An expert in Python that provides action values, and counts the queries."""

    def __init__(self):
        self.queries = 0

    def __call__(self, obs):
        return (obs[:, 2] + 0.5 * obs[:, 3] > 0).astype(np.int32)

    def values(self, obs, act):
        self.queries += len(obs)
        return np.where(act == self(obs), 1.0, -1.0)


def test_a_gymnasium_task_uses_the_experts_values():
    expert = Balance()
    demonstrations = us.record("CartPole-v1", expert, episodes=1, workers=0)
    result = us.imitate(us.aggrevate(**{**TINY, "rounds": 2}), demonstrations, "CartPole-v1", expert, workers=0)
    assert expert.queries == result.metrics["queries"][0, -1] > 0
    assert np.isfinite(result.metrics["loss"]).all()


def test_an_expert_without_values_is_refused():
    words = "action values"
    demonstrations = us.record("CartPole-v1", Balance(), episodes=1, workers=0)
    with pytest.raises(NeedsError, match=words):
        us.imitate(us.aggrevate(**TINY), demonstrations, "CartPole-v1", Balance().__call__)
    with pytest.raises(NeedsError, match=words):
        us.imitate(us.aggrevate(**TINY), "Forest", FOREST, lambda obs: obs[:, 3:4])
    *_, env, _ = task()
    table = env.values()
    with pytest.raises(NeedsError, match=words):
        us.imitate(us.aggrevate(**TINY), demonstrations, "CartPole-v1", Expert(Balance(), values=table))


def test_given_values_are_used_and_others_are_sampled():
    *_, env, _ = task()

    def values(algorithm, expert):
        return collector_for(algorithm, env, expert, [0]).in_program.values

    sampled = values(us.aggrevate(**TINY), "scripted")
    assert isinstance(values(us.aggrevate(**TINY), Expert(env.expert(), values=env.values())), ExactValues)
    assert isinstance(sampled, MonteCarlo)
    assert values(us.dagger(), Expert(env.expert(), values=env.values())) is None  # DAgger queries actions
    assert values(us.aggrevate(**TINY), Expert(env.expert(), deterministic=True)).deterministic
    assert not sampled.deterministic


def test_invalid_values_are_refused():
    with pytest.raises(SpecError, match=r"shape \(2, 1\)"):
        Expert(Balance(), values=lambda obs, act: obs[:, :1]).query_values(np.zeros((2, 4)), np.zeros(2))
    with pytest.raises(SpecError, match="NaN"):
        Expert(Balance(), values=lambda obs, act: obs[:, 0] * np.nan).query_values(np.zeros((2, 4)), np.zeros(2))
    with pytest.raises(SettingError, match="exploring is 2"):
        us.aggrevate(exploring=2)
