"""Means with 95% confidence intervals (Student's t, Welch's for differences) and tests between two means."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit


class Interval(NamedTuple):
    """An estimate and its 95% confidence interval. Both ends are NaN for a single number."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if not np.isfinite(self.low):
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} ± {(self.high - self.low) / 2:.1f}"


class Sample(NamedTuple):
    """Mean, standard deviation and size of a sample of returns."""

    mean: float
    std: float
    size: int

    @classmethod
    def of(cls, values: Any) -> "Sample":
        array = np.asarray(values, np.float64)
        return cls(float(array.mean()), float(array.std(ddof=1)) if array.size > 1 else float("nan"), array.size)

    @property
    def standard_error(self) -> float:
        return self.std / self.size**0.5


def interval(sample: Sample) -> Interval:
    """The mean of a sample with its 95% confidence interval."""
    return _interval(sample.mean, [(sample.std, sample.size)])


def difference(x: Sample, y: Sample) -> Interval:
    """The mean of one sample minus that of another, independent one, with its 95% confidence interval (Welch)."""
    return _interval(x.mean - y.mean, [(x.std, x.size), (y.std, y.size)])


def mean_of_means(samples: Sequence[Sample]) -> Interval:
    """The mean of the means of independent samples, one for each task, with its 95% confidence interval (Welch)."""
    mean = sum(sample.mean for sample in samples) / len(samples)
    return _interval(mean, [(sample.std / len(samples), sample.size) for sample in samples])


def imitation_gap(expert: Sample, learner: Sample) -> Interval:
    """J(π_E) − J(π) with its 95% confidence interval, for independent episodes of both."""
    return difference(expert, learner)


def proportion(successes: float, trials: int) -> Interval:
    """A share of trials with Wilson's 95% confidence interval, which is never empty or outside 0 to 1."""
    if trials == 0:
        return Interval(float("nan"), 0.0, 1.0)
    z, share = 1.959963984540054, successes / trials
    center = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    reach = z / (1 + z**2 / trials) * (share * (1 - share) / trials + z**2 / (4 * trials**2)) ** 0.5
    return Interval(share, max(0.0, center - reach), min(1.0, center + reach))


def p_less(ours: Sample, theirs: Sample) -> float:
    """The p-value of "ours is below theirs": Welch's t-test, one-sided. NaN if a sample is a single number."""
    if min(ours.size, theirs.size) < 2:
        return float("nan")
    error, freedom = _welch([(ours.std, ours.size), (theirs.std, theirs.size)])
    difference = ours.mean - theirs.mean
    if error == 0:
        return float(difference >= 0)
    return float(stdtr(freedom, difference / error))


def p_different(ours: Sequence[Sample], theirs: Sequence[Sample]) -> float:
    """The p-value of "the means differ": Welch's t-test, two-sided. NaN if a sample is a single number.

    Each side is a list of independent samples; the test compares the means of their means.
    """
    if min(sample.size for sample in (*ours, *theirs)) < 2:
        return float("nan")
    difference = float(np.mean([sample.mean for sample in ours]) - np.mean([sample.mean for sample in theirs]))
    error, freedom = _welch([(s.std / len(side), s.size) for side in (ours, theirs) for s in side])
    if error == 0:
        return float(difference == 0)
    return float(2 * stdtr(freedom, -abs(difference) / error))


def p_not_zero(sample: Sample) -> float:
    """The p-value of "the mean is not zero": Student's t-test, two-sided. NaN for a single number."""
    if sample.size < 2:
        return float("nan")
    if sample.std == 0:
        return float(sample.mean == 0)
    return float(2 * stdtr(sample.size - 1, -abs(sample.mean) / sample.standard_error))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several tests. Rejecting below 0.05 keeps the family-wise error rate at 5%."""
    order = np.argsort(p_values)
    corrected = np.empty(len(p_values))
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return [float(p) for p in corrected]


def _interval(mean: float, parts: list[tuple[float, int]]) -> Interval:
    """Student's t with the Welch–Satterthwaite degrees of freedom for independent parts (standard deviation, size)."""
    if any(size < 2 for _, size in parts):
        return Interval(mean, float("nan"), float("nan"))
    error, freedom = _welch(parts)
    if error == 0:
        return Interval(mean, mean, mean)
    reach = float(stdtrit(freedom, 0.975)) * error
    return Interval(mean, mean - reach, mean + reach)


def _welch(parts: list[tuple[float, int]]) -> tuple[float, float]:
    """The standard error of a sum of independent parts (standard deviation, size) and its degrees of freedom."""
    variances = [std**2 / size for std, size in parts]
    total = sum(variances)
    if total == 0:
        return 0.0, float("inf")
    return total**0.5, total**2 / sum(v**2 / (size - 1) for v, (_, size) in zip(variances, parts, strict=True))
