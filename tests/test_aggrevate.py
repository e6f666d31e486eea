"""AggreVaTe: what actions are worth under the expert, what is tried, and what is learned from it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.collectors import Fused, chances, explored
from understudy.envs.values import MonteCarlo
from understudy.errors import NeedsError, SettingError, SpecError
from understudy.experts import Expert
from understudy.run import traced
from understudy.tabular import FiniteMDP, best_response, examples, performance

TINY = {
    "rounds": 3,
    "steps": 2,
    "critic_steps": 2,
    "batch_size": 8,
    "hidden": (8,),
    "critic_hidden": (8,),
    "rollouts": 2,
}
SMALL = {
    "rounds": 4,
    "steps": 400,
    "critic_steps": 400,
    "rollouts": 20,
    "lr": 3e-3,
    "hidden": (16,),
    "critic_hidden": (32,),
    "standardize": False,
}
FOREST = us.make("Forest")
CLEARING = us.Forest(jnp.array([[-1e3, -1e3, 1.0]]))
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
def task():
    """A random MDP of 8 states and 3 actions, an expert that is optimal in it, and one demonstration."""
    random = np.random.default_rng(1)
    mdp = FiniteMDP(random.dirichlet(0.3 * np.ones(8), size=(8, 3)), np.ones(8) / 8, 6)
    reward = np.broadcast_to(random.normal(size=(8, 3)), mdp.shape)
    expert = np.broadcast_to(best_response(mdp, -reward)[0], mdp.shape)  # the same at all times, nearly optimal
    env = us.Finite(mdp, expert, reward)
    return mdp, expert, reward, env, us.collect(env, episodes=1, seed=3)


def return_of(actor, mdp, reward):
    """J(π), exactly, of the policy that an actor's network is."""
    logits = actor.policy.policy.net(actor.policy.frame.encode_obs(np.eye(mdp.states, dtype=np.float32)))
    table = np.asarray(jax.nn.softmax(logits), np.float64)
    table = table / table.sum(-1, keepdims=True)
    return float(performance(mdp, reward, np.broadcast_to(table, mdp.shape)))


@functools.cache
def learned():
    _, _, _, env, shown = task()
    return us.imitate(us.aggrevate(**SMALL), shown, env, "scripted")


def test_it_reaches_the_expert_where_cloning_the_same_demonstration_does_not():
    mdp, expert, reward, _, shown = task()
    wanted = float(performance(mdp, reward, expert))
    assert return_of(learned().policy, mdp, reward) > wanted - 0.15
    cloned = us.imitate(us.bc(rounds=2, steps=300, hidden=(16,), lr=3e-3), shown)
    logits = cloned.policy(np.eye(mdp.states, dtype=np.float32))
    table = np.broadcast_to(np.eye(mdp.actions)[logits], mdp.shape)
    assert float(performance(mdp, reward, table)) < wanted - 0.5


def test_it_does_better_than_an_expert_that_errs():
    """In LOOP an expert that takes any action is worth half; what is worth most before it acts is always right."""
    example = examples.loop(6)
    env = us.Finite(example.mdp, np.full(example.mdp.shape, 0.5), example.reward)
    informed = Expert(env.expert(), values=env.values())
    learner = us.aggrevate(**SMALL, cloning_weight=0.0)
    result = us.imitate(learner, us.collect(env, episodes=1), env, informed)
    assert return_of(result.policy, example.mdp, example.reward) > 0.9 * (example.mdp.horizon - 1)
    returns = us.rollout(env, env.expert(), 500, deterministic=False).returns
    assert returns.mean() < 0.7 * (example.mdp.horizon - 1)


def test_the_critic_explains_the_values_that_it_was_shown():
    error = learned().history["critic_error"][0]
    assert error[0] == 1  # nothing was tried in round 0
    assert error[-1] < 0.7


@functools.cache
def collected(exploring):
    """A round of it in the clearing: steps, the actions tried and their values."""
    algorithm = traced(us.aggrevate(**TINY, exploring=exploring))
    data, _ = us.load("Forest").split([2], 0.0)
    state = algorithm.init(jax.random.key(0), CLEARING.spec, data._replace(size=data.size[0]))
    expert = CLEARING.expert()
    fused = Fused(CLEARING, expert, np.int32(1000), values=MonteCarlo(CLEARING, expert))
    found = fused.collect(algorithm, state, jnp.asarray(1), jnp.zeros((), jnp.int32), jax.random.key(1))
    assert found.expert_actions is None
    size = int(found.rollouts.size)
    return jax.tree.map(lambda x: np.asarray(x)[:size], (found.rollouts.steps, found.tried))


def test_a_value_is_the_return_of_taking_the_action_and_leaving_the_rest_to_the_expert():
    steps, tried = collected(1.0)
    assert np.isfinite(tried.value).all()
    by_hand = [straight(x, y, heading) for (_, x, y, _), (heading,) in zip(steps.obs, tried.act, strict=True)]
    np.testing.assert_allclose(tried.value, by_hand, atol=1e-3)
    assert len({round(float(value), 3) for value in tried.value}) > 3


def test_what_is_tried_is_any_action_or_the_learners_or_the_experts():
    steps, tried = collected(0.0)
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


def test_in_the_forest_values_are_finite_and_each_state_asked_about_is_a_query():
    asked = Expert(FOREST.expert()).budget(4)
    result = us.imitate(us.aggrevate(**TINY), "Forest", FOREST, asked, episodes=2, seeds=2)
    for queries, run in zip(result.history["queries"], result.runs, strict=True):
        assert queries[:2].tolist() == [0, 4]  # behavioral cloning asks nobody
        assert run.status == "stopped in round 2: the budget of 4 queries is spent"
    assert np.isfinite(result.history["loss"][:, :2]).all()
    assert result.history["critic_error"][0, 1] != 1


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
    shown = us.collect("CartPole-v1", expert, episodes=1)
    result = us.imitate(us.aggrevate(**{**TINY, "rounds": 2}), shown, "CartPole-v1", expert)
    assert expert.valued == result.history["queries"][0, -1] > 0
    assert np.isfinite(result.history["loss"]).all()


def test_it_is_refused_where_values_are_not_to_be_had():
    words = "AggreVaTe matches the on-Q moment f = −Q of the expert, which needs the expert's action values"
    shown = us.collect("CartPole-v1", Balance(), episodes=1)
    with pytest.raises(NeedsError, match=words):
        us.imitate(us.aggrevate(**TINY), shown, "CartPole-v1", Balance().__call__)
    with pytest.raises(NeedsError, match=words):
        us.imitate(us.aggrevate(**TINY), "Forest", FOREST, lambda obs: obs[:, 3:4])
    table = us.Finite.of(examples.loop(3)).values()
    with pytest.raises(NeedsError, match=words):
        us.imitate(us.aggrevate(**TINY), shown, "CartPole-v1", Expert(Balance(), values=table))


def test_values_that_do_not_fit_are_named():
    with pytest.raises(SpecError, match=r"the expert's values have shape \(2, 1\) for 2 states"):
        Expert(Balance(), values=lambda obs, act: obs[:, :1]).appraise(np.zeros((2, 4)), np.zeros(2))
    with pytest.raises(SpecError, match="NaN"):
        Expert(Balance(), values=lambda obs, act: obs[:, 0] * np.nan).appraise(np.zeros((2, 4)), np.zeros(2))
    with pytest.raises(SettingError, match="exploring is 2"):
        us.aggrevate(exploring=2)
