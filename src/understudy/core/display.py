"""What a person sees in the terminal: progress, tables, one-line notes. Where nobody watches, a line now and then."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from understudy.core.progress import Progress as Report

LOG_EVERY = 60.0
"""Seconds from one line of a log to the next."""


def console() -> Console:
    """Standard output; tables keep their full width when it is not a terminal."""
    return Console(soft_wrap=False) if sys.stdout.isatty() else Console(width=160)


def working(title: str) -> AbstractContextManager[object]:
    """A spinner, on a terminal; nothing elsewhere."""
    terminal = Console(stderr=True)
    return terminal.status(title) if terminal.is_terminal else nullcontext()


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """A live bar with the metrics and the time left, on a terminal; elsewhere, a line a minute for a log."""
    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        yield _log(title)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[metrics]}", style="cyan"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=terminal, transient=True) as bar:
        task = bar.add_task(title, total=None, metrics="starting")

        def report(done: int, total: int, metrics: dict[str, float]) -> None:
            bar.update(task, completed=done, total=total, metrics=_shown(metrics))

        yield report


def note(text: str) -> None:
    """A line for a log, where nobody watches a bar."""
    if not Console(stderr=True).is_terminal:
        print(text, file=sys.stderr, flush=True)


def _log(title: str) -> Report:
    told = time.monotonic()

    def report(done: int, total: int, metrics: dict[str, float]) -> None:
        nonlocal told
        if time.monotonic() - told >= LOG_EVERY:
            told = time.monotonic()
            print(f"{title}: {done} of {total}  {_shown(metrics)}", file=sys.stderr, flush=True)

    return report


def _shown(metrics: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def show(headers: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """Print a table; columns of numbers, marked by a leading '>' in the header, are set flush right."""
    made = Table(header_style="bold", box=None, pad_edge=False, show_header=any(headers))
    for header in headers:
        made.add_column(header.lstrip(">"), justify="right" if header.startswith(">") else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    if title is not None:
        print(title, flush=True)
    console().print(made)
