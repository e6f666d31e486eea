"""Published numbers that a report shows next to its own. The caller of the report passes them in."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from understudy.core.statistics import Sample


class Published(NamedTuple):
    """Published results of one algorithm on one task; empty if there are none."""

    name: str = ""
    by_steps: Mapping[int, Sample] = {}
    """Environment steps → return."""
    trajectories: int = 0
    """Demonstrated trajectories behind `by_steps`."""
    by_trajectories: Mapping[int, Sample] = {}
    """Demonstrated trajectories → return of the final policy."""
    source: str = ""
    """Authors and year, for legends and tables."""
    citation: str = ""
    """The publication, and where in it the numbers are."""


FindPublished = Callable[[str, str, Mapping[str, Any]], Published]
"""Takes an environment, an algorithm's name and its hyperparameters."""


def nothing_published(env: str, algorithm: str, hyperparameters: Mapping[str, Any]) -> Published:
    """A FindPublished without any results."""
    return Published()
