"""What scores are, what is refused, and the scale from a random policy to the expert."""

import numpy as np
import pytest

from understudy.core.errors import SettingError
from understudy.core.statistics import Sample
from understudy.evaluation.intervals import (
    averaged,
    bootstrap,
    difference,
    imitation_gap,
    iqm,
    mean,
    probability_of_improvement,
    standard_error,
)
from understudy.evaluation.scores import expert_normalised


def test_normalised_scores_are_0_for_a_random_policy_and_1_for_the_expert():
    np.testing.assert_allclose(expert_normalised([-1200, -150, -675], -150, -1200), [0, 1, 0.5])
    np.testing.assert_allclose(expert_normalised([0.0, 50.0, 120.0], 100.0), [0, 0.5, 1.2])
    several = expert_normalised(
        {"a": [1.0], "b": [30.0]}, {"a": [3.0, 5.0], "b": Sample(20.0, 1.0, 5)}, {"a": 0, "b": 10}
    )
    assert several == {"a": [0.25], "b": [2.0]}


@pytest.mark.parametrize(("expert", "random", "message"), [
    (-150.0, None, "expert is -150, and no share of it can be taken: give random="),
    (0.0, None, "give random="),
    (-150.0, -100.0, "expert is -150, not above random, -100"),
    ({"a": 1.0}, None, "tasks of scores are one without a name, those of expert 'a'"),
    (float("nan"), None, "expert is nan"),
    (None, None, "expert is None"),
])  # fmt: skip
def test_a_scale_that_means_nothing_is_refused(expert, random, message):
    with pytest.raises(SettingError, match=message):
        expert_normalised([1.0, 2.0], expert, random)


@pytest.mark.parametrize(("scores", "message"), [
    ([1.0, float("nan")], r"scores\[1\] is nan: score the run's last good policy"),
    ({"ant": [1.0, float("inf")]}, r"scores of task 'ant'\[1\] is inf"),
    ([], "scores is empty"),
    ({"ant": []}, "scores of task 'ant' is empty"),
    ({}, "scores has no tasks"),
    (np.zeros((5, 3)), r"shape \(5, 3\): one number for each run"),
    (3.0, r"shape \(\)"),
    (["high", "low"], "an array of numbers is needed"),
    (Sample(1.0, 1.0, 5), "the score of each run is needed"),
])  # fmt: skip
def test_scores_that_are_none_are_refused_by_name(scores, message):
    finders = [mean, iqm, standard_error, lambda x: imitation_gap(x, 1.0 if not isinstance(x, dict) else {"ant": 1.0})]
    for find in finders:
        with pytest.raises(SettingError, match=message):
            find(scores)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: difference([1, 2], [1, 2, 3], paired=True), "x has 2 runs and y 3: paired=True needs the same seeds"),
    (lambda: difference({"a": [1, 2]}, {"a": [1, 2, 3]}, paired=True), "x of task 'a' has 2 runs"),
    (lambda: probability_of_improvement({"a": [1]}, {"b": [1]}), "tasks of x are 'a', those of y 'b': the same"),
    (lambda: probability_of_improvement([1.0], [np.nan]), r"y\[0\] is nan"),
    (lambda: imitation_gap({"a": [1.0]}, 5.0), "those of expert one without a name"),
    (lambda: imitation_gap([1.0], Sample(np.nan, 1.0, 3)), "a finite mean"),
    (lambda: mean([1.0, 2.0], seed=-1), "seed is -1"),
    (lambda: mean([1.0, 2.0], resamples=0), "resamples is 0"),
    (lambda: bootstrap([1.0, 2.0], lambda strata: np.mean(strata[0])), r"returned shape \(\) where \(10000,\)"),
    (lambda: bootstrap([1.0, 2.0], averaged(lambda x, axis: x.sum(axis) * np.inf)), "of the scores is inf"),
])  # fmt: skip
def test_what_does_not_fit_together_is_refused_by_name(call, message):
    with pytest.raises(SettingError, match=message):
        call()
