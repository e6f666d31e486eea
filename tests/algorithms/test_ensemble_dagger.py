"""EnsembleDAgger: the expert acts and answers where the ensemble is in doubt; what gated learners share."""

import itertools

import jax
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import SettingError
from understudy.experts.functions import FEWEST

PENDULUM = us.make("Pendulum")
TINY = {"rounds": 3, "gradient_steps": 20, "batch_size": 8, "hidden": (8,), "episodes_per_round": 1, "lr": 1e-2}
GATED = [us.ensemble_dagger, us.thrifty_dagger, us.hg_dagger]


def train(algorithm, expert="scripted", env=PENDULUM, demonstrations="Pendulum", **options):
    """The states after each round, on the host, and the result."""
    states = []

    def visit(done, current):
        states.append(jax.device_get(jax.tree.map(lambda x: x[0], current())))

    options = {"episodes": 1, "holdout": 0.0, **options}
    return states, us.imitate(algorithm, demonstrations, env, expert, visit=visit, **options)


@pytest.fixture(scope="module")
def run():
    return train(us.ensemble_dagger(**TINY, doubt=0.15))


def rows(state, first=0):
    return state.aggregated.steps.obs[first : int(state.aggregated.size)]


def test_the_expert_answers_only_where_the_members_disagree(run):
    states, result = run
    assert result.metrics["queries"][0, 0] == 0
    assert [int(state.aggregated.size) for state in states] == result.metrics["queries"][0].tolist()
    for before, after in itertools.pairwise(states):
        new = rows(after, int(before.aggregated.size))
        assert 0 < len(new) < PENDULUM.spec.horizon
        assert min(float(before.doubt(obs)) for obs in new[:20]) > 0.15 - 1e-5


def test_the_doubt_is_the_standard_deviation_of_the_members(run):
    state, obs = run[0][-1], np.array([0.3, -0.9, 1.0], np.float32)
    net, seen = state.members.policy.net, state.normalization.encode_obs(obs)
    acts = []
    for k in range(5):
        hidden = np.maximum(seen @ net.weights[0][k] + net.biases[0][k], 0)
        acts.append(np.tanh(hidden @ net.weights[1][k] + net.biases[1][k]))
    assert float(state.doubt(obs)) == pytest.approx(float(np.std(acts)), abs=1e-5)
    np.testing.assert_allclose(run[1].policy(obs[None])[0], 2 * np.mean(acts, 0), atol=1e-5)


def test_each_member_has_a_bootstrap_of_its_own(run):
    counts = np.asarray(run[0][0].members.counts)
    assert counts.shape == (5, 200 + 400)
    np.testing.assert_allclose(counts.mean(1), 1, atol=0.25)
    np.testing.assert_allclose(counts.var(1), 1, atol=0.4)
    assert len(np.unique(counts, axis=0)) == 5


@pytest.mark.parametrize(("doubt", "steps"), [(0.0, 400), (10.0, 0)])
def test_the_threshold_is_between_asking_everywhere_and_nowhere(doubt, steps):
    _, result = train(us.ensemble_dagger(**TINY, doubt=doubt))
    assert result.metrics["queries"][0, -1] == steps
    assert result.metrics["expert_share"][0, -1] == bool(steps)


def test_answers_of_an_episode_are_limited_and_so_is_the_memory():
    states, result = train(us.ensemble_dagger(**TINY, doubt=0.0, answers_per_episode=7))
    assert result.metrics["queries"][0].tolist() == [0, 7, 14]
    assert states[-1].aggregated.steps.t.tolist() == [*range(7), *range(7)]


def test_discrete_actions_on_the_host_and_the_budget():
    asked = []

    def balance(obs):
        asked.append(len(obs))
        return (obs[:, 2] + 0.5 * obs[:, 3] > 0).astype(np.int32)

    shown = us.record("CartPole-v1", balance, episodes=1, workers=0)
    asked.clear()
    learner = us.ensemble_dagger(**{**TINY, "episodes_per_round": 2}, doubt=0.02)
    expert = us.Expert(balance).budget(30)
    states, result = train(learner, expert, "CartPole-v1", shown, workers=0)
    answered = int(np.nanmax(result.metrics["queries"]))
    assert 0 < answered == sum(asked) - FEWEST <= 30
    known = jax.tree.map(lambda x: x[:answered], states[-1].aggregated.steps)
    np.testing.assert_array_equal(known.act, balance(known.obs))


@pytest.mark.parametrize("learner", GATED)
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"ensemble_size": 1}, "ensemble_size is 1: a whole number of at least 2 is needed"),
        ({"ask": "novel"}, "has a gate, which decides where the expert answers: omit ask"),
        ({"queries_per_round": 5}, "has a gate, which decides where the expert answers: omit queries_per_round"),
        ({"answers_per_episode": 0}, "answers_per_episode is 0: a whole number of at least 1 is needed"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"gradient_steps": 0}, "gradient_steps is 0"),
    ],
)
def test_impossible_settings_are_refused(learner, setting, words):
    with pytest.raises(SettingError, match=words):
        learner(**setting)


def test_a_negative_doubt_is_refused():
    with pytest.raises(SettingError, match="doubt is -1"):
        us.ensemble_dagger(doubt=-1.0)
