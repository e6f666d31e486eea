"""Notices: one line about something that was decided for the person. A warning in Python, a line in the shell."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class UnderstudyWarning(UserWarning):
    """A decision that the person may want to make: it names the thing, the value, and what to pass."""


def notice(text: str) -> None:
    """Warn of a decision, once for each text."""
    warnings.warn(text, UnderstudyWarning, stacklevel=3)


@contextmanager
def shown_as_lines() -> Iterator[None]:
    """In a command: show notices as "warning: ..." on standard error, without a file and a line of code."""
    from understudy.core import display

    plain = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, UnderstudyWarning):
            display.warn(f"warning: {message}")
        else:
            plain(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = plain
