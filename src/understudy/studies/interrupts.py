"""Ctrl-C during a study."""

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from understudy.core.progress import Bar
from understudy.core.startup import interrupt
from understudy.studies.training import ProgressFactory


@contextmanager
def catch_interrupts(progress: ProgressFactory) -> Iterator[tuple[Callable[[], bool], ProgressFactory]]:
    """Make sure that no Ctrl-C is lost. Yields a function that returns whether one arrived, and a wrapped progress.

    There are two ways to lose one. Training ends after the round of a Ctrl-C; if that was the last round, it returns as
    usual. And a KeyboardInterrupt raised inside a compiler callback is swallowed there; the wrapped progress raises the
    signal again.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    previous = signal.getsignal(signal.SIGINT)
    if not in_main_thread or previous not in (signal.default_int_handler, interrupt):
        yield lambda: False, progress
        return
    swallowed = threading.Event()

    def handle(signum: int, frame: object) -> None:
        swallowed.set()
        interrupt(signum, frame)

    @contextmanager
    def interruptible(title: str) -> Iterator[Bar]:
        with progress(title) as report:

            def report_or_interrupt(done: int, total: int, metrics: Mapping[str, float | str]) -> None:
                if swallowed.is_set():
                    swallowed.clear()
                    signal.raise_signal(signal.SIGINT)
                report(done, total, metrics)

            yield report_or_interrupt

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGINT, handle)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield (
            lambda: bool(select.select([reading], [], [], 0)[0]) and signal.SIGINT in os.read(reading, 4096),
            interruptible,
        )
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGINT, previous)
        os.close(reading)
        os.close(writing)
