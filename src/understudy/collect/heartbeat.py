"""Where a worker process is: a few numbers in memory that it shares with the process that started it.

A worker writes them before each call of an environment. So the parent can tell a step that hangs from a long request,
and can name the step in which a worker died.
"""

import mmap
import os
import struct
import tempfile
from typing import NamedTuple

from understudy.envs.stepping import OURS

LAYOUT = struct.Struct("=5q")


class Position(NamedTuple):
    """What a worker does: the number of its reports so far, who has the word, and the place in an episode."""

    reports: int
    phase: int
    run: int
    seed: int
    step: int

    @property
    def in_environment(self) -> bool:
        """Whether the worker waits for an environment."""
        return self.phase != OURS


class Heartbeat:
    """The shared numbers. The parent makes them, and the worker opens them by their file descriptor."""

    def __init__(self, descriptor: int | None = None):
        self.descriptor = _anonymous_file(LAYOUT.size) if descriptor is None else descriptor
        self._memory = mmap.mmap(self.descriptor, LAYOUT.size)
        self._count = 0

    def report(self, phase: int, run: int = 0, seed: int = 0, step: int = 0) -> None:
        """In the worker: it does this now."""
        self._count += 1
        LAYOUT.pack_into(self._memory, 0, self._count, phase, run, seed, step)

    def read(self) -> Position:
        """In the parent: what the worker does."""
        return Position(*LAYOUT.unpack_from(self._memory))

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)


def _anonymous_file(size: int) -> int:
    """The descriptor of a file without a name: in memory if the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("understudy")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, size)
    return descriptor
