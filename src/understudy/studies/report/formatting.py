"""Numbers as text, for tables, charts and sentences."""

import math

from understudy.core.statistics import Interval, Sample


def plural(count: int, noun: str) -> str:
    """Count and noun: 1 trajectory, 20 trajectories."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"


def number(value: float, other: float = 0.0) -> str:
    """A return: 2,154, 65.3, 0.482. The larger of `value` and `other` decides the number of digits."""
    size = max(abs(value), abs(other))
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}".replace("-", "−")


def plus_minus(sample: Sample) -> str:
    """Mean ± standard error."""
    mean, error = sample.mean, sample.standard_error
    return f"{number(mean, error)} ± {number(error, mean)}" if math.isfinite(error) else number(mean)


def bracket(interval: Interval) -> str:
    """The 95% interval; empty for a single seed."""
    low, high = interval.low, interval.high
    return f"[{number(low, high)}, {number(high, low)}]" if math.isfinite(low) else ""
