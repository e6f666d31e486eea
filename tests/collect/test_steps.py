"""Collecting steps: what is played before an update, what the replay buffer holds, what is logged, what ends a run."""

import re
from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.collect import replay
from understudy.collect.base import Now
from understudy.collect.replay import Chunk, episode_returns
from understudy.collect.runner import StepRequest
from understudy.collect.steps import play_steps, start_all
from understudy.collect.workers import _packed
from understudy.core.errors import DivergedError, SettingError
from understudy.core.types import Spec, Transition
from understudy.envs.base import Environment, Timestep
from understudy.game.schedule import Schedule
from understudy.policies import MLP, Categorical, Gaussian, Normalization, Normalized
from understudy.train import programs
from understudy.train.checkpoints import Checkpoint

HORIZON = 3


class Rung(NamedTuple):
    count: jax.Array
    length: jax.Array
    name: jax.Array


class Ladder(Environment):
    """Episodes of 2, 3 or 4 steps, cut at 3: some end, some are cut. A step's reward tells its episode and its time.

    In episodes named below `chance`, the first step leads to an observation of nothing but `fault`.
    """

    fault: float = 0.0
    chance: float = 0.0
    name: ClassVar[str] = "Ladder"
    about: ClassVar[str] = "a ladder for tests"

    @property
    def spec(self):
        return Spec((3,), us.Discrete(2), HORIZON)

    def reset(self, key):
        length_key, name_key = jax.random.split(key)
        state = Rung(jnp.zeros(()), jax.random.randint(length_key, (), 2, 5), jax.random.uniform(name_key))
        return state, jnp.stack([*state])

    def step(self, state, act, key):
        new = state._replace(count=state.count + 1)
        seen = jnp.stack([*new])
        broken = (state.name < self.chance) & (state.count == 0)
        reward = state.length * 10 + state.count
        return Timestep(new, jnp.where(broken, self.fault, seen), reward, new.count == state.length)

    def expert(self):
        return always(1)


def always(act):
    """A policy that takes one action."""
    bias = jnp.where(jnp.arange(2) == act, 50.0, -50.0)
    return Categorical(MLP((jnp.zeros((3, 2)),), (bias,), "relu"))


SCHEDULE = Schedule(updates=2, envs=4, steps_per_env=12, capacity=96)


@pytest.fixture(scope="module")
def chunks():
    """Three chunks of a policy that always takes action 1: from the start, continued, and after a reset."""
    env, policy = Ladder(), always(1)
    episodes = start_all(env, policy, jax.random.split(jax.random.key(9), SCHEDULE.envs))
    play = jax.jit(
        lambda episodes, begins, random_steps, key: play_steps(
            env, policy, episodes, SCHEDULE, begins, random_steps, key
        )
    )
    found = []
    for number, (begins, random_steps) in enumerate([(True, 5), (False, 0), (True, 0)]):
        episodes, chunk = play(episodes, jnp.asarray(begins), jnp.asarray(random_steps), jax.random.key(number))
        found.append(jax.tree.map(np.asarray, chunk))
    return found


def test_episodes_end_and_restart_within_a_chunk(chunks):
    for chunk in chunks:
        length, cut = chunk.obs[..., 1], chunk.t == HORIZON - 1
        np.testing.assert_array_equal(chunk.terminal, chunk.t + 1 == length)
        np.testing.assert_array_equal(chunk.last, chunk.terminal | cut)
        np.testing.assert_array_equal(chunk.reward, 10 * length + chunk.t)
        np.testing.assert_array_equal(chunk.obs[..., 0], chunk.t)
        assert (chunk.last & ~chunk.terminal).any(), "the comparison needs an episode that is cut"
        assert chunk.terminal.any(), "and one that ends"
        following = np.where(chunk.last, 0, chunk.t + 1)
        np.testing.assert_array_equal(chunk.t[:, 1:], following[:, :-1])


def test_the_next_observation_of_a_last_step_belongs_to_its_own_episode(chunks):
    for chunk in chunks:
        np.testing.assert_array_equal(chunk.next_obs[..., 0], chunk.t + 1)
        np.testing.assert_array_equal(chunk.next_obs[..., 1:], chunk.obs[..., 1:])
        same = (chunk.next_obs[:, :-1] == chunk.obs[:, 1:]).all(-1)
        np.testing.assert_array_equal(same, ~chunk.last[:, :-1])


def test_episodes_continue_from_update_to_update_unless_a_round_resets(chunks):
    first, second, third = chunks
    np.testing.assert_array_equal(second.t[:, 0], np.where(first.last[:, -1], 0, first.t[:, -1] + 1))
    going = ~first.last[:, -1]
    assert going.any()
    np.testing.assert_array_equal(second.obs[going, 0], first.next_obs[going, -1])
    assert (second.t[:, -1] < HORIZON - 1).any(), "the third turn must have something to break off"
    np.testing.assert_array_equal(third.t[:, 0], 0)
    assert not np.isin(third.obs[:, 0, 2], second.obs[..., 2]).any()


def test_the_first_steps_are_random_and_the_others_the_policys(chunks):
    first, second, _ = chunks
    assert set(np.unique(first.act[:, :5])) == {0, 1}
    assert (first.act[:, 5:] == 1).all()
    assert (second.act == 1).all()


def test_a_schedule_counts_updates_in_a_runs_steps():
    of = partial(Schedule.of, round_steps=20, frequency=8, envs=2, rounds=3, random_steps=13)
    schedule, each = of(), of(random_each_round=True, reset_each_round=True)
    assert (schedule.updates, schedule.steps_per_env, schedule.update_steps, schedule.capacity) == (3, 4, 8, 72)
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert [int(schedule.random_steps_left(*place)) for place in places] == [4, 3, 0, 0, 0]
    assert [int(each.random_steps_left(*place)) for place in places] == [4, 3, 0, 4, 3]
    assert [bool(schedule.begins(*place)) for place in places] == [True, False, False, False, False]
    assert [bool(each.begins(*place)) for place in places] == [True, False, False, True, False]
    assert of(buffer_size=17).capacity == 24, "whole updates"
    assert of(buffer_size=1000).capacity == 72, "no more than will be collected"
    with pytest.raises(SettingError, match="envs is 3"):
        of(envs=3)
    with pytest.raises(SettingError, match="staleness is 2"):
        of(staleness=2)


def test_the_replay_buffer_knows_time_and_round_and_overwrites_the_oldest_steps():
    """Two runs, two environments, five updates of three steps each, and capacity for three updates."""
    schedule, spec = Schedule(updates=2, envs=2, steps_per_env=3, capacity=18), Ladder().spec
    memory = replay.empty(schedule, spec, runs=2)
    assert memory.episodes is None
    collect = jax.jit(partial(replay.collected, schedule=schedule))
    for number in range(5):
        # A step's reward is its number: run, update, environment, time.
        code = np.arange(6).reshape(1, 2, 3) + 10 * number + 100 * np.arange(2).reshape(2, 1, 1)
        obs, flag = np.repeat(code[..., None], 3, -1), code % 2 == 0
        chunk = Chunk(code, obs, code % 2, obs + 1, code, flag, ~flag)
        memory, collected = collect(memory, chunk, now=Now(*map(jnp.asarray, divmod(number, 2))))
        np.testing.assert_array_equal(collected.replay.size, [min(6 * (number + 1), 18)] * 2)
        np.testing.assert_array_equal(collected.env_steps, [6 * (number + 1)] * 2)
    rows = np.concatenate([10 * number + np.arange(6) for number in (3, 4, 2)])
    for run in range(2):
        np.testing.assert_array_equal(memory.reward[run], rows + 100 * run)
        np.testing.assert_array_equal(memory.steps.t[run], rows + 100 * run)
        np.testing.assert_array_equal(memory.steps.obs[run, :, 0], rows + 100 * run)
        np.testing.assert_array_equal(memory.steps.next_obs[run, :, 2], rows + 100 * run + 1)
        np.testing.assert_array_equal(memory.steps.act[run], rows % 2)
        np.testing.assert_array_equal(memory.steps.last[run], rows % 2 == 1)
        np.testing.assert_array_equal(memory.steps.round[run], rows // 20)


def test_returns_are_sums_over_episodes_however_updates_cut_them(chunks):
    chunk = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *chunks[:2])
    totals, sums, counts = jnp.zeros(4), [], []
    for part in chunks[:2]:
        totals, ended, count = episode_returns(totals, part)
        sums.append(float(ended))
        counts.append(int(count))
    by_hand, left = [], []
    for reward, last in zip(chunk.reward, chunk.last, strict=True):
        whole = np.split(reward, np.flatnonzero(last) + 1)
        by_hand += [part.sum() for part in whole[:-1]]
        left.append(whole[-1].sum())
    assert sum(sums) == sum(by_hand)
    assert sum(counts) == len(by_hand)
    np.testing.assert_array_equal(totals, left)


def test_the_numpy_policy_of_workers_equals_the_jax_policy():
    normalization = Normalization(np.full(3, 0.5), np.full(3, 2.0), np.array([1.0, 0.0]), np.array([2.0, 0.5]))
    normalization = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), normalization)
    policy = Normalized(Gaussian.init(jax.random.key(0), 3, 2, (8,)), normalization)
    obs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    actor = _packed(StepRequest(jax.device_get(policy), False, 0)).policy
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(actor))
    acted = actor.mode(None, obs)
    assert isinstance(acted, np.ndarray)
    np.testing.assert_allclose(acted, policy.mode(None, jnp.asarray(obs)), atol=1e-5)
    noise = np.random.default_rng(1).standard_normal((64, 2)).astype(np.float32)
    inside, _ = policy.policy.draw_from(normalization.encode_obs(jnp.asarray(obs)), jnp.asarray(noise))
    drawn = actor.draw(None, obs, np.random.default_rng(1))
    np.testing.assert_allclose(drawn, normalization.decode_act(inside), atol=1e-5)
    assert np.abs(drawn - acted).max() > 0.1

    choice = Categorical.init(jax.random.key(1), 3, 4, (8,))
    copy = _packed(StepRequest(jax.device_get(choice), False, 0)).policy
    np.testing.assert_array_equal(copy.mode(None, obs), choice.mode(None, jnp.asarray(obs)))
    gumbel = np.random.default_rng(2).gumbel(size=(64, 4))
    expected = np.argmax(np.asarray(choice.net(jnp.asarray(obs))) + gumbel, axis=-1)
    np.testing.assert_array_equal(copy.draw(None, obs, np.random.default_rng(2)), expected)


class EveryRound(Checkpoint):
    due = True


def demonstrated():
    """Two episodes that end after two steps, one that is cut after three."""
    rows = [(t, length, name) for length, name in ((2, 0.2), (2, 0.5), (4, 0.8)) for t in range(min(length, HORIZON))]
    obs = np.array(rows, np.float32)
    ends = np.array([t + 1 == length for t, length, _ in rows])
    after = obs + np.array([1, 0, 0], np.float32)
    return us.Demonstrations.from_arrays(
        obs,
        np.ones(len(obs), np.int32),
        [2, 2, 3],
        next_observations=after,
        terminals=ends,
        action_space=us.Discrete(2),
        horizon=HORIZON,
    )


LEARNER = partial(
    us.adril.preset,
    "plain",  # the default clips observations, so that a fault would not reach the critics
    rounds=4,
    round_steps=16,
    frequency=8,
    envs=2,
    buffer_size=40,
    batch_size=8,
    random_steps=4,
    soft_q=us.rl.SoftQ(hidden=(8,), gradient_steps=2),
)
SEEDS, CHANCE = 4, 0.02


def learn(env, checkpoint=None, seeds=SEEDS, **changes):
    return us.imitate(LEARNER(**changes), demonstrated(), env, seeds=seeds, holdout=0.0, checkpoint=checkpoint)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run on the ladder, and what its checkpoints held after each round."""
    place, found = tmp_path_factory.mktemp("kept") / "place.npz", []

    def visit(rounds, states):
        found.append(dict(np.load(place)) if place.exists() else {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.train.imitate.Checkpoint", EveryRound)
        before = programs._advance._cache_size()
        options = {"seeds": SEEDS, "holdout": 0.0, "checkpoint": place, "visit": visit}
        result = us.imitate(LEARNER(), demonstrated(), Ladder(), **options)
        compiled = programs._advance._cache_size() - before
    return result, [*found[1:], dict(np.load(place))], compiled


def rows_of(arrays):
    """The history in a checkpoint: its last nine arrays."""
    count = sum(name.startswith("collector.") for name in arrays)
    columns = [arrays[f"collector.{i}"] for i in range(count - 9, count)]
    return Transition(*columns[:8]), columns[8]


def test_a_rounds_program_is_compiled_once(kept):
    assert kept[2] == 1


def test_checkpoints_store_only_filled_rows(kept):
    """In whole sixteenths of the room, which is 40: three rows each."""
    places = kept[1]
    sizes = [rows_of(arrays)[1].shape for arrays in places]
    assert sizes == [(SEEDS, 18), (SEEDS, 33), (SEEDS, 40), (SEEDS, 40)]
    for number, arrays in enumerate(places):
        steps = Transition(*(column[:, : 16 * (number + 1)] for column in rows_of(arrays)[0]))
        assert set(np.unique(steps.round)) <= set(range(number + 1))
        assert (steps.round == number).sum() == 16 * SEEDS
        assert (steps.obs[..., 1] >= 2).all(), "a row that nothing was played into is zero"
        np.testing.assert_array_equal(steps.obs[..., 0], steps.t)
    # Room for five turns: the eighth turn went over the third, whose place is the third one.
    np.testing.assert_array_equal(rows_of(places[-1])[0].round[0], np.repeat([2, 3, 3, 1, 2], 8))


def test_the_returns_logged_are_those_of_the_episodes_that_ended(kept):
    """By hand, from the first rounds' rows: (turns, environments, steps)."""
    result, places, _ = kept
    steps, reward = jax.tree.map(lambda x: x[:, :32], rows_of(places[1]))
    for run in range(SEEDS):
        reward_, last = (x[run].reshape(4, 2, 4) for x in (reward, steps.last))
        returns = [[] for _ in range(4)]
        for number in range(2):
            total = 0.0
            for turn in range(4):
                for k in range(4):
                    total += reward_[turn, number, k]
                    if last[turn, number, k]:
                        returns[turn].append(total)
                        total = 0.0
        means = [np.mean([np.mean(r) for r in returns[2 * i : 2 * i + 2] if r]) for i in range(2)]
        np.testing.assert_allclose(result.metrics["return"][run, :2], means, rtol=1e-6)
    np.testing.assert_array_equal(result.metrics["env_steps"], np.tile([16, 32, 48, 64], (SEEDS, 1)))


def is_finite(actor):
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(actor.policy))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            float("nan"),
            r"diverged in round \d: \w+ is NaN; the environment's .* at t = \d; the policy of round \d is kept",
        ),
        (1e9, r"stopped in round \d: the critic's loss exploded, so the policy of round \d is kept"),
    ],
)
def test_a_run_that_breaks_keeps_its_last_good_policy_and_the_others_continue(kept, fault, words):
    result = learn(Ladder(fault, CHANCE))
    broken = np.array([run.status != "finished" for run in result.runs])
    assert broken.any()
    assert not broken.all()
    for run, (about, actor) in enumerate(zip(result.runs, result.policies, strict=True)):
        assert is_finite(actor)
        if broken[run]:
            assert re.fullmatch(words, about.status)
            assert np.isnan(result.metrics["payoff"][run, -1])
        else:  # what others do is nothing to it
            np.testing.assert_array_equal(result.metrics["critic_loss"][run], kept[0].metrics["critic_loss"][run])
    assert not broken[result.selected]


def test_when_every_run_diverges_it_is_an_error_and_no_checkpoint_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("understudy.train.imitate.Checkpoint", EveryRound)
    place = tmp_path / "place.npz"
    with pytest.raises(DivergedError, match=r"^every run diverged in round 1: \w+ is NaN; the environment's"):
        learn(Ladder(float("nan"), 1.0), place)
    assert not place.exists()


def test_when_every_loss_explodes_the_runs_stop_with_their_first_policies(kept):
    result = learn(Ladder(), loss_limit=1e-9)
    status = "stopped in round 1: the critic's loss exploded, so the policy of round 0 is kept"
    assert [run.status for run in result.runs] == [status] * SEEDS
    assert all(map(is_finite, result.policies))
    assert np.isnan(result.metrics["payoff"][:, 1:]).all()
    assert result.metrics["payoff"].shape[1] < 4, "nobody is left to train"


# ------------------------------------------------------------------------------------- deterministic episodes


@pytest.mark.parametrize("env", ["Pendulum", "Pendulum-v1"])  # inside the program, and on the host
def test_a_share_of_the_collected_episodes_is_deterministic(env, monkeypatch):
    collected, kept = [], replay.collected

    def shown(memory, chunk, *rest):
        jax.debug.callback(lambda given: collected.append(jax.tree.map(np.asarray, given)), chunk)
        return kept(memory, chunk, *rest)

    monkeypatch.setattr(replay, "collected", shown)
    still = us.sqil.small | {"sac": replace(us.sqil.small["sac"], lr=1e-12)}  # the policy stays as it was
    schedule = {"rounds": 1, "round_steps": 320, "frequency": 160, "envs": 40, "random_steps": 0, "clone_steps": 0}
    learner = us.sqil(**still | schedule, deterministic_share=0.5)
    options = {"episodes": 2, "workers": 0, "progress": False, "select": "last"}
    result = us.imitate(learner, "Pendulum", us.make(env), **options)
    chunk = collected[0]
    obs, act = chunk.obs[0], chunk.act[0]  # (environments, steps, ...) of the only run
    mean = np.stack([result.policy(rows) for rows in obs])
    near = np.abs(act - mean).max(-1) < 1e-4
    assert near.shape == (40, 4)
    assert (near.all(1) | (near.sum(1) <= 1)).all(), "an episode changed its mind"
    assert 10 <= near.all(1).sum() <= 30


def test_a_share_of_deterministic_episodes_is_a_share():
    for wrong in (-0.1, 1.1, float("nan"), "half"):
        with pytest.raises(SettingError, match="deterministic_share"):
            us.sqil(deterministic_share=wrong)
    with pytest.raises(SettingError, match="PPO learns from the noise"):
        us.gail(deterministic_share=0.5)
