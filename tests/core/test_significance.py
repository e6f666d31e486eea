"""Significance tests (Welch's t, one- and two-sided, Holm's correction) and the interval of a proportion."""

import numpy as np
import pytest
from scipy import stats

from understudy.core.statistics import Sample, holm, p_different, p_less, proportion


def test_p_less_is_welchs_one_sided_test():
    rng = np.random.default_rng(0)
    for ours, theirs in ((rng.normal(9, 2, 5), rng.normal(10, 1, 7)), (rng.normal(3, 1, 4), rng.normal(0, 5, 3))):
        a, b = Sample.of(ours), Sample.of(theirs)
        expected = stats.ttest_ind_from_stats(*a, *b, equal_var=False, alternative="less").pvalue
        assert p_less(a, b) == pytest.approx(expected, rel=1e-9)
        assert p_less(a, b) + p_less(b, a) == pytest.approx(1)


def test_p_less_of_samples_without_spread_compares_the_means():
    low, high = Sample(1.0, 0.0, 5), Sample(2.0, 0.0, 5)
    assert (p_less(low, high), p_less(high, low), p_less(low, low)) == (0, 1, 1)


def test_p_different_is_welchs_two_sided_test():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0, 1, 5), rng.normal(1, 3, 7)
    a, b = Sample.of(first), Sample.of(second)
    assert p_different([a], [b]) == pytest.approx(stats.ttest_ind(first, second, equal_var=False).pvalue)
    assert p_different([a] * 4, [b] * 4) < p_different([a], [b])
    assert p_different([Sample(1.0, 0.0, 5)], [Sample(1.0, 0.0, 5)]) == 1
    assert np.isnan(p_different([Sample.of([1.0])], [b]))


def test_holms_correction():
    """By hand: 4 × 0.005, 3 × 0.01, 2 × 0.03, and 1 × 0.04, which may not be below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.9]) == pytest.approx([0.8, 0.9])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []


def test_holms_correction_keeps_the_order_and_only_raises():
    for p_values in np.random.default_rng(0).uniform(size=(50, 6)) ** 3:
        corrected = np.array(holm(p_values))
        assert (np.diff(corrected[np.argsort(p_values)]) >= 0).all()
        assert (corrected >= p_values).all()
        assert (corrected <= np.minimum(1, 6 * p_values) + 1e-12).all()


def test_the_standard_error_is_scipys():
    values = np.random.default_rng(0).normal(size=9)
    assert Sample.of(values).standard_error == pytest.approx(stats.sem(values))
    assert np.isnan(Sample.of([1.0]).standard_error)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (5, 10), (1, 1), (7, 40)])
def test_a_proportion_has_wilson_s_interval(successes: int, trials: int) -> None:
    found = proportion(successes, trials)
    expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    assert found.mean == successes / trials
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_interval_of_a_proportion_covers_it() -> None:
    random = np.random.default_rng(0)
    for share in (0.05, 0.3, 0.5):
        found = [proportion(float(wins), 20) for wins in random.binomial(20, share, 2000)]
        covered = np.mean([one.low <= share <= one.high for one in found])
        assert covered > 0.9


def test_no_trials_say_nothing() -> None:
    found = proportion(0, 0)
    assert np.isnan(found.mean)
    assert (found.low, found.high) == (0.0, 1.0)
