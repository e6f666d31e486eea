"""Reinforcement learning on the task reward, with the training loop of imitation."""

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
def pendulum():
    """SAC on Pendulum: two seeds, two environments each."""
    return us.learn(SAC, "Pendulum", seeds=[3, 1], **SMALL)


def test_each_seed_has_a_policy_and_metrics_for_each_round(pendulum):
    assert (pendulum.seeds, pendulum.statuses) == ([3, 1], ["finished", "finished"])
    assert {name: x.shape for name, x in pendulum.metrics.items()} == dict.fromkeys(pendulum.metrics, (2, 4))
    np.testing.assert_array_equal(pendulum.metrics["env_steps"], [[16, 32, 48, 64]] * 2)
    # The first update follows only random exploration steps and is skipped.
    assert ((pendulum.metrics["critic_loss"] > 0) == [False, True, True, True]).all()
    assert [actor.about for actor in pendulum.policies] == [
        {"algorithm": "SAC", "env": "Pendulum", "seed": seed} for seed in (3, 1)
    ]
    returns = pendulum.evaluate(episodes=3).returns
    assert returns.shape == (2, 3)
    assert (returns < 0).all()
    assert pendulum.config["player"]["class"] == "SAC"


@pytest.mark.parametrize("env", ["Pendulum", pytest.param("Pendulum-v1", marks=pytest.mark.slow)])
def test_state_dependent_noise_is_learned_and_reproducible(env):
    player = replace(SAC, sde=True, sde_steps=8)
    first, again = (us.learn(player, env, seeds=[3, 1], workers=0, **SMALL) for _ in range(2))
    assert first.statuses == ["finished", "finished"]
    for actor, same in zip(first.policies, again.policies, strict=True):
        policy = actor.policy.policy
        assert isinstance(policy, StateDependent)
        assert policy.hold == 8
        assert (policy.log_std != player.sde_log_std).any()
        np.testing.assert_array_equal(actor(OBS), same(OBS))
    assert (first.policies[0](OBS) != first.policies[1](OBS)).any()


def test_seeds_differ_and_do_not_depend_on_their_order(pendulum):
    again = us.learn(SAC, "Pendulum", seeds=[1, 3], **SMALL)
    for ours, theirs in zip(pendulum.policies, again.policies[::-1], strict=True):
        np.testing.assert_array_equal(ours(OBS), theirs(OBS))
    np.testing.assert_array_equal(pendulum.metrics["critic_loss"], again.metrics["critic_loss"][::-1])
    assert (pendulum.policies[0](OBS) != pendulum.policies[1](OBS)).any()


def test_actions_are_scaled_and_observations_are_not_normalized(pendulum):
    policy = pendulum.policies[0].policy
    assert isinstance(policy, Normalized)
    np.testing.assert_array_equal(policy.normalization.encode_obs(OBS), OBS)
    np.testing.assert_array_equal(policy.normalization.decode_act(np.array([[-1.0], [1.0]])), [[-2.0], [2.0]])


def test_an_interrupted_call_resumes_to_the_same_policies(pendulum, tmp_path):
    settings = {"seeds": [3, 1], "checkpoint": tmp_path / "checkpoint.npz", **SMALL}

    def ctrl_c(rounds, states):
        signal.raise_signal(signal.SIGINT)

    interrupted = us.learn(SAC, "Pendulum", visit=ctrl_c, **settings)
    assert interrupted.interrupted
    assert interrupted.statuses == ["interrupted after round 1 of 4"] * 2
    resumed = us.learn(SAC, "Pendulum", **settings)
    assert not resumed.interrupted
    for ours, theirs in zip(pendulum.policies, resumed.policies, strict=True):
        np.testing.assert_array_equal(ours(OBS), theirs(OBS))
    np.testing.assert_array_equal(pendulum.metrics["critic_loss"], resumed.metrics["critic_loss"])
    with pytest.raises(RunError, match="other environment"):
        us.learn(SAC, "Pendulum-v1", **settings)


def test_ppo_keeps_the_steps_of_one_update_and_seeds_can_be_a_number():
    settings = {"envs": 2, "steps": 32, "frequency": 16}
    both = us.learn(PPO, "Pendulum", seeds=2, **settings)
    listed = us.learn(PPO, "Pendulum", seeds=[0, 1], **settings)
    assert both.config["settings"]["buffer_size"] == 16
    assert both.metrics["value_loss"].shape == (2, 2)
    for ours, theirs in zip(both.policies, listed.policies, strict=True):
        np.testing.assert_array_equal(ours(OBS), theirs(OBS))


@pytest.mark.slow
def test_ppo_learns_to_balance_a_pole():
    player = us.rl.PPO(lr=3e-3, hidden=(16,), discount=0.98, trace=0.9)
    learned = us.learn(player, "CartPole-v1", steps=6144, frequency=512, workers=0)
    returns = learned.metrics["return"][0]
    assert returns[0] < 40
    assert returns[-3:].mean() > 2 * returns[0]
    assert learned.evaluate(episodes=5).returns.mean() > 80


LOGGED = {}
"""The experience of the last update of `LoggingPlayer`."""


class LoggingPlayer(RLPlayer):
    """A player that learns nothing and logs its experience."""

    def init(self, key, spec):
        return jnp.zeros(())

    def improve(self, state, experience, progress, key):
        sample = experience.sample(key)
        logged = experience.new_steps._asdict() | {f"sampled_{name}": x for name, x in sample._asdict().items()}
        jax.debug.callback(LOGGED.update, logged)
        return state, {"progress": progress}

    def policy(self, state):
        raise NotImplementedError


@pytest.mark.parametrize("truncation_is_terminal", [False, True])
def test_rewards_are_the_environments_and_terminal_steps_do_not_bootstrap(truncation_is_terminal):
    schedule = {
        "rounds": 5,
        "round_steps": 4,
        "frequency": 4,
        "envs": 1,
        "random_steps": 0,
        "buffer_size": None,
        "staleness": 0,
    }
    algorithm = TaskReward(
        player=LoggingPlayer(), batch_size=64, truncation_is_terminal=truncation_is_terminal, **schedule
    )
    obs = jnp.arange(4.0)[:, None]
    terminal, last = jnp.array([False, True, False, False]), jnp.array([False, True, False, True])
    count = jnp.zeros(4, jnp.int32)
    steps = Transition(count, obs, obs + 1, obs + 0.5, terminal, last, ~terminal, count)
    reward = jnp.array([3.0, -1.0, 7.0, 0.5])
    # The second half of the replay buffer is not filled yet.
    rows = jax.tree.map(lambda x: jnp.concatenate([x, jnp.full_like(x, 9)]), (steps, reward))
    one = jax.tree.map(lambda x: x[None], steps)
    normalization = Normalization(jnp.zeros(1), jnp.ones(1), jnp.array([2.0]), jnp.array([2.0]))
    data = RoundData(None, replay=Replay(*rows, jnp.asarray(4)), new_steps=one, task_reward=reward[None], round=1)
    _, info = algorithm.update(TaskRewardState(jnp.zeros(()), normalization), data, jax.random.key(0))
    jax.effects_barrier()
    logged = jax.tree.map(np.asarray, LOGGED)
    bootstrap = [1, 0, 1, 0] if truncation_is_terminal else [1, 0, 1, 1]
    np.testing.assert_array_equal(logged["reward"], reward[None])
    np.testing.assert_array_equal(logged["bootstrap"], [bootstrap])
    np.testing.assert_array_equal(logged["act"][0, :, 0], [-0.5, 0, 0.5, 1])
    assert not logged["terminal_value"].any()
    rows = logged["sampled_obs"][:, 0].astype(int)
    assert set(rows.tolist()) == {0, 1, 2, 3}
    np.testing.assert_array_equal(logged["sampled_reward"], reward[rows])
    np.testing.assert_array_equal(logged["sampled_bootstrap"], np.array(bootstrap)[rows])
    assert info.metrics["progress"] == pytest.approx(2 / 5)


def test_settings_that_do_not_fit_the_player_are_refused():
    with pytest.raises(SettingError, match="random_steps is 8"):
        us.learn(PPO, "Pendulum", 64, random_steps=8)
    with pytest.raises(SettingError, match="player is 'sac'"):
        us.learn("sac", "Pendulum", 64)
    with pytest.raises(SettingError, match="envs is 3"):
        us.learn(SAC, "Pendulum", 64, envs=3, frequency=16)
    with pytest.raises(SpecError, match="SAC"):
        us.learn(SAC, "CartPole-v1", 64, workers=0)


def test_defaults_depend_on_the_player():
    from understudy.train.learn import _algorithm

    def settings(player, steps):
        made = _algorithm(player, steps, None, None, 256, None, None, None, False, 0)
        return made.envs, made.frequency, made.random_steps, made.buffer_size, made.rounds, made.round_steps

    assert settings(us.rl.SAC(), 20_000) == (1, 64, 1000, None, 53, 6 * 64)
    assert settings(us.rl.SoftQ(gradient_steps=8), 1_000) == (1, 8, 100, None, 63, 16)
    assert settings(us.rl.PPO(), 100_000) == (8, 2048, 0, 2048, 49, 2048)
