"""Asking: the states of a round at which the expert is queried, chosen after the episodes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import understudy as us
from understudy.core.errors import AlgorithmError, SettingError
from understudy.core.types import Dataset, Transition
from understudy.game import asking
from understudy.policies.normalization import Normalization

ON_Q = [us.dagger, us.daequil, us.aggrevate]


class State(NamedTuple):
    normalization: Normalization
    aggregated: Dataset


def steps_at(*places):
    """Steps whose observation is one number."""
    obs = jnp.array(places, jnp.float32)[:, None]
    flag, number = jnp.zeros(len(places), bool), jnp.zeros(len(places), jnp.int32)
    return Transition(jnp.arange(len(places)), obs, obs, obs, flag, flag, flag, number)


def state_after(*answered, std=1.0):
    """A state in which these observations were answered; two more rows are padding."""
    aggregated = Dataset(steps_at(*answered, 7.0, 9.0), jnp.asarray(len(answered)))
    return State(Normalization(jnp.zeros(1), jnp.array([std]), None, None), aggregated)


def ask(algorithm, state, *places, real=None, seed=0):
    """The observations that are asked about, in order."""
    steps = steps_at(*places)
    real = jnp.ones(len(places), bool) if real is None else jnp.array(real)
    found = jax.jit(asking.questions)(algorithm, state, steps, real, jax.random.key(seed))
    assert sorted(np.asarray(found.order).tolist()) == list(range(len(places)))
    assert np.asarray(real)[np.asarray(found.order)[: int(real.sum())]].all()  # padding comes last
    return np.asarray(steps.obs)[np.asarray(found.order)[: int(found.count)], 0].tolist()


def test_novel_states_are_asked_farthest_first():
    """From 0 the farthest is 10; then 4, which is 4 from 0 and 6 from 10; then 8 and 2, 2 from their neighbours."""
    learner = us.dagger(ask="novel")
    assert ask(learner, state_after(0.0), 1.0, 2.0, 4.0, 8.0, 10.0) == [10.0, 4.0, 2.0, 8.0, 1.0]


def test_the_first_novel_state_is_the_first_of_the_round_if_none_was_answered():
    assert ask(us.dagger(ask="novel"), state_after(), 3.0, 4.0, 9.0) == [3.0, 9.0, 4.0]


def test_a_state_that_was_answered_or_chosen_is_not_novel():
    assert ask(us.dagger(ask="novel"), state_after(5.0), 5.0, 6.0, 6.0, 5.0) == [6.0]
    assert ask(us.dagger(ask="novel"), state_after(5.0), 5.0, 5.0) == []


def test_novelty_is_measured_in_standardized_observations():
    assert ask(us.dagger(ask="novel"), state_after(0.0, std=1e4), 1.0, 20.0) == [20.0]


def test_padding_is_never_asked_about():
    real = [True, False, True, False]
    assert ask(us.dagger(ask="novel"), state_after(0.0), 1.0, 50.0, 2.0, 60.0, real=real) == [2.0, 1.0]
    assert sorted(ask(us.dagger(ask="spread"), state_after(), 1.0, 50.0, 2.0, 60.0, real=real)) == [1.0, 2.0]


def test_a_limit_keeps_the_first_questions():
    places = (1.0, 2.0, 4.0, 8.0, 10.0)
    assert ask(us.dagger(ask="novel", queries_per_round=2), state_after(0.0), *places) == [10.0, 4.0]
    assert ask(us.dagger(queries_per_round=2), state_after(0.0), *places) == [1.0, 2.0]
    assert len(ask(us.dagger(ask="spread", queries_per_round=2), state_after(0.0), *places)) == 2


def test_spread_states_are_drawn_uniformly_without_repetition():
    learner = us.dagger(ask="spread", queries_per_round=2)
    drawn = [ask(learner, state_after(), *range(5), seed=seed) for seed in range(400)]
    assert all(len(set(one)) == 2 for one in drawn)
    counts = np.bincount(np.array(drawn, int).ravel(), minlength=5)
    assert (np.abs(counts - 160) < 5 * np.sqrt(400 * 0.4 * 0.6)).all()


@pytest.mark.parametrize("kind", ON_Q)
def test_every_on_q_algorithm_has_the_settings_and_checks_them(kind):
    learner = kind(**{**kind.small, "ask": "novel", "queries_per_round": 3, "rounds": 5})
    assert asking.chooses(learner)
    assert not asking.chooses(kind())
    assert asking.most_answers(learner, 50) == 4 * 3
    assert asking.most_answers(kind(rounds=3, episodes_per_round=2), 50) == 2 * 2 * 50
    assert asking.most_answers(kind(rounds=1), 50) == 1
    with pytest.raises(SettingError, match="ask is 'best': choose one of 'all', 'spread', 'novel'"):
        kind(ask="best")
    with pytest.raises(SettingError, match="queries_per_round is 0"):
        kind(queries_per_round=0)


def test_a_gate_and_asking_exclude_each_other():
    with pytest.raises(SettingError, match="mixing lets the expert act"):
        us.dagger(mixing=0.5, ask="novel")

    class Gated(us.dagger):
        @property
        def gated(self):
            return True

    with pytest.raises(AlgorithmError, match="dagger has a gate"):
        asking.chooses(Gated(ask="spread"))


def test_every_way_of_asking_has_a_reason():
    assert set(asking.REASONS) == {"all", "spread", "novel"}
