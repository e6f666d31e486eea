"""Players by themselves, on the environment's own reward: through the loop that imitations take."""

import signal
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import RunError, SettingError, SpecError
from understudy.core.types import Replay, RoundData, Transition
from understudy.policies import Normalized
from understudy.policies.gaussian import StateDependent
from understudy.policies.normalization import Normalization
from understudy.rl.base import RLPlayer
from understudy.train.learn import TaskReward, TaskRewardState

SAC = us.rl.SAC(hidden=(8,), gradient_steps=2)
PPO = us.rl.PPO(hidden=(8,), epochs=1, minibatch=8)
SMALL = {"envs": 2, "steps": 64, "frequency": 16, "round_steps": 16, "batch_size": 8, "random_steps": 16}
OBS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def swings():
    """SAC on Pendulum, two seeds in two environments each."""
    return us.learn(SAC, "Pendulum", seeds=[3, 1], **SMALL)


def test_seeds_by_environments_train_together_and_a_seed_has_a_number_for_each_round(swings):
    assert (swings.seeds, swings.statuses) == ([3, 1], ["finished", "finished"])
    assert {name: x.shape for name, x in swings.history.items()} == dict.fromkeys(swings.history, (2, 4))
    np.testing.assert_array_equal(swings.history["env_steps"], [[16, 32, 48, 64]] * 2)
    # The first turn takes any action and learns nothing.
    assert ((swings.history["critic_loss"] > 0) == [False, True, True, True]).all()
    assert [actor.about for actor in swings.policies] == [
        {"algorithm": "SAC", "env": "Pendulum", "seed": seed} for seed in (3, 1)
    ]
    played = swings.evaluate(episodes=3)
    assert played.returns.shape == (2, 3)
    assert (played.returns < 0).all()
    assert swings.config["player"]["class"] == "SAC"


@pytest.mark.parametrize("env", ["Pendulum", "Pendulum-v1"])
def test_state_dependent_noise_explores_in_either_kind_of_environment(env):
    player = replace(SAC, sde=True, sde_steps=8)
    first, again = (us.learn(player, env, seeds=[3, 1], workers=0, **SMALL) for _ in range(2))
    assert first.statuses == ["finished", "finished"]
    for actor, same in zip(first.policies, again.policies, strict=True):
        policy = actor.policy.policy
        assert isinstance(policy, StateDependent)
        assert policy.hold == 8
        assert (policy.log_std != player.sde_log_std).any()  # it is learned
        np.testing.assert_array_equal(actor(OBS), same(OBS))
    assert (first.policies[0](OBS) != first.policies[1](OBS)).any()


def test_a_seeds_policy_is_the_same_in_another_order_and_seeds_differ(swings):
    again = us.learn(SAC, "Pendulum", seeds=[1, 3], **SMALL)
    for ours, theirs in zip(swings.policies, again.policies[::-1], strict=True):
        np.testing.assert_array_equal(ours(OBS), theirs(OBS))
    np.testing.assert_array_equal(swings.history["critic_loss"], again.metrics["critic_loss"][::-1])
    assert (swings.policies[0](OBS) != swings.policies[1](OBS)).any()


def test_policies_act_in_the_environments_range_on_observations_as_they_are(swings):
    policy = swings.policies[0].policy
    assert isinstance(policy, Normalized)
    np.testing.assert_array_equal(policy.normalization.encode_obs(OBS), OBS)
    np.testing.assert_array_equal(policy.normalization.decode_act(np.array([[-1.0], [1.0]])), [[-2.0], [2.0]])


def test_an_interrupted_call_goes_on_to_the_same_policies(swings, tmp_path):
    place = {"seeds": [3, 1], "checkpoint": tmp_path / "place.npz", **SMALL}

    def ctrl_c(rounds, states):
        signal.raise_signal(signal.SIGINT)

    torn = us.learn(SAC, "Pendulum", visit=ctrl_c, **place)
    assert torn.interrupted
    assert torn.statuses == ["interrupted after round 1 of 4"] * 2
    whole = us.learn(SAC, "Pendulum", **place)
    assert not whole.interrupted
    for ours, theirs in zip(swings.policies, whole.policies, strict=True):
        np.testing.assert_array_equal(ours(OBS), theirs(OBS))
    np.testing.assert_array_equal(swings.history["critic_loss"], whole.metrics["critic_loss"])
    with pytest.raises(RunError, match="is a checkpoint of other environment"):
        us.learn(SAC, "Pendulum-v1", **place)


def test_ppo_remembers_a_turn_and_a_number_of_seeds_is_their_list():
    settings = {"envs": 2, "steps": 32, "frequency": 16}
    both = us.learn(PPO, "Pendulum", seeds=2, **settings)
    listed = us.learn(PPO, "Pendulum", seeds=[0, 1], **settings)
    assert both.config["settings"]["history"] == 16
    assert both.history["value_loss"].shape == (2, 2)
    for ours, theirs in zip(both.policies, listed.policies, strict=True):
        np.testing.assert_array_equal(ours(OBS), theirs(OBS))


def test_ppo_learns_to_balance_a_pole():
    player = us.rl.PPO(lr=3e-3, hidden=(16,), discount=0.98, trace=0.9)
    learned = us.learn(player, "CartPole-v1", steps=6144, frequency=512, workers=0)
    returns = learned.metrics["return"][0]
    assert returns[0] < 40
    assert returns[-3:].mean() > 2 * returns[0]
    assert learned.evaluate(episodes=5).returns.mean() > 80


class Telling(RLPlayer):
    """A player that learns nothing and tells what it was given."""

    def init(self, key, spec):
        return jnp.zeros(())

    def improve(self, state, experience, progress, key):
        drawn = experience.sample(key)
        told = experience.new_steps._asdict() | {f"drawn_{name}": x for name, x in drawn._asdict().items()}
        return state, told | {"progress": progress}

    def policy(self, state):
        raise NotImplementedError


@pytest.mark.parametrize("truncation_is_terminal", [False, True])
def test_steps_are_paid_by_the_environment_and_only_ends_have_nothing_after_them(truncation_is_terminal):
    schedule = {
        "rounds": 5,
        "round_steps": 4,
        "frequency": 4,
        "envs": 1,
        "random_steps": 0,
        "history": None,
        "staleness": 0,
    }
    algorithm = TaskReward(player=Telling(), batch_size=64, truncation_is_terminal=truncation_is_terminal, **schedule)
    obs = jnp.arange(4.0)[:, None]
    terminal, last = jnp.array([False, True, False, False]), jnp.array([False, True, False, True])
    count = jnp.zeros(4, jnp.int32)
    steps = Transition(count, obs, obs + 1, obs + 0.5, terminal, last, ~terminal, count)
    reward = jnp.array([3.0, -1.0, 7.0, 0.5])
    rows = jax.tree.map(lambda x: jnp.concatenate([x, jnp.full_like(x, 9)]), (steps, reward))  # nothing real behind
    one = jax.tree.map(lambda x: x[None], steps)
    frame = Normalization(jnp.zeros(1), jnp.ones(1), jnp.array([2.0]), jnp.array([2.0]))
    data = RoundData(None, replay=Replay(*rows, jnp.asarray(4)), rolled=one, task_reward=reward[None], round=1)
    _, info = algorithm.update(TaskRewardState(jnp.zeros(()), frame), data, jax.random.key(0))
    told = info.metrics
    goes_on = [1, 0, 1, 0] if truncation_is_terminal else [1, 0, 1, 1]
    np.testing.assert_array_equal(told["reward"], reward[None])
    np.testing.assert_array_equal(told["continues"], [goes_on])
    np.testing.assert_array_equal(told["act"][0, :, 0], [-0.5, 0, 0.5, 1])
    assert not told["after"].any()
    place = told["drawn_obs"][:, 0].astype(int)
    assert set(place.tolist()) == {0, 1, 2, 3}
    np.testing.assert_array_equal(told["drawn_reward"], reward[place])
    np.testing.assert_array_equal(told["drawn_continues"], np.array(goes_on)[place])
    assert told["progress"] == pytest.approx(2 / 5)


def test_what_does_not_fit_a_player_is_said():
    with pytest.raises(SettingError, match="random_steps is 8 and staleness is 0: PPO learns from"):
        us.learn(PPO, "Pendulum", 64, random_steps=8)
    with pytest.raises(SettingError, match="player is 'sac': a RLPlayer is needed"):
        us.learn("sac", "Pendulum", 64)
    with pytest.raises(SettingError, match="envs is 3, which does not divide the 16 steps"):
        us.learn(SAC, "Pendulum", 64, envs=3, frequency=16)
    with pytest.raises(SpecError, match="SAC is for continuous actions"):
        us.learn(SAC, "CartPole-v1", 64, workers=0)


def test_a_players_defaults_are_its_own():
    from understudy.train.learn import _algorithm

    def settings(player, steps):
        made = _algorithm(player, steps, None, None, 256, None, None, None, False, 0)
        return made.envs, made.frequency, made.random_steps, made.history, made.rounds, made.round_steps

    assert settings(us.rl.SAC(), 20_000) == (1, 64, 1000, None, 21, 15 * 64)
    assert settings(us.rl.SoftQ(gradient_steps=8), 1_000) == (1, 8, 100, None, 21, 48)
    assert settings(us.rl.PPO(), 100_000) == (8, 2048, 0, 2048, 25, 4096)
