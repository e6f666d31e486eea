"""Means with 95% intervals: Student's t, and Welch's for a difference."""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit


class Interval(NamedTuple):
    """An estimate and its 95% interval; NaN ends where a single number cannot have one."""

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


def interval(sample: Sample) -> Interval:
    """The mean of a sample with its 95% interval."""
    return _interval(sample.mean, [(sample.std, sample.size)])


def imitation_gap(expert: Sample, learner: Sample) -> Interval:
    """J(π_E) − J(π) with its 95% interval."""
    return _interval(expert.mean - learner.mean, [(expert.std, expert.size), (learner.std, learner.size)])


def _interval(mean: float, parts: list[tuple[float, int]]) -> Interval:
    """Student's t with the Welch–Satterthwaite degrees of freedom over independent parts (standard deviation, size)."""
    if any(size < 2 for _, size in parts):
        return Interval(mean, float("nan"), float("nan"))
    variances = [std**2 / size for std, size in parts]
    total = sum(variances)
    if total == 0:
        return Interval(mean, mean, mean)
    freedom = total**2 / sum(v**2 / (size - 1) for v, (_, size) in zip(variances, parts, strict=True))
    reach = float(stdtrit(freedom, 0.975)) * total**0.5
    return Interval(mean, mean - reach, mean + reach)
