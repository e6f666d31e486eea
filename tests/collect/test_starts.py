"""Episodes that begin at demonstrated steps: where and when they begin, when they end, and what does not count them."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from support.envs import Drift
from understudy.collect import replay
from understudy.collect.replay import Chunk, episode_returns
from understudy.collect.runner import Runner, StepRequest
from understudy.collect.starts import Starts, demonstrated_starts
from understudy.collect.steps import play_steps, start_all
from understudy.collect.workers import WorkerPool
from understudy.core.errors import DemonstrationError, NeedsError, SpecError
from understudy.envs import GymnasiumEnvironment
from understudy.envs.base import Environment
from understudy.envs.stepping import CheckedEnv
from understudy.game.schedule import Schedule
from understudy.policies import Deterministic
from understudy.policies.networks import MLP

HORIZON, ENVS, STEPS = 50, 8, 400
SCHEDULE = Schedule(updates=1, envs=ENVS, steps_per_env=STEPS, capacity=ENVS * STEPS)


@pytest.fixture(scope="module")
def drift():
    """Two demonstrated episodes, the second shorter."""
    demos = us.record(Drift(), Drift().expert(), episodes=2)
    cut = demos.steps - 20
    return us.Demonstrations.from_arrays(
        demos.observations[:cut],
        demos.actions[:cut],
        [50, 30],
        action_space=demos.action_space,
        horizon=HORIZON,
        last_observations=demos.observations[[49, cut]],
    )


def training(demos, counts):
    return demos.split(counts, 0.0)[0]


def played_in_jax(demos, share, size):
    starts = demonstrated_starts(Drift(), training(demos, [demos.episodes]))._replace(size=size, share=share)
    policy = Drift().expert()
    episodes = start_all(Drift(), policy, jax.random.split(jax.random.key(0), ENVS), starts)
    play = jax.jit(lambda e, k: play_steps(Drift(), policy, e, SCHEDULE, jnp.asarray(True), jnp.asarray(0), k, starts))
    episodes, chunk = play(episodes, jax.random.key(1))
    return jax.tree.map(np.asarray, (episodes, chunk))


def played_on_the_host(demos, share, size):
    """Gymnasium's pendulum: the same facts hold there."""
    starts = Starts(demos.observations[:size], np.concatenate([np.arange(n) for n in demos.lengths])[:size], size)
    run = Runner(us.make("Pendulum-v1", HORIZON), (1,), ENVS, STEPS, starts)
    return None, run.play(StepRequest(swinging(), True, 0, share)).chunk


def swinging():
    return Deterministic(MLP((np.zeros((3, 1), np.float32),), (np.zeros(1, np.float32),), "identity"))


@pytest.fixture(scope="module")
def pendulum():
    return us.record("Pendulum-v1", lambda obs: obs[:, :1], episodes=2, workers=0).first(2)


@pytest.fixture(scope="module", params=["jax", "host"])
def chunk(request, drift, pendulum):
    """Many episodes, half of which begin in the first 20 demonstrated steps, and these steps."""
    if request.param == "jax":
        return played_in_jax(drift, 0.5, 20)[1], drift.observations[:20]
    return played_on_the_host(pendulum, 0.5, 20)[1], pendulum.observations[:20]


def first_steps(chunk):
    """The first step of each episode, without those that were under way when the chunk began."""
    return np.concatenate([np.ones((ENVS, 1), bool), chunk.last[:, :-1]], axis=1)


def test_half_of_the_episodes_begin_at_a_demonstrated_step(chunk):
    chunk, rows = chunk
    first = first_steps(chunk)
    placed = ~chunk.ordinary[first]
    assert len(placed) > 60
    assert abs(placed.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(placed))
    times, seen = chunk.t[first], chunk.obs[first]
    np.testing.assert_array_equal(times[~placed], 0)
    np.testing.assert_allclose(seen[placed], rows[times[placed]], atol=1e-5)
    assert len(np.unique(times[placed])) > 10


def test_an_episode_continues_at_the_demonstrated_time_and_ends_at_the_horizon(chunk):
    chunk, _ = chunk
    assert chunk.t.max() == HORIZON - 1
    np.testing.assert_array_equal(chunk.last, chunk.t == HORIZON - 1)
    same = ~chunk.last[:, :-1]
    np.testing.assert_array_equal(chunk.t[:, 1:][same], chunk.t[:, :-1][same] + 1)
    np.testing.assert_array_equal(chunk.ordinary[:, 1:][same], chunk.ordinary[:, :-1][same])
    np.testing.assert_allclose(chunk.obs[:, 1:][same], chunk.next_obs[:, :-1][same], atol=1e-6)


def test_a_policys_clock_runs_from_the_demonstrated_time(drift):
    episodes, _ = played_in_jax(drift, 0.9, 20)
    np.testing.assert_array_equal(episodes.carry.t, episodes.t)
    assert not episodes.ordinary.all()


def test_the_host_has_the_same_chunks_with_and_without_workers(pendulum):
    starts = [Starts(pendulum.observations[:n], np.arange(n), n) for n in (5, 20)]
    orders, chunks = [StepRequest(swinging(), False, 3, 0.5)] * 2, []
    for workers in (0, 1):
        with WorkerPool(us.make("Pendulum-v1", 10), [(7, 0), (8, 0)], 2, 40, workers, starts=starts) as pool:
            pool.request(orders)
            chunks.append(pool.receive())
    for one, other in zip(*map(jax.tree.leaves, chunks), strict=True):
        np.testing.assert_array_equal(one, other)
    assert chunks[0][0].t.max() == 9
    assert not chunks[0][0].ordinary.all()


def test_a_stopped_run_has_a_chunk_of_the_same_arrays(pendulum):
    starts = [Starts(pendulum.observations, np.arange(pendulum.steps), 5)] * 2
    with WorkerPool(us.make("Pendulum-v1", 10), [(7, 0), (8, 0)], 2, 4, 0, starts=starts) as pool:
        pool.request([StepRequest(swinging(), False, 0, 0.5), None])
        one, stopped = pool.receive()
    assert [x.shape for x in jax.tree.leaves(one)] == [x.shape for x in jax.tree.leaves(stopped)]


def test_without_start_states_nothing_is_marked():
    env = us.make("Pendulum-v1", 10)
    assert Runner(env, (1,), 2, 4).play(StepRequest(swinging(), False, 0)).chunk.ordinary is None


def test_a_demonstrated_step_beyond_the_horizon_is_the_episodes_last(pendulum):
    late = Starts(pendulum.observations[30:31], np.array([30]), 1)
    run = Runner(us.make("Pendulum-v1", 10), (1,), 2, 12, late)
    chunk = run.play(StepRequest(swinging(), True, 0, 0.9)).chunk
    placed = chunk.t == 30
    assert placed.any()
    assert chunk.last[placed].all()


def test_each_run_begins_in_its_own_demonstrations(drift, monkeypatch):
    """One program for 1 and 2 demonstrated episodes: the first run's episodes begin in the first 50 steps alone."""
    starts = demonstrated_starts(Drift(), training(drift, [1, 2]))
    np.testing.assert_array_equal(starts.size, [50, 80])
    assert [len(starts.of_run(run).obs) for run in (0, 1)] == [50, 80]
    learner = us.filter(**{**us.filter.small, "round_steps": 256, "frequency": 128, "start_share": 0.9})
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})  # one program
    chunks = []
    kept = replay.collected
    monkeypatch.setattr(replay, "collected", lambda memory, chunk, *rest: _shown(chunks, kept, memory, chunk, *rest))
    us.imitate(learner, drift, Drift(), episodes=[1, 2], progress=False, holdout=0, select="last")
    found = set()
    for chunk in chunks:
        for run in range(len(chunk.t)):
            rows = chunk.obs[run][(chunk.t[run] > 0) & ~chunk.ordinary[run]]
            near = np.abs(rows[:, None] - drift.observations[None]).max(-1) < 1e-6
            found |= {(run, row >= 50) for row in np.flatnonzero(near.any(0))}
    assert (0, False) in found
    assert (0, True) not in found
    assert (1, True) in found


def _shown(chunks, kept, memory, chunk, *rest):
    jax.debug.callback(lambda given: chunks.append(jax.tree.map(np.asarray, given)), chunk)
    return kept(memory, chunk, *rest)


# ------------------------------------------------------------------------- what must begin as the environment does


def test_returns_are_those_of_ordinary_episodes():
    """Two environments; the first's second episode began at a demonstrated step."""
    t = np.array([[0, 1, 1, 0], [0, 1, 2, 3]])
    last = np.array([[False, True, True, True], [False, False, False, True]])
    ordinary = np.array([[True, True, False, True], [True] * 4])
    reward = np.array([[1.0, 2, 100, 5], [1, 1, 1, 1]])
    empty = np.zeros((2, 4))
    chunk = Chunk(t, empty, empty, empty, reward, last, last, ordinary)
    returns, total, ended = episode_returns(jnp.zeros(2), jax.tree.map(jnp.asarray, chunk))
    assert float(total) == 3 + 5 + 4
    assert int(ended) == 3
    np.testing.assert_array_equal(returns, [0, 0])


def test_evaluation_and_selection_begin_as_the_environment_does(pendulum, monkeypatch):
    placed, after = [], []
    original = CheckedEnv.set_state

    def counted(self, obs):
        placed.append(obs)
        return original(self, obs)

    monkeypatch.setattr(CheckedEnv, "set_state", counted)
    learner = us.filter(**{**us.filter.small, "round_steps": 256, "frequency": 128, "start_share": 0.9})
    env = us.make("Pendulum-v1", 20)
    result = us.imitate(
        *(learner, pendulum, env), progress=False, workers=0, visit=lambda *_: after.append(len(placed))
    )
    assert after[-1] > 5
    assert len(placed) == after[-1], "the episodes that select the policy came after the last round"
    result.evaluate(episodes=3)
    us.rollout(env, result.policies[0], episodes=2)
    assert len(placed) == after[-1]


def test_a_resumed_run_in_jax_ends_with_the_same_policies(drift, tmp_path):
    learner = us.filter(**us.filter.small)
    options = {"env": Drift(), "progress": False}
    whole = us.imitate(learner, drift, **options)
    path = tmp_path / "run.ckpt"
    us.imitate(learner, drift, **options, checkpoint=path, visit=lambda number, states: number == 1)
    assert path.exists()
    resumed = us.imitate(learner, drift, **options, checkpoint=path)
    for a, b in zip(*(jax.tree.leaves(one.policies[0].policy) for one in (whole, resumed)), strict=True):
        np.testing.assert_array_equal(a, b)


# ----------------------------------------------------------------------------------------------- what is refused


class Closed(Drift):
    """Cannot be set to a state."""

    set_state = Environment.set_state


class Wrong(Drift):
    """`set_state` forgets a number."""

    def set_state(self, obs, t):
        placed = obs.at[1].set(0.0)
        return placed, placed


def test_an_environment_that_cannot_be_set_is_named(drift):
    small = us.filter(**us.filter.small)
    with pytest.raises(NeedsError, match=r"cannot be set to a state.*set_state"):
        us.imitate(small, drift, Closed(), progress=False)
    demos = us.record("CartPole-v1", lambda obs: np.zeros(len(obs), int), episodes=2, workers=0)
    wrap = ["gymnasium.wrappers:NormalizeObservation"]
    with pytest.raises(NeedsError, match=r"CartPole-v1.*NormalizeObservation.*set_state"):
        us.imitate(small, demos, us.make("CartPole-v1", wrap=wrap), progress=False)


def test_a_state_that_does_not_lead_to_the_observation_is_named(drift):
    with pytest.raises(SpecError, match="in its number 1, not"):
        us.imitate(us.filter(**us.filter.small), drift, Wrong(), progress=False)


def test_demonstrations_of_another_size_or_environment_are_named(drift, pendulum):
    small = us.filter(**us.filter.small)
    with pytest.raises(DemonstrationError, match="shape"):
        us.imitate(small, us.load("HalfCheetahBulletEnv-v0"), Drift(), progress=False)
    with pytest.raises(SpecError, match="Pendulum-v1 was set"):  # Drift's numbers are no cosine and sine
        us.imitate(us.filter(**us.filter.small | {"start_share": 0.9}), drift, "Pendulum-v1", progress=False, workers=0)


def test_start_states_need_demonstrations():
    with pytest.raises(NeedsError, match="start_share"):
        demonstrated_starts(us.make("Pendulum"), None)


def test_the_collector_asks_only_if_start_states_are_used(drift, monkeypatch):
    monkeypatch.setattr(GymnasiumEnvironment, "check_settable", functools.partial(pytest.fail, "asked"))
    result = us.imitate(us.filter(**us.filter.small | {"start_share": 0.0}), drift, Closed(), progress=False)
    assert np.isfinite(result.metrics["payoff"]).all()
