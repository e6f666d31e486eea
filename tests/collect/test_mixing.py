"""Rolling out β π_E + (1 − β) π: whose actions are played, what is their label, and how many questions it takes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.collect.collectors import Fused, Hosted
from understudy.collect.mixing import HostMixing
from understudy.core.errors import SettingError
from understudy.experts.expert import Expert
from understudy.train.loop import traced

TINY = {"rounds": 4, "gradient_steps": 2, "batch_size": 8, "hidden": (8,), "episodes_per_round": 6}
FOREST = us.make("Forest")
FREE = np.iinfo(np.int32).max


class Counting:
    """An expert that is a function, never gives the same answer twice, and counts the states it was asked about."""

    def __init__(self, kind=np.float32):
        self.asked, self.random, self.kind = 0, np.random.default_rng(0), kind

    def __call__(self, obs):
        self.asked += len(obs)
        if self.kind is np.float32:
            return self.random.uniform(0.5, 2.5, (len(obs), 1)).astype(np.float32)
        return self.random.integers(0, 2, len(obs))


@functools.cache
def learner(env_name, mixing):
    """An algorithm and the states of two runs of it before training."""
    algorithm = traced(us.dagger(**TINY, mixing=mixing))
    env = us.make(env_name)
    if env_name == "Forest":
        demonstrations = us.load("Forest")
    else:
        demonstrations = us.record(env, lambda obs: (obs[:, 2] > 0).astype(int), episodes=2)
    data, _ = demonstrations.split([2, 2], 0.0)
    make = jax.jit(lambda key: algorithm.init(key, env.spec, data.of(0)))
    states = [make(jax.random.key(i)) for i in (0, 1)]
    return env, algorithm, jax.tree.map(lambda *x: jnp.stack(x), *states)


@jax.jit
def collect(fused, *inputs):
    return fused.collect(*inputs)


def collected(way, mixing, limit=FREE, index=1):
    """The real steps of a run's round, the expert's answers at them, and how many states the expert was asked about."""
    env, algorithm, states = learner("CartPole-v1" if way == "gymnasium" else "Forest", mixing)
    if way == "fused":
        fused = Fused(FOREST, FOREST.expert(), np.int32(limit))
        state = jax.tree.map(lambda x: x[0], states)
        asked = jnp.zeros((), jnp.int32)
        found = collect(fused, algorithm, state, jnp.asarray(index), asked, jax.random.key(2))
        size = int(found.rollouts.size)
        return jax.tree.map(lambda x: np.asarray(x)[:size], (found.rollouts.steps, found.expert_actions)), size
    source = Counting(np.float32 if way == "stepwise" else np.int32)
    expert = Expert(source, None if limit == FREE else limit)
    hosted = Hosted(env, expert, [3, 4])
    found = hosted.gather(algorithm, states, index, np.zeros(2, int), np.array([True, False]))
    size = int(found.rollouts.size[0])
    return jax.tree.map(lambda x: x[0][:size], (found.rollouts.steps, found.expert_actions)), source.asked


def same(steps, answers):
    return (steps.act == answers).reshape(len(answers), -1).all(1)


WAYS = ["fused", "stepwise", "gymnasium"]


@pytest.mark.parametrize("way", WAYS)
def test_with_a_share_of_one_the_episodes_are_the_experts_and_its_actions_the_labels(way):
    (steps, answers), asked = collected(way, 1.0)
    assert same(steps, answers).all()  # the very draws: the expert never answers alike
    assert asked == len(answers)
    if way == "fused":  # it keeps its heading where no tree is ahead, as the learner would not
        off = steps.obs[:, 0] < 0.5
        np.testing.assert_array_equal(steps.act[off, 0], steps.obs[off, 3])


@pytest.mark.parametrize("way", WAYS)
def test_with_a_share_of_zero_the_episodes_are_those_without_mixing(way):
    (alone, _), asked = collected(way, None)
    (mixed, _), as_often = collected(way, 0.0)
    assert asked == as_often == len(alone.t)
    # The same steps; where the expert might have acted, in the order of time.
    order = np.argsort(alone.t, kind="stable")
    for ours, theirs in zip(mixed, alone, strict=True):  # programs that differ round differently
        np.testing.assert_allclose(ours, theirs[order], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", ["fused", "gymnasium"])
def test_the_share_falls_from_round_to_round(way):
    """β^i of the steps are the expert's: those where the action played is the label."""
    shares = {}
    for index in (1, 3):
        shares[index] = same(*collected(way, 0.7, index=index)[0]).mean()
    by_chance = 0.5 if way == "gymnasium" else 0.0  # two actions, of which the learner's may be the expert's too
    for index, share in shares.items():
        expected = 0.7**index + (1 - 0.7**index) * by_chance
        assert share == pytest.approx(expected, abs=0.2)
    assert shares[1] > shares[3]


@pytest.mark.parametrize("way", WAYS)
def test_a_budget_covers_the_steps_in_which_the_expert_acts(way):
    """8 questions and 6 episodes: the expert may act in the first step of each, and no label is missing there."""
    (steps, answers), asked = collected(way, 1.0, limit=8)
    assert asked == len(answers) == 8
    np.testing.assert_array_equal(steps.t, [0] * 6 + [1] * 2)
    acted = same(steps, answers)
    assert acted[:6].all()
    assert way == "gymnasium" or not acted[6:].any()  # of two actions, the learner's may be the expert's


def test_nobody_is_asked_about_an_episode_that_is_over():
    source = Counting()
    mixing = HostMixing(lambda obs, t: source(obs), 1.0, 100, np.random.default_rng(0))
    actions, told = mixing.choose(0, np.zeros((3, 4)), np.zeros((3, 1), np.float32), np.array([True, False, True]))
    assert source.asked == 2
    np.testing.assert_array_equal(told, [True, False, True])
    np.testing.assert_array_equal(actions[:, 0] > 0, told)


def test_a_run_asks_as_often_as_it_says():
    source = Counting(np.int32)
    shown = us.record("CartPole-v1", lambda obs: (obs[:, 2] > 0).astype(int), episodes=1)
    result = us.imitate(us.dagger(**TINY, mixing=0.5), shown, "CartPole-v1", Expert(source).budget(300))
    assert source.asked == np.nanmax(result.metrics["queries"]) > 0
    assert source.asked <= 300
    assert result.config["algorithm"]["hyperparameters"]["mixing"] == 0.5


def test_a_share_above_one_is_refused():
    with pytest.raises(SettingError, match=r"mixing is 1\.5: a number from 0 to 1 is needed"):
        us.dagger(mixing=1.5)
