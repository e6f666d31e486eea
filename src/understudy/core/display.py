"""Terminal output: progress bars, tables and notes. Without a terminal, a progress line once a minute.

Texts may come from files, so their control characters are replaced: they cannot carry escape sequences. Progress and
notes go to standard error; if it cannot be written to, the command goes on without them.
"""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, cast

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from understudy.core.progress import Progress as Report
from understudy.core.streams import Messages, encodable
from understudy.core.text import printable, quoted, shortened

LOG_EVERY = 60.0
"""Seconds between progress lines, without a terminal."""
BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
"""Signs of a sparkline, from low to high."""
LONGEST_CELL, LONGEST_TITLE = 400, 200
"""Characters of a table's cell, and of a title, that are shown."""


class _Console(Console):
    """rich exits with status 1 if the reader of the output has closed it; here the command line decides."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich handles here


def console() -> Console:
    """A console on standard output. Without a terminal it is wide enough for the tables."""
    return _Console(soft_wrap=False) if sys.stdout.isatty() else _Console(width=160)


def _messages(soft_wrap: bool = False) -> Console:
    return Console(file=cast("IO[str]", Messages()), soft_wrap=soft_wrap)


def working(title: str) -> AbstractContextManager[object]:
    """A spinner with a title on a terminal; nothing otherwise."""
    terminal = _messages()
    return terminal.status(escape(quoted(title, LONGEST_TITLE))) if terminal.is_terminal else nullcontext()


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """A progress bar with metrics and the remaining time on a terminal; a line once a minute otherwise."""
    terminal, title = _messages(), quoted(title, LONGEST_TITLE)
    if not terminal.is_terminal:
        yield _progress_lines(title)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[metrics]}", style="cyan", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=terminal, transient=True) as bar:
        task = bar.add_task(title, total=None, metrics="starting")

        def report(done: int, total: int, metrics: dict[str, float]) -> None:
            bar.update(task, completed=done, total=total, metrics=_formatted(metrics))

        yield report


def note(text: str) -> None:
    """Print a line on standard error if it is not a terminal; on a terminal, the progress bar shows the same."""
    if not _messages().is_terminal:
        warn(text)


def say(text: object) -> None:
    """Print a text on standard output."""
    print(printable(text), flush=True)


def warn(text: object) -> None:
    """Print a text on standard error."""
    print(printable(text), file=cast("IO[str]", Messages()))


def error(text: object) -> None:
    """Print an error on standard error: one line, "error: ..."."""
    line = " ".join(printable(text).split())
    _messages(soft_wrap=True).print(f"[bold red]error:[/] {escape(line)}", highlight=False)


def _progress_lines(title: str) -> Report:
    printed = time.monotonic()

    def report(done: int, total: int, metrics: dict[str, float]) -> None:
        nonlocal printed
        if time.monotonic() - printed >= LOG_EVERY:
            printed = time.monotonic()
            warn(f"{title}: {done} of {total}  {_formatted(metrics)}")

    return report


def _formatted(metrics: dict[str, float]) -> str:
    return printable("  ".join(f"{name} {value:.4g}" for name, value in metrics.items()))


def sparkline(counts: Sequence[float]) -> str:
    """Numbers as a row of bars, one character each. A terminal without block characters shows other signs."""
    signs = BARS if encodable(BARS) == BARS else PLAIN_BARS
    most = max(counts)
    return "".join(" " if count <= 0 else signs[math.ceil(count / most * len(signs)) - 1] for count in counts)


def _text(text: str) -> Text:
    return Text(encodable(text))  # replaced here, since a replacement may be longer


def show(headers: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """Print a table. Columns whose header starts with '>' are right-aligned."""
    table = Table(header_style="bold", box=None, pad_edge=False, show_header=any(headers))
    for header in headers:
        right = header.startswith(">")
        table.add_column(_text(printable(header.lstrip(">"))), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(quoted(cell, LONGEST_CELL)) for cell in row))
    if title is not None:
        say(shortened(title, LONGEST_TITLE))
    console().print(table)
