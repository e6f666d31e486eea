"""What an evaluation says beside the return: the gap from the same starting states, success and episode length."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import understudy as us
from support.solvable import Solvable
from understudy.collect.rollout_pool import RolloutPool, RolloutService
from understudy.collect.worker import WorkerLost
from understudy.core.errors import SpecError
from understudy.core.statistics import Interval, Sample, imitation_gap, interval, proportion
from understudy.core.types import Spec
from understudy.envs.base import Environment, Timestep
from understudy.evaluation.returns import Evaluation, success_rate
from understudy.policies import MLP, Deterministic
from understudy.policies.actor import Actor

GAP = 2.0


class Starts(Environment):
    """One step. Where it starts adds 10 z to the return; an action adds the action times a number near 2."""

    name: ClassVar[str] = "Starts"

    @property
    def spec(self):
        return Spec((2,), us.Continuous((0.0,), (1.0,)), 1)

    def reset(self, key):
        state = jax.random.normal(key, (2,)) * jnp.array([10.0, 1.0]) + jnp.array([0.0, GAP])
        return state, state

    def step(self, state, act, key):
        return Timestep(state, state, state[0] + act[0] * state[1], jnp.array(True))


def always(action, env, weight=0.0):
    """A policy with the same action in all states, plus `weight` times the first observation."""
    size = env.spec.obs_size
    net = MLP((jnp.full((size, 1), weight),), (jnp.array([action]),), "identity")
    return Actor(Deterministic(net), env.spec, {"episodes": 1})


@pytest.mark.parametrize(("runs", "episodes", "freedom"), [(5, 4, 4), (1, 12, 11)])
def test_interval_of_the_paired_gap_covers_it_95_times_in_100(runs, episodes, freedom):
    """The difference of two episodes has mean 2 and standard deviation 1; a return has standard deviation 10."""
    env = Starts()
    learner, expert = always(0.0, env), always(1.0, env)
    gaps, unpaired, trials = [], [], 200
    for seed in range(trials):
        found = us.evaluate([learner] * runs, env, episodes, seed, expert)
        (score,) = found.scores()
        assert score.paired
        gaps.append(score.gap)
        both = (found.expert_returns, found.returns)
        unpaired.append(imitation_gap(*(Sample.of(side.mean(axis=1) if runs > 1 else side[0]) for side in both)))
    inside = sum(gap.low <= GAP <= gap.high for gap in gaps)
    assert inside / trials == pytest.approx(0.95, abs=0.04)
    error = (runs * episodes) ** -0.5  # of the mean difference
    assert np.std([gap.mean for gap in gaps]) == pytest.approx(error, rel=0.12)
    assert np.mean([gap.high - gap.low for gap in unpaired]) > 10 * np.mean([gap.high - gap.low for gap in gaps])
    # The mean width of a t interval: the mean of a standard deviation's estimate is 1 to 6% below it.
    assert np.mean([gap.high - gap.low for gap in gaps]) == pytest.approx(
        2 * stats.t.ppf(0.975, freedom) * error, rel=0.1
    )


def test_the_expert_starts_where_each_policy_starts():
    env = Starts()
    learner, expert = always(0.0, env), always(1.0, env)
    found = us.evaluate([learner, learner], env, 5, 3, expert)
    assert len(np.unique(found.returns)) == 10, "every policy has its own starting states"
    differences = found.expert_returns - found.returns
    assert (np.abs(differences - GAP) < 5).all(), "starting states that differ would differ by 10 and more"
    (score,) = found.scores()
    assert score.gap == pytest.approx(interval(Sample.of(differences.mean(axis=1))))
    assert score.expert == pytest.approx(interval(Sample.of(found.expert_returns.mean(axis=1))))
    assert found.gaps == pytest.approx(differences.mean(axis=1))
    np.testing.assert_array_equal(us.evaluate([learner, learner], env, 5, 3).returns, found.returns)


def test_a_recorded_return_is_not_paired():
    env = Starts()
    (score,) = us.evaluate([always(0.0, env)], env, 5, 0, Sample(2.0, 1.0, 10)).scores()
    assert (score.paired, score.expert.mean) == (False, 2.0)


@pytest.mark.parametrize("kind", ["policy", "function", "model"])
def test_an_expert_of_any_kind_acts_in_workers_and_in_this_process(kind):
    env = us.make(Solvable, horizon=3)
    learner = always(0.0, env)

    class Model:
        def predict(self, obs, deterministic=True):
            return np.clip(-obs, -1, 1), None

    expert = {"policy": always(0.0, env, -1.0), "function": lambda obs: np.clip(-obs, -1, 1), "model": Model()}[kind]
    found = [us.evaluate([learner, learner], env, 4, 1, expert, workers, False) for workers in (0, 2)]
    starts = found[0].returns / 3  # the learner stays where it starts
    np.testing.assert_allclose(found[0].expert_returns, 0 * starts, atol=1e-6)
    for one in found[1:]:
        np.testing.assert_array_equal(one.returns, found[0].returns)
        np.testing.assert_allclose(one.expert_returns, found[0].expert_returns, atol=1e-6)


def test_a_policy_and_its_expert_start_again_together_if_a_worker_is_lost(monkeypatch):
    env = us.make(Solvable, horizon=3)
    service, calls = RolloutService(env, lambda *where: None), []

    class Here:
        """A worker in this process. The first one is lost when the expert acts."""

        def call(self, method, *arguments):
            calls.append(arguments[2])
            if len(calls) == 2:
                raise WorkerLost("the worker died")
            return getattr(service, method)(*arguments)

        def close(self):
            pass

    monkeypatch.setattr(RolloutPool, "_start", lambda self: Here())
    learner = always(0.0, env)
    found = us.evaluate([learner], env, 4, 1, always(0.0, env, -1.0), 1, False)
    assert len(calls) == 4
    assert (calls[0], calls[2]) == (calls[1], calls[3])
    assert calls[0] != calls[2]
    assert len(np.unique(found.returns)) == 4


def test_the_scripted_expert_acts_stochastically_and_a_policy_does_not():
    forest = us.Forest()
    straight = always(float(np.pi / 2), forest)
    scripted = us.evaluate([straight], forest, 8, 0, "scripted").expert_returns
    policy = us.evaluate([straight], forest, 8, 0, forest.expert()).expert_returns
    assert len(np.unique(scripted)) > 1
    assert len(np.unique(policy)) == 1, "all flights of one forest start in one state"


def test_something_that_is_no_expert_is_refused():
    env = Starts()
    with pytest.raises(SpecError, match="expert is a int"):
        us.evaluate([always(0.0, env)], env, 2, expert=5)


# --- success and length -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_success_is_what_the_last_step_of_an_episode_reports(workers):
    def rate(reports, weight):
        env = us.make(Solvable, env_args={"reports": reports}, horizon=3)
        return us.evaluate([always(0.0, env, weight)], env, 20, 1, workers=workers, progress=False)

    stays = rate("is_success", 0.0)
    starts = -stays.returns[0] / 3
    np.testing.assert_array_equal(stays.success[0], starts < 0.5)
    assert 0.2 < stays.success.mean() < 0.8
    assert rate("is_success", -1.0).success.all()
    np.testing.assert_array_equal(rate("success", 0.0).success, stays.success)
    np.testing.assert_array_equal(rate("first", 0.0).success, stays.success)
    for reports in ("nothing", "unreadable"):
        told = rate(reports, 0.0)
        assert np.isnan(told.success).all()
        assert told.scores()[0].success is None


def test_only_the_last_report_counts():
    env = us.make(Solvable, horizon=3)
    away = us.evaluate([always(1.0, env)], env, 20, 1, workers=0)
    assert not away.success.any(), "it passes 0 and goes on"


def test_episode_lengths_are_counted():
    found = us.evaluate([always(float(np.pi / 2), us.Forest())] * 2, "Forest", 3)
    assert found.lengths.shape == (2, 3)
    assert found.scores()[0].length.mean == found.lengths.mean()
    env = us.make(Solvable, horizon=2)
    assert us.evaluate([always(0.0, env)], env, 2, workers=0).lengths.tolist() == [[2, 2]]


def test_a_jax_environment_reports_success_if_it_defines_one():
    forest = us.Forest()
    flights = us.rollout(forest, forest.expert(), 60, deterministic=False)
    final = flights.steps.next_obs[np.arange(60), flights.lengths - 1]
    crossed = (final[:, 2] >= 100) & (flights.returns == 100)
    assert (flights.success <= crossed).all()
    assert 0 < flights.success.mean() < 1
    host = us.rollout(forest, lambda obs: np.full((len(obs), 1), np.pi / 2), 2)
    same = us.rollout(forest, always(float(np.pi / 2), forest).policy, 2)
    np.testing.assert_array_equal(host.success, same.success)
    assert np.isnan(us.rollout("Pendulum", us.Pendulum().expert(), 2).outcomes.success).all()


def test_wilsons_interval_of_a_share():
    for successes, size in ((0, 10), (7, 10), (10, 10), (47, 50)):
        expected = stats.binomtest(successes, size).proportion_ci(0.95, method="wilson")
        assert proportion(successes, size) == pytest.approx((successes / size, expected.low, expected.high))


def test_success_rate_is_over_seeds_or_over_the_episodes_of_a_single_seed():
    shares = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    assert success_rate(shares)[:2] == pytest.approx(interval(Sample.of([0.5, 0.75, 1.0]))[:2])
    assert success_rate(shares).high == 1.0
    assert success_rate(shares[:1]) == proportion(2, 4)
    assert success_rate(shares[2:].repeat(2, axis=0)) == proportion(8, 8), "equal shares have no spread of their own"
    assert success_rate(np.full((2, 3), np.nan)) is None
    assert success_rate(np.array([[np.nan, 1.0], [np.nan, np.nan]])) == proportion(1, 1)


def test_titles_say_what_intervals_are_over():
    about = [{"episodes": 5}, {"episodes": 5}]
    returns = np.zeros((2, 7))
    assert Evaluation("x", returns, about).interval_of == "Student's t over 2 seeds, 7 episodes each"
    assert Evaluation("x", returns[:1], about[:1]).interval_of == "Student's t over 7 episodes of one seed"


def test_an_interval_says_nothing_of_a_single_episode():
    (score,) = Evaluation("x", np.ones((1, 1)), [{}], lengths=np.ones((1, 1))).scores()
    assert score.length == pytest.approx(Interval(1, np.nan, np.nan), nan_ok=True)
