"""Terminal output: progress bars, tables and notes. Without a terminal, a progress line once a minute."""

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
"""Seconds between progress lines, without a terminal."""


def console() -> Console:
    """A console on standard output. Without a terminal it is wide enough for the tables."""
    return Console(soft_wrap=False) if sys.stdout.isatty() else Console(width=160)


def working(title: str) -> AbstractContextManager[object]:
    """A spinner with a title on a terminal; nothing otherwise."""
    terminal = Console(stderr=True)
    return terminal.status(title) if terminal.is_terminal else nullcontext()


@contextmanager
def progress_bar(title: str) -> Iterator[Report]:
    """A progress bar with metrics and the remaining time on a terminal; a line once a minute otherwise."""
    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        yield _progress_lines(title)
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
            bar.update(task, completed=done, total=total, metrics=_formatted(metrics))

        yield report


def note(text: str) -> None:
    """Print a line on standard error if it is not a terminal; on a terminal, the progress bar shows the same."""
    if not Console(stderr=True).is_terminal:
        print(text, file=sys.stderr, flush=True)


def _progress_lines(title: str) -> Report:
    printed = time.monotonic()

    def report(done: int, total: int, metrics: dict[str, float]) -> None:
        nonlocal printed
        if time.monotonic() - printed >= LOG_EVERY:
            printed = time.monotonic()
            print(f"{title}: {done} of {total}  {_formatted(metrics)}", file=sys.stderr, flush=True)

    return report


def _formatted(metrics: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())


def show(headers: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """Print a table. Columns whose header starts with '>' are right-aligned."""
    table = Table(header_style="bold", box=None, pad_edge=False, show_header=any(headers))
    for header in headers:
        table.add_column(header.lstrip(">"), justify="right" if header.startswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    if title is not None:
        print(title, flush=True)
    console().print(table)
