"""The callback by which a long computation reports its progress."""

from typing import Protocol


class Progress(Protocol):
    """Called after each round with the rounds done, the total, and each metric's mean over the active runs."""

    def __call__(self, done: int, total: int, metrics: dict[str, float]) -> None: ...
