"""Locks between processes that share a directory. The kernel frees those of a process that dies, however it does."""

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
except ImportError:  # only where there is no POSIX
    fcntl = None


class Claim:
    """A lock that is held. `release` gives it back, as the end of a with block does."""

    def __init__(self, path: Path, file: IO[str]):
        self.path, self._file = path, file

    def release(self) -> None:
        self._file.close()

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def claim(path: Path) -> Claim | None:
    """The lock of a file, or None while another has it. The file stays: it is the lock, and empty."""
    file = _opened(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise _explained(path, error) from error
    return Claim(path, file)


@contextmanager
def waiting(path: Path) -> Iterator[None]:
    """The lock of a file, once whoever has it gives it back."""
    with _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise _explained(path, error) from error
        yield


def _opened(path: Path) -> IO[str]:
    if fcntl is None:
        raise RunError("a study's directory needs file locks (fcntl), which this system lacks: use Linux, macOS or WSL")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", encoding="utf-8")


def _explained(path: Path, error: OSError) -> OSError | RunError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return error
    return RunError(f"'{path}' cannot be locked ({error.strerror}): keep the study on a disk of this machine")
