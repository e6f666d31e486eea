"""Normalized scores, and errors of scores that are not allowed."""

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


def test_normalized_scores_are_0_for_a_random_policy_and_1_for_the_expert():
    np.testing.assert_allclose(expert_normalised([-1200, -150, -675], -150, -1200), [0, 1, 0.5])
    np.testing.assert_allclose(expert_normalised([0.0, 50.0, 120.0], 100.0), [0, 0.5, 1.2])
    several = expert_normalised(
        {"a": [1.0], "b": [30.0]}, {"a": [3.0, 5.0], "b": Sample(20.0, 1.0, 5)}, {"a": 0, "b": 10}
    )
    assert several == {"a": [0.25], "b": [2.0]}


@pytest.mark.parametrize(("expert", "random", "named"), [
    (-150.0, None, "expert is -150: .* random="),
    (0.0, None, "random="),
    (-150.0, -100.0, "expert is -150: .* -100"),
    ({"a": 1.0}, None, "tasks of expert are 'a'"),
    (float("nan"), None, "expert is nan"),
    (None, None, "expert is None"),
])  # fmt: skip
def test_invalid_reference_returns_are_rejected(expert, random, named):
    with pytest.raises(SettingError, match=named):
        expert_normalised([1.0, 2.0], expert, random)


@pytest.mark.parametrize(("scores", "named"), [
    ([1.0, float("nan")], r"scores\[1\] is nan"),
    ({"ant": [1.0, float("inf")]}, r"scores of task 'ant'\[1\] is inf"),
    ([], "scores is empty"),
    ({"ant": []}, "scores of task 'ant' is empty"),
    ({}, "scores has no tasks"),
    (np.zeros((5, 3)), r"scores has shape \(5, 3\)"),
    (3.0, r"scores has shape \(\)"),
    (["high", "low"], "scores is"),
    (Sample(1.0, 1.0, 5), "scores is Sample"),
])  # fmt: skip
def test_invalid_scores_are_rejected(scores, named):
    expert = {"ant": 1.0} if isinstance(scores, dict) else 1.0
    for statistic in (mean, iqm, standard_error, lambda x: imitation_gap(x, expert)):
        with pytest.raises(SettingError, match=named):
            statistic(scores)


@pytest.mark.parametrize(("call", "named"), [
    (lambda: difference([1, 2], [1, 2, 3], paired=True), "x has 2 runs and y 3"),
    (lambda: difference({"a": [1, 2]}, {"a": [1, 2, 3]}, paired=True), "x of task 'a' has 2 runs"),
    (lambda: probability_of_improvement({"a": [1]}, {"b": [1]}), "tasks of x are 'a', tasks of y are 'b'"),
    (lambda: probability_of_improvement([1.0], [np.nan]), r"y\[0\] is nan"),
    (lambda: imitation_gap({"a": [1.0]}, 5.0), "tasks of expert"),
    (lambda: imitation_gap([1.0], Sample(np.nan, 1.0, 3)), "expert is Sample"),
    (lambda: mean([1.0, 2.0], seed=-1), "seed is -1"),
    (lambda: mean([1.0, 2.0], resamples=0), "resamples is 0"),
    (lambda: bootstrap([1.0, 2.0], lambda strata: np.mean(strata[0])), r"shape \(\): shape \(10000,\)"),
    (lambda: bootstrap([1.0, 2.0], averaged(lambda x, axis: x.sum(axis) * np.inf)), "is inf"),
])  # fmt: skip
def test_invalid_arguments_are_rejected(call, named):
    with pytest.raises(SettingError, match=named):
        call()
