"""The files of JAX's persistent compilation cache: checked, bounded in size, and never a reason to fail.

JAX's own files have no checksum that is always there, a process that is killed while it writes one leaves half of it,
and a damaged one is reported in every process and never replaced. These have a checksum, are renamed into place, and
are removed if they are damaged. When they exceed the limit, those that were not used for the longest time go. Whatever
the disk does, a program is then compiled again.
"""

import hashlib
import os
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from jax._src import compilation_cache

SUFFIX, PARTIAL = ".program", ".partial"
OLD_SUFFIXES = ("-cache", "-atime")
"""Of the files that JAX itself wrote here, in earlier versions of understudy."""
CHECK_EVERY = 16
"""Entries that a process writes between two looks at the size of the cache."""
ABANDONED = 86400.0
"""Seconds after which a partial file is that of a killed process."""


class CheckedCache:
    """Entries of at most `limit` bytes in all, in a directory. JAX calls `get` and `put`."""

    def __init__(self, path: str | os.PathLike[str], limit: int):
        self._path, self.limit, self.written = Path(path), limit, 0

    def get(self, key: str) -> bytes | None:
        """The entry of a key; None if there is none, or if it is damaged."""
        file = self._path / f"{key}{SUFFIX}"
        try:
            content = file.read_bytes()
        except (OSError, ValueError):
            return None
        size = hashlib.sha256().digest_size
        if hashlib.sha256(content[size:]).digest() != content[:size]:
            with suppress(OSError):  # read-only: it stays, and is ignored
                file.unlink()
            return None
        with suppress(OSError):
            os.utime(file)  # the time of the last use
        return content[size:]

    def put(self, key: str, value: bytes) -> None:
        """Store an entry, if the disk allows it."""
        content = hashlib.sha256(value).digest() + value
        if len(content) > self.limit:
            return
        partial = self._path / f"{key}.{os.getpid()}{PARTIAL}"
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.written % CHECK_EVERY == 0:
                self.evict(len(content))
            self.written += 1
            partial.write_bytes(content)
            os.replace(partial, partial.with_name(f"{key}{SUFFIX}"))
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                partial.unlink()

    def evict(self, needed: int = 0) -> None:
        """Remove the entries that were not used for the longest time, until `needed` bytes fit in."""
        entries = sorted(self._entries())
        size = sum(entry[1] for entry in entries)
        for _, length, path in entries:
            if size + needed <= self.limit:
                break
            with suppress(OSError):  # another process was faster
                os.unlink(path)
            size -= length

    def _entries(self) -> Iterator[tuple[float, int, str]]:
        """Time of the last use, size and path of each entry."""
        with os.scandir(self._path) as files:
            for file in files:
                with suppress(OSError):
                    about = file.stat(follow_symlinks=False)
                    if not stat.S_ISREG(about.st_mode):
                        continue
                    if file.name.endswith(PARTIAL) and time.time() - about.st_mtime > ABANDONED:
                        os.unlink(file.path)
                    elif file.name.endswith((SUFFIX, *OLD_SUFFIXES)):
                        yield about.st_mtime, about.st_size, file.path


def is_usable(folder: Path) -> bool:
    """Whether programs can be stored in a folder, which may not exist yet, and nobody else can put some there."""
    if folder.is_dir():
        return os.access(folder, os.R_OK | os.W_OK | os.X_OK) and not folder.stat().st_mode & stat.S_IWOTH
    existing = next((parent for parent in folder.parents if os.path.lexists(parent)), folder)
    return not os.path.lexists(folder) and existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def install(folder: Path, limit: int) -> None:
    """Let JAX use these files in `folder`. A cache in another directory, which the user sets, stays JAX's own."""
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    original: Any = getattr(compilation_cache, "get_file_cache", None)
    if original is None:  # another version of JAX: it uses its own files
        return

    def get_file_cache(path: str) -> Any:
        return (CheckedCache(path, limit), path) if Path(path) == folder else original(path)

    compilation_cache.get_file_cache = get_file_cache
    compilation_cache.reset_cache()  # if JAX has compiled without a cache before
