"""File locks between processes that share a directory. The kernel releases the locks of a process that dies."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from understudy.core.errors import RunError

fcntl: Any
try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None


class Claim:
    """A lock that this process holds. `release`, or the end of a with block, releases it."""

    def __init__(self, path: Path, file: IO[str]):
        self.path, self._file = path, file

    def release(self) -> None:
        self._file.close()

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def claim(path: Path) -> Claim | None:
    """Lock a file, or return None if another process has locked it. The empty file stays: it is the lock."""
    file = _open(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise _explain(path, error) from error
    return Claim(path, file)


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file. Waits while another process holds it."""
    with _open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise _explain(path, error) from error
        yield


def _open(path: Path) -> IO[str]:
    if fcntl is None:
        raise RunError("a study needs POSIX file locks (fcntl), which this system lacks: use Linux, macOS or WSL")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", encoding="utf-8")


def _explain(path: Path, error: OSError) -> OSError | RunError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return error
    return RunError(f"'{path}' cannot be locked ({error.strerror}): put the study on a local disk")
