"""Bootstrap statistics over runs, compared with SciPy, by simulation, and by their invariances."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from understudy.core.statistics import Sample, interval
from understudy.evaluation import intervals
from understudy.evaluation.intervals import (
    averaged,
    bootstrap,
    difference,
    imitation_gap,
    iqm,
    mean,
    pooled,
    probability_of_improvement,
    standard_error,
)

PAGE = (Path(__file__).parents[2] / "docs/statistics.md").read_text(encoding="utf-8")
numbers = st.lists(st.integers(-50, 50).map(float), min_size=2, max_size=8)
tasks = st.dictionaries(st.sampled_from("abc"), numbers, min_size=1)
quick = settings(max_examples=20, deadline=None)


def runs(seed, shape=(5, 5), spread=1.0):
    values = np.random.default_rng(seed).normal(0, spread, shape)
    return {f"task {i}": row for i, row in enumerate(values)}


def width(estimate):
    low, high = estimate.interval
    return high - low


def normal(rng, size):
    return rng.normal(3, 1, size)


def failing(rng, size):
    return np.where(rng.random(size) < 0.2, 0.2, 1.0) + rng.normal(0, 0.05, size)


def coverage(count, find, draw, truth, times=600):
    rng = np.random.default_rng(1000 + count)
    inside = 0
    for seed in range(times):
        low, high = find(draw(rng, count), seed)
        inside += low <= truth <= high
    return inside / times


def by_bootstrap(scores, seed):
    return mean(scores, seed=seed, resamples=1000).interval


def by_student(scores, seed):
    return interval(Sample.of(scores))[1:]


# --- values ---------------------------------------------------------------------------------------------------------


def test_mean_and_standard_error_give_every_task_the_same_weight():
    scores = {"a": [1.0, 3.0], "b": [10.0, 20.0, 30.0, 40.0]}
    assert mean(scores).value == (2 + 25) / 2
    assert standard_error(scores["b"]) == pytest.approx(stats.sem(scores["b"]))
    assert standard_error(scores) == pytest.approx(np.hypot(stats.sem(scores["a"]), stats.sem(scores["b"])) / 2)


def test_interval_of_the_mean_is_scipys_percentile_bootstrap():
    values = np.random.default_rng(3).gamma(2.0, size=12)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=50_000, rng=1).confidence_interval
    assert mean(values, resamples=50_000).interval == pytest.approx((theirs.low, theirs.high), abs=0.02)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 8, 25])
def test_interquartile_mean_is_scipys_trimmed_mean_of_all_runs(size):
    values = np.random.default_rng(size).normal(size=(3, size))
    found = iqm(dict(zip("abc", values, strict=True)))
    assert found.value == pytest.approx(stats.trim_mean(values, 0.25, axis=None))
    assert found.interval[0] < found.value < found.interval[1]


def test_interval_of_the_interquartile_mean_is_that_of_trimmed_resamples():
    values = runs(0, (3, 6))
    trimmed = pooled(lambda x, axis: stats.trim_mean(x, 0.25, axis=axis))
    assert iqm(values, resamples=500).interval == pytest.approx(bootstrap(values, trimmed, resamples=500).interval)


@quick
@given(numbers, numbers)
def test_probability_of_improvement_is_mann_whitney_u_over_nm(x, y):
    expected = stats.mannwhitneyu(x, y).statistic / (len(x) * len(y))
    assert probability_of_improvement(x, y, resamples=10).value == pytest.approx(expected)


def test_interval_of_the_probability_is_that_of_u_over_resamples():
    rng = np.random.default_rng(5)
    x, y = rng.integers(0, 6, 7), rng.integers(0, 6, 5)
    draws = np.random.default_rng(0)
    chosen = zip(x[draws.integers(7, size=(300, 7))], y[draws.integers(5, size=(300, 5))], strict=True)
    shares = [stats.mannwhitneyu(a, b).statistic / 35 for a, b in chosen]
    expected = np.quantile(shares, [0.025, 0.975])
    assert probability_of_improvement(x, y, seed=0, resamples=300).interval == pytest.approx(expected)


def test_bootstrap_of_pooled_averaged_and_custom_statistics():
    scores = {"a": [0.0, 1.0, 2.0], "b": [10.0, 10.0, 10.0, 10.0]}
    assert bootstrap(scores, pooled(np.median)).value == 10
    assert bootstrap(scores, averaged(np.median)).value == 5.5
    assert bootstrap(scores, averaged(np.median)).interval == (5.0, 6.0)
    assert bootstrap(scores, lambda found: found[0].max(axis=-1)).value == 2


def test_complete_separation_has_probability_one():
    assert probability_of_improvement([3.0, 4.0], [1.0, 2.0]) == (1.0, (1.0, 1.0))


# --- coverage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "least", "most"), [(5, 0.82, 0.88), pytest.param(20, 0.91, 0.95, marks=pytest.mark.slow)]
)
def test_bootstrap_coverage_is_as_documented(count, least, most):
    assert least <= coverage(count, by_bootstrap, normal, 3.0, times=2000) <= most


@pytest.mark.slow
def test_coverage_table_of_the_page_agrees_with_simulations():
    rows = [[float(x) for x in row.split("|")] for row in re.findall(r"^\| (\d+ \| 0\.[\d. |]*) \|$", PAGE, re.M)]
    assert [row[0] for row in rows] == [3, 5, 10, 20]
    for count, one, student, five, fails, found in rows:
        n = int(count)
        assert coverage(n, by_bootstrap, normal, 3.0) == pytest.approx(one, abs=0.04)
        assert coverage(n, by_student, normal, 3.0) == pytest.approx(student, abs=0.04)
        several = coverage(n, by_bootstrap, lambda rng, n: {str(k): normal(rng, n) for k in range(5)}, 3.0, times=300)
        assert several == pytest.approx(five, abs=0.05)
        assert coverage(n, by_bootstrap, failing, 0.84) == pytest.approx(fails, abs=0.05)
        if n == 5:
            assert coverage(n, by_student, failing, 0.84) == pytest.approx(fails, abs=0.05)  # little better
        freedom = 2 * n - 2
        power = stats.nct.sf(stats.t.ppf(0.975, freedom), freedom, found * np.sqrt(n / 2))
        assert power == pytest.approx(0.8, abs=0.005)


def test_interval_of_a_difference_covers_zero_for_equal_distributions():
    def between(two, seed):
        return difference(*two, seed=seed, resamples=1000).interval

    assert coverage(20, between, lambda rng, n: rng.normal(0, 1, (2, n)), 0.0) == pytest.approx(0.94, abs=0.03)


# --- invariances ------------------------------------------------------------------------------------------------------


@quick
@given(tasks, st.integers(-9, 9), st.sampled_from([0.25, 2.0, 8.0]), st.integers(0, 99))
def test_estimates_shift_and_scale_with_the_scores(scores, shift, scale, seed):
    moved = {task: shift + scale * np.array(values) for task, values in scores.items()}
    for find in (mean, iqm):
        before, after = (find(x, seed=seed, resamples=50) for x in (scores, moved))
        assert after.value == pytest.approx(shift + scale * before.value)
        assert after.interval == pytest.approx(shift + scale * np.array(before.interval))
    same = probability_of_improvement(moved, {task: values[1:] for task, values in moved.items()}, resamples=20)
    assert same == probability_of_improvement(scores, {task: x[1:] for task, x in scores.items()}, resamples=20)


@quick
@given(tasks, st.randoms(use_true_random=False))
def test_comparisons_are_antisymmetric(scores, random):
    other = {task: [random.choice(values) for _ in values] for task, values in scores.items()}
    for paired in (False, True):
        there = probability_of_improvement(scores, other, paired=paired, resamples=10).value
        back = probability_of_improvement(other, scores, paired=paired, resamples=10).value
        assert there + back == pytest.approx(1)
        assert difference(scores, other, paired=paired, resamples=10).value == pytest.approx(
            -difference(other, scores, paired=paired, resamples=10).value
        )
    assert probability_of_improvement(scores, scores, resamples=10).value == pytest.approx(0.5)


def test_intervals_depend_on_the_seed_and_not_on_the_order_of_tasks():
    scores = runs(0)
    reordered = dict(reversed(scores.items()))
    for find in (mean, iqm, lambda x, seed: probability_of_improvement(x, runs(1), seed=seed)):
        assert find(scores, seed=4) == find(reordered, seed=4)
    assert mean(scores, seed=4).interval != mean(scores, seed=5).interval
    assert mean(scores, seed=4).value == mean(scores, seed=5).value


def test_resampling_is_within_tasks():
    scores = {"small": [0.0, 0.1, 0.2, 0.3], "large": [1000.0, 1000.1, 1000.2, 1000.3]}
    found = mean(scores)
    assert width(found) < 0.3
    calls = []
    bootstrap(scores, lambda strata: calls.append(strata) or np.zeros(strata[0].shape[:-1]), resamples=200)
    large, small = calls[1]
    assert (large.shape, small.shape) == ((200, 4), (200, 4))
    assert large.min() >= 1000
    assert small.max() <= 0.3


def test_pairing_narrows_the_interval_of_correlated_runs():
    rng = np.random.default_rng(0)
    seeds = rng.normal(0, 10, 10)
    x, y = seeds + rng.normal(1, 1, 10), seeds + rng.normal(0, 1, 10)
    unpaired, paired = difference(x, y), difference(x, y, paired=True)
    assert unpaired.value == pytest.approx(paired.value)
    assert width(paired) < width(unpaired) / 4
    assert probability_of_improvement(x, y, paired=True).value == np.mean(x > y)
    assert probability_of_improvement(x, y, paired=True).value > probability_of_improvement(x, y).value


def test_pairs_that_share_nothing_gain_nothing():
    x, y = np.random.default_rng(0).normal(size=(2, 2000))
    ratio = width(difference(x, y, paired=True, resamples=2000)) / width(difference(x, y, resamples=2000))
    assert ratio == pytest.approx(1, abs=0.1)


# --- the expert -------------------------------------------------------------------------------------------------------


def test_gap_to_an_exact_return_is_a_shifted_mean():
    scores = runs(2)["task 0"]
    low, high = mean(scores, seed=3).interval
    found = imitation_gap(scores, 100.0, seed=3)
    assert found.value == pytest.approx(100 - scores.mean())
    assert found.interval == pytest.approx((100 - high, 100 - low))


def test_spread_of_the_expert_widens_the_interval_of_the_gap():
    rng = np.random.default_rng(0)
    scores, episodes = rng.normal(50, 1, 20), rng.normal(100, 10, 30)
    exact, resampled = imitation_gap(scores, episodes.mean()), imitation_gap(scores, episodes)
    drawn = imitation_gap(scores, Sample.of(episodes))
    assert exact.value == pytest.approx(resampled.value) == pytest.approx(drawn.value)
    assert width(resampled) > 3 * width(exact)
    error = np.hypot(stats.sem(scores), stats.sem(episodes))
    assert width(resampled) == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert width(drawn) == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_gap_uses_the_expert_of_each_task():
    found = imitation_gap({"a": [1.0, 2.0], "b": [10.0, 30.0]}, {"b": 50.0, "a": [2.0, 4.0]})
    assert found.value == (1.5 + 30) / 2


# --- single runs ------------------------------------------------------------------------------------------------------


def test_a_single_run_has_no_interval():
    assert mean([4.0]) == (4.0, None)
    assert iqm({"a": [4.0], "b": [1.0, 2.0]}).interval is None
    assert standard_error({"a": [4.0], "b": [1.0, 2.0]}) is None
    for paired in (False, True):
        assert difference([4.0], [1.0], paired=paired) == (3.0, None)
        assert probability_of_improvement([4.0], [1.0], paired=paired) == (1.0, None)
    assert probability_of_improvement([4.0, 0.0], [1.0]) == (0.5, None)
    assert imitation_gap([4.0], 5.0) == (1.0, None)
    assert imitation_gap([4.0, 4.0], [5.0]) == imitation_gap([4.0, 4.0], Sample.of([5.0])) == (1.0, None)
    assert str(mean([4.0])) == "4.000"


# --- the page ---------------------------------------------------------------------------------------------------------


def test_numbers_of_the_pages_example_are_right():
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.S) if "intervals" in code)
    printed = []
    exec(code, {"print": printed.append})
    expected = [
        [float(x) for x in re.findall(r"-?[\d.]+", line)] for line in re.findall(r"^print.*  # (.*)$", code, re.M)
    ]
    assert len(printed) == len(expected) == 7
    for estimate, (value, *ends) in zip(printed, expected, strict=True):
        assert estimate.value == pytest.approx(value, abs=0.001)
        assert estimate.interval == pytest.approx(ends, rel=0.02)
    assert [round(width(estimate), -1) for estimate in printed[3:5]] == [640, 40]
    assert str(printed[0]) == "0.856 [0.738, 0.929]"


def test_the_page_documents_every_statistic():
    public = ["expert_normalised", *(name for name, value in vars(intervals).items() if _is_statistic(name, value))]
    assert len(public) >= 8
    assert [name for name in public if f"`{name}" not in PAGE] == []


def _is_statistic(name, value):
    return getattr(value, "__module__", "") == intervals.__name__ and callable(value) and name[0] != "_"
