"""How a long computation reports its progress."""

import os
from collections.abc import Mapping
from typing import Any, Protocol

from understudy.core.errors import SettingError
from understudy.core.text import quoted

VARIABLE = "UNDERSTUDY_PROGRESS"


class Progress(Protocol):
    """Called after each round with the rounds done, the total, and each metric's mean over the active runs."""

    def __call__(self, done: int, total: int, metrics: dict[str, float]) -> None: ...


class Bar(Protocol):
    """A progress bar. It can be called wherever a `Progress` can; texts beside its numbers are shown as they are."""

    def __call__(self, done: int, total: int, metrics: Mapping[str, float | str]) -> None: ...


class Display:
    """A bar or line of ours. Unlike a function of the caller, it also shows the work after the last round."""

    def __init__(self, bar: Bar):
        self._bar = bar

    def __call__(self, done: int, total: int, metrics: Mapping[str, float | str]) -> None:
        self._bar(done, total, metrics)


ProgressOption = Progress | bool | None
"""True: a progress bar if somebody can see it; False or None: silent; or a function that is called instead."""


def check_progress(words: str, progress: Any) -> None:
    """Raise unless it is a `ProgressOption`. `words` are the arguments of the function."""
    if not isinstance(progress, bool | None) and not callable(progress):
        raise SettingError(f"progress is {quoted(repr(progress))}: True, False, or a function of {words} is needed")


def switched_off() -> bool:
    """Whether UNDERSTUDY_PROGRESS turns all progress bars off."""
    given = os.environ.get(VARIABLE, "1")
    if given not in ("0", "1"):
        raise SettingError(f"{VARIABLE} is '{quoted(given)}': 0 (no progress bars) or 1 is needed")
    return given == "0"
