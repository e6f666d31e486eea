"""AggreVaTe: what actions are worth under the expert, what is tried, and what is learned from it."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.collect.collectors import Fused, chances, explored
from understudy.core.errors import NeedsError, SettingError, SpecError
from understudy.envs.finite import ExactValues
from understudy.envs.values import MonteCarlo
from understudy.experts.expert import Expert
from understudy.tabular import FiniteMDP, best_response, performance, uniform
from understudy.train import imitate as front_door
from understudy.train.loop import traced

TINY = {
    "rounds": 3,
    "steps": 2,
    "critic_steps": 2,
    "batch_size": 8,
    "hidden": (8,),
    "critic_hidden": (8,),
    "episodes_per_round": 2,
}
SMALL = {
    "rounds": 4,
    "steps": 400,
    "critic_steps": 400,
    "episodes_per_round": 20,
    "lr": 3e-3,
    "hidden": (16,),
    "critic_hidden": (32,),
    "standardize": False,
}
FOREST = us.make("Forest")
CLEARING = us.Forest(FOREST.trees - 1e3)
"""No tree in sight: the expert flies straight on, and there is no chance in it."""


def straight(x, y, heading):
    """The rewards of flying on along a heading from (x, y), by hand."""
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
def task(expert_errs=False):
    """A random MDP, an expert that is nearly optimal in it, or takes any action, and a demonstration of it."""
    random = np.random.default_rng(1)
    mdp = FiniteMDP(random.dirichlet(0.3 * np.ones(8), size=(8, 3)), np.ones(8) / 8, 6)
    reward = np.broadcast_to(random.normal(size=(8, 3)), mdp.shape)
    expert = uniform(mdp) if expert_errs else np.broadcast_to(best_response(mdp, -reward)[0], mdp.shape)
    env = us.Finite(mdp, expert, reward)
    return mdp, reward, float(performance(mdp, reward, expert)), env, us.record(env, episodes=1, seed=3)


def return_of(actor, mdp, reward):
    """J(π), exactly, of the policy that an actor's network is."""
    logits = actor.policy.policy.net(actor.policy.normalization.encode_obs(np.eye(mdp.states, dtype=np.float32)))
    table = np.asarray(jax.nn.softmax(logits), np.float64)
    table = table / table.sum(-1, keepdims=True)
    return float(performance(mdp, reward, np.broadcast_to(table, mdp.shape)))


@functools.cache
def learned():
    *_, env, shown = task()
    return us.imitate(us.aggrevate(**SMALL), shown, env, "scripted")


def test_it_reaches_the_expert_where_cloning_the_same_demonstration_does_not():
    mdp, reward, wanted, _, shown = task()
    assert return_of(learned().policy, mdp, reward) > wanted - 0.1
    cloned = us.imitate(us.bc(rounds=1, gradient_steps=300, hidden=(16,), lr=3e-3), shown)
    assert cloned.history["loss"][0, -1] < 0.5
    acts = cloned.policy(np.eye(mdp.states, dtype=np.float32))
    table = np.broadcast_to(np.eye(mdp.actions)[acts], mdp.shape)
    assert float(performance(mdp, reward, table)) < wanted - 1.0


def test_it_does_better_than_an_expert_that_takes_any_action():
    mdp, reward, worth, env, shown = task(expert_errs=True)
    best = task()[2]
    result = us.imitate(us.aggrevate(**SMALL, cloning_weight=0.0), shown, env, "scripted")
    assert return_of(result.policy, mdp, reward) > worth + 0.7 * (best - worth)
    assert best - worth > 3


def test_the_critic_explains_the_values_that_it_was_shown():
    error = learned().history["critic_error"][0]
    assert error[0] == 1  # nothing was tried in round 0
    assert error[-1] < 0.2


def test_each_state_asked_about_is_a_query_and_a_spent_budget_ends_the_run():
    *_, env, shown = task()
    steps = SMALL["rollouts"] * env.spec.horizon
    assert learned().history["queries"][0].tolist() == [0, steps, 2 * steps, 3 * steps]
    result = us.imitate(us.aggrevate(**SMALL), shown, env, Expert(env.expert()).budget(50))
    assert result.metrics["queries"][0, :2].tolist() == [0, 50]  # behavioral cloning asks nobody
    assert result.runs[0].status == "stopped in round 2: the budget of 50 queries is spent"


@functools.cache
def tiny():
    """The algorithm before training, for Forest."""
    algorithm = traced(us.aggrevate(**TINY))
    data, _ = us.load("Forest").split([2], 0.0)
    init = jax.jit(lambda key: algorithm.init(key, FOREST.spec, data.of(0)))
    return algorithm, init(jax.random.key(0))


@jax.jit
def collect(fused, algorithm, state):
    return fused.collect(algorithm, state, jnp.asarray(1), jnp.zeros((), jnp.int32), jax.random.key(1))


def collected(env, exploring):
    """A round's steps, the actions tried in their states and the values of those."""
    algorithm, state = tiny()
    algorithm = eqx.tree_at(lambda a: a.exploring, algorithm, jnp.asarray(exploring))
    fused = Fused(env, env.expert(), np.int32(1000), values=MonteCarlo(env, env.expert()))
    found = collect(fused, algorithm, state)
    assert found.expert_actions is None
    size = int(found.rollouts.size)
    return jax.tree.map(lambda x: np.asarray(x)[:size], (found.rollouts.steps, found.tried))


def test_a_value_is_the_return_of_taking_the_action_and_leaving_the_rest_to_the_expert():
    steps, tried = collected(CLEARING, 1.0)
    by_hand = [straight(x, y, heading) for (_, x, y, _), (heading,) in zip(steps.obs, tried.act, strict=True)]
    np.testing.assert_allclose(tried.value, by_hand, atol=1e-3)
    assert len({round(float(value), 3) for value in tried.value}) > 3


def test_among_trees_a_value_is_what_is_left_of_the_way_at_most():
    steps, tried = collected(FOREST, 1.0)
    assert np.isfinite(tried.value).all()
    assert (tried.value <= 100 - steps.obs[:, 2] + 1e-4).all()
    assert (tried.value >= -steps.obs[:, 2] - 1e-4).all()  # a flight that leaves sideways scores 0
    assert np.ptp(tried.value) > 5


def test_what_is_tried_is_any_action_or_the_learners_or_the_experts():
    steps, tried = collected(CLEARING, 0.0)
    learners, experts = (np.isclose(tried.act[:, 0], own, atol=1e-6) for own in (steps.act[:, 0], steps.obs[:, 3]))
    assert (learners | experts).all()
    assert learners.any()
    assert experts.any()
    chance = np.random.default_rng(0).random((3000, 2))
    for space, learner, expert in (
        (us.Discrete(3), np.full(3000, 1, np.int32), np.full(3000, 2, np.int32)),
        (us.Continuous((-1.0,), (3.0,)), np.full((3000, 1), 5.0, np.float32), np.full((3000, 1), 7.0, np.float32)),
    ):
        assert chances(space) == 2
        acts = explored(space, 0.4, learner, expert, chance.astype(np.float32))
        inside = jax.jit(explored, static_argnums=0)(space, 0.4, learner, expert, jnp.asarray(chance, jnp.float32))
        np.testing.assert_allclose(acts, inside, atol=1e-6)
        assert acts.dtype == learner.dtype
        own = 0.3 + (0.4 / 3 if isinstance(space, us.Discrete) else 0)  # any action may be theirs
        assert np.mean(acts == learner) == pytest.approx(own, abs=0.04)
        assert np.mean(acts == expert) == pytest.approx(own, abs=0.04)


class Balance:
    """An expert on the host that knows what an action is worth, and counts what it was asked."""

    def __init__(self):
        self.valued = 0

    def __call__(self, obs):
        return (obs[:, 2] + 0.5 * obs[:, 3] > 0).astype(np.int32)

    def values(self, obs, act):
        self.valued += len(obs)
        return np.where(act == self(obs), 1.0, -1.0)


def test_a_gymnasium_task_takes_an_expert_that_offers_values():
    expert = Balance()
    shown = us.record("CartPole-v1", expert, episodes=1)
    result = us.imitate(us.aggrevate(**{**TINY, "rounds": 2}), shown, "CartPole-v1", expert)
    assert expert.valued == result.metrics["queries"][0, -1] > 0
    assert np.isfinite(result.metrics["loss"]).all()


def test_it_is_refused_where_values_are_not_to_be_had():
    words = "AggreVaTe matches the on-Q moment f = −Q of the expert, which needs the expert's action values"
    shown = us.record("CartPole-v1", Balance(), episodes=1)
    with pytest.raises(NeedsError, match=words):
        us.imitate(us.aggrevate(**TINY), shown, "CartPole-v1", Balance().__call__)
    with pytest.raises(NeedsError, match=words):
        us.imitate(us.aggrevate(**TINY), "Forest", FOREST, lambda obs: obs[:, 3:4])
    *_, env, _ = task()
    table = env.values()
    with pytest.raises(NeedsError, match=words):
        us.imitate(us.aggrevate(**TINY), shown, "CartPole-v1", Expert(Balance(), values=table))


def test_an_expert_that_knows_its_values_is_not_followed_for_them():
    *_, env, _ = task()
    told = front_door.collector_for(us.aggrevate(**TINY), env, Expert(env.expert(), values=env.values()), [0])
    sampled = front_door.collector_for(us.aggrevate(**TINY), env, "scripted", [0])
    asked = front_door.collector_for(us.dagger(), env, Expert(env.expert(), values=env.values()), [0])
    assert isinstance(told.values, ExactValues)
    assert isinstance(sampled.values, MonteCarlo)
    assert asked.values is None  # DAgger asks for actions
    mode = front_door.collector_for(us.aggrevate(**TINY), env, Expert(env.expert(), deterministic=True), [0])
    assert mode.values.deterministic  # an expert that answers with its mode is followed by its mode
    assert not sampled.values.deterministic


def test_values_that_do_not_fit_are_named():
    with pytest.raises(SpecError, match=r"the expert's values have shape \(2, 1\) for 2 states"):
        Expert(Balance(), values=lambda obs, act: obs[:, :1]).query_values(np.zeros((2, 4)), np.zeros(2))
    with pytest.raises(SpecError, match="NaN"):
        Expert(Balance(), values=lambda obs, act: obs[:, 0] * np.nan).query_values(np.zeros((2, 4)), np.zeros(2))
    with pytest.raises(SettingError, match="exploring is 2"):
        us.aggrevate(exploring=2)
