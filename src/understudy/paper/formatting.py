"""How the paper's tables print numbers."""

from understudy.core.statistics import Sample


def with_error(sample: Sample | None, digits: int = 0) -> str:
    """Mean ± standard error with this many decimals; empty without a sample, and no error for a single value."""
    if sample is None:
        return ""
    mean, error = (f"{value:.{digits}f}" for value in (sample.mean, sample.standard_error))
    return mean if sample.size < 2 else f"{mean} ± {error}"
