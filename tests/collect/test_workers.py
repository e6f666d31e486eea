"""Workers: what is played does not depend on who plays it, is what Gymnasium plays, and no process stays behind."""

import functools
import os
import signal
import subprocess
import sys
import textwrap
import time

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv

import understudy as us
from understudy.collect.runner import Runner, StepRequest
from understudy.collect.worker import worker_count
from understudy.collect.workers import WorkerPool
from understudy.core.errors import SettingError, SpecError, WorkerError
from understudy.policies import Categorical, Deterministic, Normalized
from understudy.policies.gaussian import Gaussian, StateDependent
from understudy.policies.networks import MLP
from understudy.policies.normalization import Normalization

SEEDS = [(7, 0), (8, 0), (9, 0)]


class Loud(CartPoleEnv):
    """A CartPole that prints."""

    def step(self, action):
        print("a word of Python's")
        os.system('echo "a word of the shell"')
        return super().step(action)


def only_here(process):
    if os.getpid() != process:
        raise LookupError("no pole in this process")
    return CartPoleEnv()


@functools.cache
def cartpole():
    return us.make("CartPole-v1")


@functools.cache
def pendulum():
    return us.make("Pendulum-v1")


def steering(seed=0):
    return jax.tree.map(np.asarray, Categorical.init(jax.random.key(seed), 4, 2, (8,)))


def swinging(seed=0):
    frame = Normalization(
        np.zeros(3, np.float32), np.ones(3, np.float32), np.zeros(1, np.float32), np.full(1, 2, np.float32)
    )
    return jax.tree.map(np.asarray, Normalized(Gaussian.init(jax.random.key(seed), 3, 1, (8,)), frame))


def played(env, orders, workers, seeds=SEEDS, envs=2, steps=30):
    """The chunks of some turns, each turn's orders the same for all runs."""
    with WorkerPool(env, seeds, envs, steps, workers) as pool:
        turns = []
        for order in orders:
            pool.request([order] * len(seeds))
            turns.append(pool.receive())
        return turns


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@pytest.fixture(scope="module")
def cartpole_turns():
    orders = [StepRequest(steering(), False, 4), StepRequest(steering(1), False, 0), StepRequest(steering(), True, 0)]
    return orders, played(cartpole(), orders, 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_chunks_are_equal_whatever_the_number_of_workers(cartpole_turns, workers):
    orders, here = cartpole_turns
    assert same(played(cartpole(), orders, workers), here)


def test_continuous_actions_are_equal_here_and_in_a_worker():
    orders = [StepRequest(swinging(), False, 2)] * 2
    assert same(played(pendulum(), orders, 1, SEEDS[:2]), played(pendulum(), orders, 0, SEEDS[:2]))


def test_a_runs_steps_are_the_same_alone_or_beside_others(cartpole_turns):
    orders, together = cartpole_turns
    alone = played(cartpole(), orders, 0, SEEDS[1:2])
    assert same([turn[0] for turn in alone], [turn[1] for turn in together])


def test_seeds_differ_and_so_do_a_runs_environments(cartpole_turns):
    first = cartpole_turns[1][0]
    starts = np.concatenate([chunk.obs[:, 0] for chunk in first])
    assert len(np.unique(starts, axis=0)) == 6


def test_a_chunk_is_what_gymnasium_plays_across_resets(cartpole_turns):
    """Replayed by hand: each environment's actions, from the seeds that its own generator draws."""
    turns = cartpole_turns[1][:2]
    for run, seed in enumerate(SEEDS):
        chunk = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *(turn[run] for turn in turns))
        for number in range(2):
            starts = np.random.default_rng(np.random.SeedSequence(seed).spawn(4)[2 + number])
            env = gymnasium.make("CartPole-v1")
            obs, t = env.reset(seed=int(starts.integers(2**31)))[0], 0
            for k in range(60):
                assert chunk.t[number, k] == t
                np.testing.assert_array_equal(chunk.obs[number, k], obs)
                obs, reward, terminal, truncated, _ = env.step(int(chunk.act[number, k]))
                np.testing.assert_array_equal(chunk.next_obs[number, k], obs)
                assert chunk.reward[number, k] == reward
                assert (chunk.terminal[number, k], chunk.last[number, k]) == (terminal, terminal or truncated)
                t += 1
                if terminal or truncated:
                    obs, t = env.reset(seed=int(starts.integers(2**31)))[0], 0
        assert chunk.terminal.any(), "the comparison needs an episode that ends within it"
    assert chunk.t.dtype == chunk.act.dtype == np.int32
    assert chunk.obs.dtype == chunk.next_obs.dtype == chunk.reward.dtype == np.float32


def test_episodes_go_on_from_turn_to_turn_until_reset_is_ordered(cartpole_turns):
    first, second, third = (turn[0] for turn in cartpole_turns[1])
    np.testing.assert_array_equal(second.t[:, 0], np.where(first.last[:, -1], 0, first.t[:, -1] + 1))
    assert (second.t[:, 0] > 0).any()
    assert (second.t[:, -1] > 0).any()
    np.testing.assert_array_equal(third.t[:, 0], 0)
    assert not np.array_equal(third.obs[:, 0], second.next_obs[:, -1])
    assert np.abs(third.obs[:, 0]).max() <= 0.05, "CartPole starts within 0.05 of upright"


@pytest.mark.parametrize("env", [functools.partial(PendulumEnv), "Pendulum-v1"])
def test_a_time_limit_sets_last_and_not_terminal(env):
    """Whether it is the horizon's cut, where the environment has none, or the environment's own."""
    limit = 20 if not isinstance(env, str) else 200
    steps = 2 * limit + 5
    [[chunk]] = played(
        us.make(env, 20 if limit == 20 else None), [StepRequest(swinging(), False, 0)], 0, SEEDS[:1], 1, steps
    )
    np.testing.assert_array_equal(np.flatnonzero(chunk.last[0]), [limit - 1, 2 * limit - 1])
    assert not chunk.terminal.any()
    np.testing.assert_array_equal(chunk.t[0], np.arange(steps) % limit)
    assert not np.array_equal(chunk.next_obs[0, limit - 1], chunk.obs[0, limit])


def test_an_episode_that_ends_both_ways_is_terminal():
    class Both(CartPoleEnv):
        def step(self, action):
            obs, reward, _, _, info = super().step(action)
            return obs, reward, True, True, info

    [[chunk]] = played(us.make(Both, 10), [StepRequest(steering(), False, 0)], 0, SEEDS[:1], 1, 3)
    assert chunk.terminal.all()
    assert chunk.last.all()


def test_random_actions_come_first_and_then_the_policys():
    still = Deterministic(jax.tree.map(np.asarray, Deterministic.init(jax.random.key(0), 3, 1, (4,)).net), squash=True)
    [one], [two] = (played(pendulum(), [StepRequest(still, True, count)], 0, SEEDS[:1], 2, 400) for count in (0, 390))
    acts = two[0].act[:, :390]
    assert np.abs(acts).max() <= 2
    assert np.abs(acts).max() > 1.9
    assert abs(acts.mean()) < 0.3
    assert acts.std() == pytest.approx(2 / 3**0.5, abs=0.1)
    expected = still.mode(None, two[0].obs[:, 390:])
    np.testing.assert_allclose(two[0].act[:, 390:], expected, atol=1e-6)
    np.testing.assert_allclose(one[0].act, still.mode(None, one[0].obs), atol=1e-6)
    [[cart]] = played(cartpole(), [StepRequest(steering(), True, 1000)], 0, SEEDS[:1], 2, 200)
    assert set(np.unique(cart.act)) == {0, 1}


def test_actions_outside_their_range_are_clipped_and_recorded_so():
    far = Deterministic(Deterministic.init(jax.random.key(0), 3, 1, (4,)).net)
    far = jax.tree.map(lambda x: 100 * np.asarray(x), far)
    [[chunk]] = played(pendulum(), [StepRequest(far, True, 0)], 0, SEEDS[:1], 2, 20)
    assert set(np.unique(chunk.act)) == {-2.0, 2.0}


def test_noise_that_is_held_for_an_episode_is_drawn_once_per_episode():
    """With constant features, actions differ between episodes and are constant within one."""
    net = MLP(
        (np.zeros((3, 4), np.float32), np.zeros((4, 1), np.float32)),
        (np.ones(4, np.float32), np.zeros(1, np.float32)),
        "relu",
    )
    policy = jax.tree.map(np.asarray, StateDependent.init(net, -1.0, hold=1000))
    [[chunk]] = played(pendulum(), [StepRequest(policy, False, 0)], 0, SEEDS[:1], 2, 250)
    for t, act in zip(chunk.t, chunk.act, strict=True):
        second = int(np.flatnonzero(t == 0)[1])
        assert np.ptp(act[:second]) == np.ptp(act[second:]) == 0
        assert act[0] != act[second]


def test_a_run_that_has_stopped_returns_zeros_and_stays_where_it_was():
    order = StepRequest(steering(), False, 0)
    with WorkerPool(cartpole(), SEEDS[:2], 1, 10, 0) as pool:
        pool.request([order, order])
        first = pool.receive()
        pool.request([None, order])
        stopped, going = pool.receive()
        pool.request([order, None])
        again, _ = pool.receive()
    assert not any(np.any(leaf) for leaf in stopped)
    assert jax.tree.map(np.shape, stopped) == jax.tree.map(np.shape, going)
    np.testing.assert_array_equal(again.obs[0, 0], first[0].next_obs[0, -1])


def test_the_time_of_environments_and_policies_is_counted():
    with WorkerPool(cartpole(), SEEDS[:1], 1, 10, 0) as pool:
        assert pool.env_seconds == pool.act_seconds == 0
        pool.request([StepRequest(steering(), False, 0)])
        pool.receive()
        assert pool.env_seconds > 0
        assert pool.act_seconds > 0


def gone(pid):
    """Whether a process has ended; one of ours has then been waited for as well."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_ctrl_c_is_not_the_workers_and_none_is_left():
    pool = WorkerPool(cartpole(), SEEDS, 1, 10, 2)
    pool.request([StepRequest(steering(), False, 0)] * 3)
    pool.receive()
    pids = pool.pids
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    pool.request([StepRequest(steering(), False, 0)] * 3)
    pool.receive()
    assert pool.pids == pids
    pool.close()
    assert all(map(gone, pids))


def test_an_environment_that_only_this_process_can_make_is_an_error_of_one_line():
    make = functools.partial(only_here, os.getpid())
    with WorkerPool(us.make(make, 10), SEEDS[:1], 1, 10, 1) as pool:
        with pytest.raises(WorkerError, match=r"could not be made: LookupError: no pole in this process$"):
            pool.request([StepRequest(steering(), False, 0)])
        assert all(map(gone, pool.pids))


def test_an_action_that_is_not_finite_is_the_policys_fault():
    broken = jax.tree.map(lambda x: np.full_like(x, np.nan), swinging())
    with pytest.raises(SpecError, match="the policy returned 2 actions that are NaN or infinite"):
        played(pendulum(), [StepRequest(broken, False, 0)], 0, SEEDS[:1])


def test_a_function_that_cannot_be_sent_is_refused_with_the_way_out():
    env = us.make(lambda: CartPoleEnv(), 10)
    with pytest.raises(SettingError, match=r"cannot be sent to workers .* workers=0"):
        WorkerPool(env, SEEDS, 1, 5, 1)
    assert len(played(env, [StepRequest(steering(), False, 0)], 0, SEEDS[:1])) == 1


def test_request_and_receive_alternate():
    with WorkerPool(cartpole(), SEEDS[:1], 1, 5, 0) as pool:
        with pytest.raises(WorkerError, match="request"):
            pool.receive()
        pool.request([None])
        with pytest.raises(WorkerError, match="twice"):
            pool.request([None])
        pool.receive()
    with pytest.raises(WorkerError, match="closed"):
        pool.request([None])


@pytest.mark.parametrize("workers", [0, 1])
def test_what_an_environment_prints_goes_to_standard_error(capfd, workers):
    played(us.make(Loud, 10), [StepRequest(steering(), False, 0)], workers, SEEDS[:1], 1, 5)
    out, err = capfd.readouterr()
    assert out == ""
    assert sorted(err.splitlines()) == ["a word of Python's"] * 5 + ["a word of the shell"] * 5


class Chatty(CartPoleEnv):
    """Prints more than a pipe holds, at each step."""

    def step(self, action):
        print("x" * 200_000)
        return super().step(action)


def test_an_environment_that_prints_much_neither_blocks_its_worker_nor_garbles_its_answers(capfd):
    order = [StepRequest(steering(), False, 0)]
    quiet = played(us.make("CartPole-v1", 10), order, 0, SEEDS[:1], 1, 5)
    assert same(played(us.make(Chatty, 10), order, 1, SEEDS[:1], 1, 5), quiet)
    assert len(capfd.readouterr().err) == 5 * 200_001


def test_a_script_without_a_guard_can_have_workers_and_leaves_none_when_it_is_killed(tmp_path):
    """An environment that the script registers is known to them too."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import time, jax, numpy as np, gymnasium, understudy as us
        from understudy.policies import MLP, Categorical
        from understudy.collect.runner import StepRequest
        from understudy.collect.workers import WorkerPool
        gymnasium.register("Own-v0", entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv")
        pool = WorkerPool(us.make("Own-v0", 10), [(0,), (1,)], 1, 5, 2)
        net = ((np.zeros((4, 2), np.float32),), (np.zeros(2, np.float32),), "relu")
        request = StepRequest(Categorical(MLP(*net)), False, 0)
        pool.request([request] * 2)
        print(sum(c.reward.sum() for c in pool.receive()), *pool.pids, flush=True)
        time.sleep(60)
        """)
    )
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    total, *pids = process.stdout.readline().split()
    assert float(total) == 10
    assert len(pids) == 2
    process.kill()
    process.communicate()
    assert all(gone(int(pid)) for pid in pids)


def test_workers_are_as_many_as_jobs_or_cores_and_none_where_the_environment_cannot_be_sent(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(4)), raising=False)
    assert [worker_count(cartpole(), jobs) for jobs in (1, 3, 9)] == [1, 3, 4]
    assert worker_count(us.make(lambda: CartPoleEnv(), 10), 9) == 0
    assert worker_count(us.make("Pendulum"), 9) == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    assert worker_count(cartpole(), 9) == 1


def test_a_run_makes_as_many_environments_as_it_is_told():
    run = Runner(cartpole(), (1,), 3, 4)
    chunk = run.play(StepRequest(steering(), False, 0)).chunk
    assert chunk.obs.shape == (3, 4, 4)
    run.close()
