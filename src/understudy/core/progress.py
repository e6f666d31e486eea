"""How a long computation reports where it is."""

from typing import Protocol


class Progress(Protocol):
    """Told after each round: rounds done, rounds in all, the mean of each metric over the runs still going."""

    def __call__(self, done: int, total: int, metrics: dict[str, float]) -> None: ...
