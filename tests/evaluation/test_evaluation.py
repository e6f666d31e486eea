"""Returns, gaps and intervals against numbers that can be checked by hand or by SciPy."""

import numpy as np
import pytest
from scipy import stats

import understudy as us
from understudy.core.statistics import Sample, imitation_gap, interval
from understudy.evaluation.returns import Evaluation
from understudy.evaluation.returns import returns as evaluation
from understudy.policies.actor import Actor


def test_an_interval_is_students():
    values = np.random.default_rng(0).normal(10, 2, 12)
    low, high = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert interval(Sample.of(values)) == pytest.approx((values.mean(), low, high))


def test_the_gaps_interval_is_welchs():
    rng = np.random.default_rng(0)
    expert, learner = rng.normal(100, 5, 25), rng.normal(80, 20, 5)
    expected = stats.ttest_ind(expert, learner, equal_var=False).confidence_interval(0.95)
    gap = imitation_gap(Sample.of(expert), Sample.of(learner))
    assert gap == pytest.approx((expert.mean() - learner.mean(), expected.low, expected.high))


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(2000):
        found = interval(Sample.of(rng.normal(3, 1, 5)))
        inside += found.low <= 3 <= found.high
    assert inside / 2000 == pytest.approx(0.95, abs=0.015)


def test_a_single_number_has_no_interval():
    found = interval(Sample.of([4.0]))
    assert found.mean == 4
    assert np.isnan(found.low)
    assert str(found) == "4.0"
    assert interval(Sample.of([2.0, 2.0])) == (2, 2, 2)


def test_seeds_are_the_unit_and_one_seed_falls_back_to_its_episodes():
    returns = np.array([[10.0, 20.0], [30.0, 40.0], [1.0, 3.0]])
    about = [{"episodes": 5}, {"episodes": 5}, {"episodes": 10}]
    five, ten = Evaluation("x", returns, about, Sample(50.0, 1.0, 10)).scores()
    assert (five.runs, ten.runs) == (2, 1)
    assert five.learner == pytest.approx(interval(Sample.of([15.0, 35.0])))
    assert ten.learner == pytest.approx(interval(Sample.of([1.0, 3.0])))
    assert five.gap.mean == 25
    assert Evaluation("x", returns, about).scores()[0].gap is None


def test_returns_are_the_environments_own_undiscounted_sums():
    env = us.Pendulum()
    expert = Actor(env.expert(), env.spec, {"episodes": 1})
    played = us.rollout(env, env.expert(), 6, seed=4)
    obs, act = played.steps.obs, played.steps.act[..., 0]
    angle = np.arctan2(obs[..., 1], obs[..., 0])
    by_hand = -(angle**2 + 0.1 * obs[..., 2] ** 2 + 0.001 * act**2).sum(1)
    np.testing.assert_allclose(played.returns, by_hand, rtol=1e-4)
    (returns,) = us.evaluate([expert], env, 6, seed=4).returns
    again = us.rollout(env, env.expert(), 6, seed=evaluation._seeds(4, 1)[0])
    np.testing.assert_allclose(returns, again.returns)


def test_every_policy_has_starts_of_its_own_and_the_seed_decides_them():
    env = us.Pendulum()
    expert = Actor(env.expert(), env.spec, {})
    for where in (env, "Pendulum-v1"):
        first, again, other = (us.evaluate([expert, expert], where, 3, seed=s).returns for s in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert len(np.unique(np.concatenate([first, other]))) == 12


def test_the_interval_of_an_evaluation_covers_as_often_as_it_says():
    """Five runs of one policy differ by their starts alone, and the interval has to know."""
    env = us.Pendulum()
    expert = Actor(env.expert(), env.spec, {"episodes": 1})
    truth = us.rollout(env, env.expert(), 5000, seed=123).returns.mean()
    inside = 0
    for seed in range(150):
        (score,) = us.evaluate([expert] * 5, env, 10, seed=seed).scores()
        inside += score.learner.low <= truth <= score.learner.high
    assert inside / 150 == pytest.approx(0.95, abs=0.06)


def test_the_returns_are_the_same_however_many_processes_play(monkeypatch):
    demonstrations = us.load("Pendulum", episodes=2)
    learner = us.imitate(us.bc(rounds=1, gradient_steps=1, hidden=(4,)), demonstrations, env="Pendulum-v1", seeds=3)
    alone = learner.evaluate(episodes=2).returns
    monkeypatch.setattr(evaluation, "_play", lambda *job: pytest.fail("played here"))
    shared = learner.evaluate(episodes=2, workers=2).returns  # by the environment given before, which was a name
    np.testing.assert_array_equal(alone, shared)
    assert len(np.unique(alone)) > 3


def test_an_episode_that_ends_early_counts_once_and_whole():
    """Forest flights end at different times; each contributes its own score, and nothing after its end."""
    flights = us.rollout("Forest", us.Forest().expert(), 40, deterministic=False)
    after = np.arange(flights.rewards.shape[1]) >= flights.lengths[:, None]
    assert (flights.rewards[after] == 0).all()
    assert len(flights.returns) == 40
    assert len(set(flights.lengths)) > 3
    final = flights.steps.next_obs[np.arange(40), flights.lengths - 1]
    sideways = (final[:, 1] < 0) | (final[:, 1] > 100)
    np.testing.assert_allclose(flights.returns, np.where(sideways, 0, np.minimum(final[:, 2], 100)), atol=1e-3)
