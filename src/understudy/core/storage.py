"""Atomic and durable files and directories.

A file or directory is written under a temporary name in the same folder, synced to the disk, then renamed. So a kill or
a power cut at any moment leaves the old contents or the new ones, never a mixture. A temporary name looks like
`.NAME.RANDOM.partial.SUFFIX`. Its writer holds a lock on it, so that `remove_stale` can tell the temporary files of
killed processes from those of running ones.

`atomic_directory(path, own)` may replace a directory, but only one whose entries all match the patterns `own`: nothing
that someone else put there is ever removed.
"""

import ctypes
import errno
import fcntl
import fnmatch
import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import RunError
from understudy.core.paths import (
    PARTIAL,
    REPLACED,
    check_file_path,
    check_new_directory,
    check_new_file,
    matches,
    temporary,
)

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def atomic_file(path: str | os.PathLike[str], replace: bool = True) -> Iterator[Path]:
    """A temporary path to write to. On success it is synced and renamed to `path`; on failure removed.

    An old file at `path` is replaced. With `replace=False` it stays, and RunError is raised.
    """
    check_file_path(path)
    path = Path(path)
    make_directory(path.parent)
    partial = temporary(path, f"{PARTIAL}{path.suffix}")
    with _named(path, partial):
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with _named(path, partial):
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield partial
            _sync(partial)
            if replace:
                os.replace(partial, path)
            else:
                _rename_new(partial, path)
            _sync(path.parent)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)
        os.close(handle)


@contextmanager
def atomic_directory(path: str | os.PathLike[str], own: Collection[str] = ()) -> Iterator[Path]:
    """A temporary directory to fill. On success it is synced and renamed to `path`; on failure removed.

    `path` must not exist or be empty. If `own` is given, an old directory may be there too, if all its files match the
    patterns `own` ("policies/*.npz"): the two are exchanged in one step, then the old files are removed.
    """
    check_new_directory(path, own)
    path = Path(path)
    make_directory(path.parent)
    partial = temporary(path, PARTIAL)
    with _named(path, partial):
        os.mkdir(partial)
    handle = os.open(partial, os.O_RDONLY)
    try:
        with _named(path, partial):
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield partial
            _sync_tree(partial)
            if own and path.is_dir() and any(path.iterdir()):
                check_new_directory(path, own)  # something may have appeared in the meantime
                _exchange(partial, path)
            else:
                _rename_over_empty(partial, path)
            _sync(path.parent)
    finally:
        if partial.exists():
            _remove_tree(partial, own or ("*",))
            with suppress(FileNotFoundError):  # still there: it holds a file that appeared during the exchange
                os.rename(partial, path.with_name(f"{path.name}.old-{secrets.token_hex(4)}"))
        os.close(handle)


def make_directory(path: Path) -> None:
    """Make a directory and its parents, synced to the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        _sync(folder.parent)


def remove_stale(path: str | os.PathLike[str]) -> None:
    """Clean up after killed processes that wrote `path`, or a file `path`.SUFFIX next to it.

    Their temporary files are removed. A directory that was about to be replaced is put back.
    """
    path = Path(path)
    if not path.parent.is_dir():
        return
    for entry in sorted(path.parent.iterdir()):
        if entry.name.startswith(f".{path.name}.") and _is_temporary(entry) and _abandoned(entry):
            if entry.name.endswith(REPLACED):
                target = path.parent / entry.name[1:].rsplit(".", 2)[0]
                if not target.exists():
                    os.rename(entry, target)
                    continue
            _remove_tree(entry, ("*",))


def keep_copy(path: Path, copy: Path) -> None:
    """Give the file at `path` a second name, which may be in use. The file itself is never absent in between.

    The copy is synced with the next write in the same folder.
    """
    partial = temporary(copy, f"{PARTIAL}{copy.suffix}")
    try:
        try:
            os.link(path, partial)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):  # no hard links on this file system
                raise
            shutil.copyfile(path, partial)
            _sync(partial)
        os.replace(partial, copy)
    finally:
        with suppress(FileNotFoundError):  # still there: both names were the same file already
            os.unlink(partial)


def no_follow(path: str, flags: int) -> int:
    """An `opener` for `open`: a link is not followed, so that a folder from elsewhere cannot name other files."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def append_text(path: Path, text: str) -> None:
    """Append to a file, synced to the disk. A power cut may leave a part of the text at the end."""
    new = not path.exists()
    with open(path, "a", newline="", encoding="utf-8", opener=no_follow) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if new:
        _sync(path.parent)


def move_file(source: Path, target: Path) -> None:
    """Rename a file, synced to the disk. The folder of `target` is made if needed."""
    make_directory(target.parent)
    os.rename(source, target)
    _sync(target.parent)
    _sync(source.parent)


def remove_files(directory: Path, own: Collection[str]) -> bool:
    """Remove the files of a directory that match `own`, in the order of these patterns, then the directory if empty.

    Returns whether the directory is gone. Files that do not match stay, and so do links and folders.
    """
    for pattern in own:
        for entry in sorted(directory.iterdir()):
            if fnmatch.fnmatchcase(entry.name, pattern) and entry.is_file() and not entry.is_symlink():
                entry.unlink()
        _sync(directory)
    try:
        directory.rmdir()
    except OSError:  # it holds a file that is not ours
        return False
    _sync(directory.parent)
    return True


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically. A file name that is not UTF-8 (a lone surrogate) becomes a JSON escape."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_file(path) as partial:
        partial.write_bytes(text.encode("utf-8", "backslashreplace"))


def write_npz(path: Path, arrays: dict[str, Any], replace: bool = True, compressed: bool = True) -> None:
    """Write an npz file atomically."""
    with atomic_file(path, replace) as partial, partial.open("wb") as file:
        (np.savez_compressed if compressed else np.savez)(file, **arrays)


@contextmanager
def _named(path: Path, partial: Path) -> Iterator[None]:
    """Let a system error name the file that the caller knows, not the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(partial), partial):
            error.filename = str(path)
        raise


def _is_temporary(path: Path) -> bool:
    """Whether a name is one that `_temporary` gives."""
    parts = path.name.split(".")
    ends = [i for i, part in enumerate(parts) if f".{part}" in (PARTIAL, REPLACED)]
    ours = bool(ends) and ends[-1] >= len(parts) - 2 and re.fullmatch("[0-9a-f]{8}", parts[ends[-1] - 1])
    return bool(ours) and not path.is_symlink()


def _abandoned(path: Path) -> bool:
    """Whether no process holds the lock of a temporary file or directory."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # another process has just renamed or removed it
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def _sync(path: Path) -> None:
    """Wait until a file's contents, or a directory's entries, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot sync a directory
            raise
    finally:
        os.close(handle)


def _sync_tree(path: Path) -> None:
    for folder, _, files in os.walk(path):
        for name in files:
            _sync(Path(folder) / name)
        _sync(Path(folder))


def _rename_new(partial: Path, path: Path) -> None:
    """Rename a file to a name that must be free."""
    try:
        os.link(partial, path)
    except FileExistsError:
        check_new_file(path)  # raises
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):  # no hard links on this file system
            raise
        check_new_file(path)
        os.rename(partial, path)


def _rename_over_empty(partial: Path, path: Path) -> None:
    """Rename a directory to a name that must be free, or that of an empty directory."""
    try:
        os.rename(partial, path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise RunError(f"the directory '{path}' is not empty any more: choose another") from error


def _exchange(partial: Path, path: Path) -> None:
    """Give two directories each other's names, in one step if the file system can."""
    if hasattr(_LIBC, "renameat2"):
        names = (os.fsencode(partial), os.fsencode(path))
        if _LIBC.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    # In two steps. `remove_stale` puts the old one back if the process is killed in between.
    old = temporary(path, REPLACED)
    os.rename(path, old)
    try:
        os.rename(partial, path)
    except BaseException:
        os.rename(old, path)
        raise
    os.rename(old, partial)


def _remove_tree(path: Path, own: Collection[str]) -> None:
    """Remove the files of a directory that match, then its empty folders. Anything else stays."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            file = Path(folder) / name
            if matches(str(file.relative_to(path)), own):
                file.unlink()
        for name in folders:
            if not (Path(folder) / name).is_symlink():
                with suppress(OSError):  # it is not empty
                    os.rmdir(Path(folder) / name)
    with suppress(OSError):
        os.rmdir(path)
