"""What environments print. It goes to standard error, so that tables and CSV on standard output stay clean.

PyBullet prints a banner for every simulator, from C: its output is dropped, with its warnings.
"""

import ctypes
import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import IO, cast

import gymnasium

from understudy.core.streams import Messages, message_stream, silence

C_LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None
_worker: set[str] = set()
"""Not empty in a worker process, whose output is redirected for good: once for all, and again if it is to be quiet."""


@contextmanager
def redirected(quiet: bool = False) -> Iterator[None]:
    """Send what a simulator prints, from Python or C, to standard error; with `quiet`, drop it and its warnings."""
    if _worker:
        if quiet and "quiet" not in _worker:
            _worker.add("quiet")
            silence(1, 2)
            warnings.simplefilter("ignore")
        yield
        return
    flush()
    saved = [os.dup(1), os.dup(2)]
    if quiet:
        silence(1, 2)
    else:
        os.dup2(2, 1)
    try:
        # In a notebook, sys.stdout is not file descriptor 1, so redirect both. An environment may close the stream.
        sink = cast("IO[str]", _Nothing() if quiet else Messages())
        with redirect_stdout(sink), redirect_stderr(sink), _no_warnings() if quiet else nullcontext():
            yield
    finally:
        flush()
        for descriptor, own in zip(saved, (1, 2), strict=True):
            os.dup2(descriptor, own)
            os.close(descriptor)


@contextmanager
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def redirect_worker(descriptor: int) -> None:
    """In a worker: send all output to the parent's standard error, whose `descriptor` it has inherited.

    The worker inherits the file itself, so nothing can fill up or wait for the parent. Gymnasium's own warnings are
    dropped: the parent, which makes every environment once, has shown them.
    """
    _worker.add("redirected")
    for own in (1, 2):
        os.dup2(descriptor, own)
    os.close(descriptor)
    sys.stdout = sys.stderr = message_stream()
    gymnasium.logger.min_level = gymnasium.logger.ERROR


def flush() -> None:
    """Write what Python and C have buffered."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    if C_LIBRARY is not None:
        C_LIBRARY.fflush(None)


class _Nothing(io.TextIOBase):
    """Drops what is written, also after a simulator closed it."""

    def write(self, text: str) -> int:
        return len(text)
