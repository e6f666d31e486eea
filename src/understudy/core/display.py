"""Terminal output: progress bars, tables and notes. Without a terminal, commands print a progress line once a minute.

Texts may come from files, so their control characters are replaced: they cannot carry escape sequences. Progress and
notes go to standard error; if it cannot be written to, the command goes on without them.
"""

import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, cast

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from understudy.core.progress import Bar, Display, ProgressOption, switched_off
from understudy.core.progress import Progress as Report
from understudy.core.streams import Messages, encodable
from understudy.core.text import printable, quoted, shortened

LOG_EVERY = 60.0
"""Seconds between progress lines, without a terminal."""
BARS, PLAIN_BARS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
"""Signs of a sparkline, from low to high."""
LONGEST_CELL, LONGEST_TITLE = 400, 200
"""Characters of a table's cell, and of a title, that are shown."""
NOTEBOOK_EVERY = 0.2
"""Seconds between two versions of the progress line in a notebook."""
_DESCRIPTION = TextColumn("{task.description}", markup=False)
_shown = threading.Lock()
"""Held while a bar or spinner is on the terminal: a second one would garble it."""


class _Console(Console):
    """rich exits with status 1 if the reader of the output has closed it; here the command line decides."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich handles here


def console() -> Console:
    """A console on standard output. Without a terminal it is wide enough for the tables."""
    return _Console(soft_wrap=False) if sys.stdout.isatty() else _Console(width=160)


def _messages(soft_wrap: bool = False) -> Console:
    return Console(file=cast("IO[str]", Messages()), soft_wrap=soft_wrap)


@contextmanager
def working(title: str, show: bool = True) -> Iterator[None]:
    """A spinner with a title on a terminal; nothing otherwise."""
    terminal = _messages()
    if not show or switched_off() or not terminal.is_terminal or not _shown.acquire(blocking=False):
        yield
        return
    try:
        with _live(terminal, SpinnerColumn(), _DESCRIPTION) as bar:
            bar.add_task(quoted(title, LONGEST_TITLE), total=None)
            yield
    finally:
        _shown.release()


@contextmanager
def reporting(title: str, progress: ProgressOption) -> Iterator[Report | None]:
    """What a function of the library reports its progress to: the caller's function, a bar, or nothing.

    With True it is a bar on a terminal and a line in a notebook. Elsewhere, as in a script whose output goes to a file,
    it is nothing.
    """
    if callable(progress):
        yield progress
    elif not progress or switched_off():
        yield None
    elif _in_notebook():
        with _notebook_line(title) as report:
            yield Display(report)
    elif _messages().is_terminal:
        with progress_bar(title) as report:
            yield report
    else:
        yield None


@contextmanager
def progress_bar(title: str) -> Iterator[Bar]:
    """A progress bar with metrics and the remaining time on a terminal; a line once a minute otherwise.

    Inside another bar, and with UNDERSTUDY_PROGRESS=0, it shows nothing.
    """
    terminal, title = _messages(), quoted(title, LONGEST_TITLE)
    if switched_off():
        yield _silent
    elif not terminal.is_terminal:
        yield Display(_progress_lines(title))
    elif not _shown.acquire(blocking=False):
        yield _silent
    else:
        try:
            with _bar(terminal, title) as report:
                yield Display(report)
        finally:
            _shown.release()


@contextmanager
def _bar(terminal: Console, title: str) -> Iterator[Bar]:
    columns = (
        _DESCRIPTION,
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[metrics]}", style="cyan", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with _live(terminal, *columns) as bar:
        task = bar.add_task(title, total=None, metrics="starting")

        def report(done: int, total: int, metrics: Mapping[str, float | str]) -> None:
            bar.update(task, completed=done, total=total, metrics=_formatted(metrics))

        yield report


def _live(terminal: Console, *columns: ProgressColumn) -> Progress:
    """What is printed on the same terminal appears above the bar. Standard output that goes elsewhere is left alone."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return Progress(*columns, console=terminal, transient=True, redirect_stdout=on_terminal)


def _silent(done: int, total: int, metrics: Mapping[str, float | str]) -> None:
    """A bar that nobody sees."""


def _in_notebook() -> bool:
    """Whether standard error is a notebook's cell."""
    return type(sys.stderr).__module__.startswith("ipykernel.")


@contextmanager
def _notebook_line(title: str) -> Iterator[Bar]:
    """A line that is written over itself. It needs no widgets."""
    stream, printed, width = cast("IO[str]", Messages()), float("-inf"), 0
    title = quoted(title, LONGEST_TITLE)

    def write(text: str) -> None:
        nonlocal width
        stream.write(f"\r{text:{width}}")
        width = len(text)

    def report(done: int, total: int, metrics: Mapping[str, float | str]) -> None:
        nonlocal printed
        if time.monotonic() - printed >= NOTEBOOK_EVERY or done == total:
            printed = time.monotonic()
            write(f"{title}: {done} of {total}  {_formatted(metrics)}")

    try:
        yield report
    finally:
        if width:
            stream.write("\n")


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


def _progress_lines(title: str) -> Bar:
    printed = time.monotonic()

    def report(done: int, total: int, metrics: Mapping[str, float | str]) -> None:
        nonlocal printed
        if time.monotonic() - printed >= LOG_EVERY:
            printed = time.monotonic()
            warn(f"{title}: {done} of {total}  {_formatted(metrics)}")

    return report


def _formatted(metrics: Mapping[str, float | str]) -> str:
    texts = {name: value if isinstance(value, str) else f"{value:.4g}" for name, value in metrics.items()}
    return printable("  ".join(f"{name} {text}" for name, text in texts.items()))


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
