"""Returns, imitation gaps and Student's t intervals, compared with SciPy and with hand computations."""

import numpy as np
import pytest
from scipy import stats

import understudy as us
from understudy.core.errors import SettingError
from understudy.core.statistics import Sample, imitation_gap, interval
from understudy.evaluation import returns as evaluation
from understudy.evaluation.returns import Evaluation
from understudy.policies.actor import Actor


def test_interval_is_students_t():
    values = np.random.default_rng(0).normal(10, 2, 12)
    low, high = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert interval(Sample.of(values)) == pytest.approx((values.mean(), low, high))


def test_gap_interval_is_welchs_t():
    rng = np.random.default_rng(0)
    expert, learner = rng.normal(100, 5, 25), rng.normal(80, 20, 5)
    expected = stats.ttest_ind(expert, learner, equal_var=False).confidence_interval(0.95)
    gap = imitation_gap(Sample.of(expert), Sample.of(learner))
    assert gap == pytest.approx((expert.mean() - learner.mean(), expected.low, expected.high))


def test_interval_covers_the_mean_95_times_in_100():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(2000):
        found = interval(Sample.of(rng.normal(3, 1, 5)))
        inside += found.low <= 3 <= found.high
    assert inside / 2000 == pytest.approx(0.95, abs=0.015)


def test_single_value_has_no_interval():
    found = interval(Sample.of([4.0]))
    assert found.mean == 4
    assert np.isnan(found.low)
    assert str(found) == "4.0"
    assert interval(Sample.of([2.0, 2.0])) == (2, 2, 2)


def test_intervals_are_over_seeds_or_over_the_episodes_of_a_single_seed():
    returns = np.array([[10.0, 20.0], [30.0, 40.0], [1.0, 3.0]])
    about = [{"episodes": 5}, {"episodes": 5}, {"episodes": 10}]
    five, ten = Evaluation("x", returns, about, Sample(50.0, 1.0, 10)).scores()
    assert (five.runs, ten.runs) == (2, 1)
    assert five.learner == pytest.approx(interval(Sample.of([15.0, 35.0])))
    assert ten.learner == pytest.approx(interval(Sample.of([1.0, 3.0])))
    assert five.gap.mean == 25
    assert Evaluation("x", returns, about).scores()[0].gap is None


def test_returns_are_undiscounted_sums_of_the_task_reward():
    env = us.Pendulum()
    expert = Actor(env.expert(), env.spec, {"episodes": 1})
    episodes = us.rollout(env, env.expert(), 6, seed=4)
    obs, act = episodes.steps.obs, episodes.steps.act[..., 0]
    angle = np.arctan2(obs[..., 1], obs[..., 0])
    by_hand = -(angle**2 + 0.1 * obs[..., 2] ** 2 + 0.001 * act**2).sum(1)
    np.testing.assert_allclose(episodes.returns, by_hand, rtol=1e-4)
    (returns,) = us.evaluate([expert], env, 6, seed=4).returns
    again = us.rollout(env, env.expert(), 6, seed=evaluation._policy_seeds(4, 1)[0])
    np.testing.assert_allclose(returns, again.returns)


@pytest.mark.parametrize("policies", [[], lambda obs: obs, [lambda obs: obs], None])
def test_something_that_is_no_list_of_policies_is_refused(policies):
    with pytest.raises(SettingError, match="give a list of policies"):
        us.evaluate(policies, "CartPole-v1")


def test_initial_states_differ_between_policies_and_depend_on_the_seed():
    env = us.Pendulum()
    expert = Actor(env.expert(), env.spec, {})
    for one in (env, "Pendulum-v1"):
        first, again, other = (us.evaluate([expert, expert], one, 3, seed=s, workers=0).returns for s in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert len(np.unique(np.concatenate([first, other]))) == 12


def test_interval_of_an_evaluation_covers_the_mean_95_times_in_100():
    """Five runs of one policy differ only in their initial states."""
    env = us.Pendulum()
    expert = Actor(env.expert(), env.spec, {"episodes": 1})
    truth = us.rollout(env, env.expert(), 5000, seed=123).returns.mean()
    inside = 0
    for seed in range(150):
        (score,) = us.evaluate([expert] * 5, env, 10, seed=seed).scores()
        inside += score.learner.low <= truth <= score.learner.high
    assert inside / 150 == pytest.approx(0.95, abs=0.06)


@pytest.mark.slow
def test_returns_do_not_depend_on_the_number_of_processes(monkeypatch):
    demonstrations = us.load("Pendulum", episodes=2)
    learner = us.imitate(us.bc(rounds=1, gradient_steps=1, hidden=(4,)), demonstrations, env="Pendulum-v1", seeds=3)
    alone = learner.evaluate(episodes=2, workers=0).returns
    monkeypatch.setattr(evaluation, "rollout", lambda *job: pytest.fail("not in a worker process"))
    shared = learner.evaluate(episodes=2, workers=2).returns  # in the environment of the training, given by name
    np.testing.assert_array_equal(alone, shared)
    assert len(np.unique(alone)) > 3


def test_rewards_after_the_end_of_an_episode_do_not_count():
    """Forest flights end at different times."""
    flights = us.rollout("Forest", us.Forest().expert(), 40, deterministic=False)
    after = np.arange(flights.rewards.shape[1]) >= flights.lengths[:, None]
    assert (flights.rewards[after] == 0).all()
    assert len(flights.returns) == 40
    assert len(set(flights.lengths)) > 3
    final = flights.steps.next_obs[np.arange(40), flights.lengths - 1]
    sideways = (final[:, 1] < 0) | (final[:, 1] > 100)
    np.testing.assert_allclose(flights.returns, np.where(sideways, 0, np.minimum(final[:, 2], 100)), atol=1e-3)
