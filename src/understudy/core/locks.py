"""File locks between processes that share a directory. The kernel releases the locks of a process that dies."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from understudy.core.errors import RunError
from understudy.core.paths import check_file_path

LOCK = ".lock"
"""Suffix of the lock next to a directory that is being written."""
LONGEST, DIGITS = 64, "0123456789\n"
"""A lock file is empty, or holds the id of a process and the whole numbers that it has noted, one in a line."""


class Claim:
    """A lock that this process holds. `release`, or the end of a with block, releases it."""

    def __init__(self, path: Path, file: IO[str], remove: bool = False, folders: Sequence[Path] = ()):
        self.path, self._file, self._remove, self._folders = path, file, remove, folders

    def note(self, *numbers: int) -> None:
        """Write whole numbers into the lock, for other processes to see (`read_note`). They end with the lock.

        They are not synced to the disk, and a full disk is no error: nothing depends on them.
        """
        text = "".join(f"{number}\n" for number in (os.getpid(), *numbers)).encode()
        if len(text) > LONGEST:
            raise ValueError(f"a note of {len(text)} bytes does not fit into a lock")
        with suppress(OSError):
            os.pwrite(self._file.fileno(), text, 0)  # in one call, so that no reader sees half of it
            os.ftruncate(self._file.fileno(), len(text))

    def release(self) -> None:
        if self._remove and not self._file.closed:
            self.path.unlink(missing_ok=True)
            for folder in self._folders:
                with suppress(OSError):  # it is not empty any more
                    folder.rmdir()
        self._file.close()

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def claim(path: Path, remove: bool = False) -> Claim | None:
    """Lock a file, or return None if another process has locked it.

    The file holds the process id. It stays after the release, unless `remove` is set. A file of the same name that is
    no lock of ours (`uv.lock`), a link or a device is never written: RunError. With `remove`, folders that were made
    for the lock are removed too, if they are still empty.
    """
    folders = [folder for folder in path.parents if not folder.exists()] if remove else []
    while True:
        file = _open(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise _explain(path, error) from error
        if _is_at(file, path):
            if file.read(LONGEST).strip(DIGITS):
                file.close()
                raise _foreign(path)
            file.seek(0)
            file.truncate()
            file.write(f"{os.getpid()}\n")
            file.flush()
            return Claim(path, file, remove, folders)
        file.close()  # its last owner removed the file between the two calls: lock the new one


def read_note(path: Path) -> list[int]:
    """The numbers that the owner of a lock has noted. None at all if there is no such lock, or another file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            text = file.read(LONGEST + 1)
    except OSError:
        return []
    lines = text.split(b"\n")
    whole = len(text) <= LONGEST and not text.strip(DIGITS.encode()) and all(lines[:-1]) and lines[-1] == b""
    return [int(line) for line in lines[1:-1]] if whole else []


def claim_output(out: str | os.PathLike[str], option: str = "--out") -> Claim:
    """Lock the output directory or file of a command. Raises at once if another process writes to it.

    `option` names what to choose otherwise.
    """
    path = Path(f"{Path(out)}{LOCK}")
    check_file_path(path)
    held = claim(path, remove=True)
    if held is None:
        by = f"another process{_owner(path)}"
        raise RunError(f"'{out}' is in use by {by}: wait until it ends, or choose another {option}")
    return held


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
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not a link: it could lead to a file of the user. Not blocking: a pipe would wait for its other end.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _foreign(path) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _foreign(path)
    return os.fdopen(handle, "r+", encoding="utf-8", errors="replace")


def _foreign(path: Path) -> RunError:
    return RunError(f"'{path}' is not a lock file of understudy: choose another name, or move it away first")


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether the open file is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _owner(path: Path) -> str:
    """The process id in a lock file, in brackets."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return ""
    return f" (process {text})" if text.isdecimal() else ""


def _explain(path: Path, error: OSError) -> OSError | RunError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return error
    return RunError(f"'{path}' cannot be locked ({error.strerror}): use a directory on a local disk")
