"""An HDF5 file that is being written.

The HDF5 library crashes if the disk is full when it closes a file. So it writes to this object, which never fails in
its calls: it keeps the first error, drops what comes after it, and raises it at the end.
"""

import os
from pathlib import Path
from typing import Any


class Written:
    """A new file for `h5py.File`. Leaving its `with` block raises the OSError of a write that failed."""

    def __init__(self, path: Path):
        self._file = open(path, "x+b", buffering=0)  # noqa: SIM115 (closed by __exit__)
        self._error: OSError | None = None

    def __enter__(self) -> "Written":
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()
        if self._error is not None:
            raise self._error

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while len(rest) and self._error is None:
            try:
                rest = rest[self._file.write(rest) :]
            except OSError as error:
                self._error = OSError(error.errno, error.strerror, self._file.name)
        if len(rest):
            self._file.seek(len(rest), os.SEEK_CUR)
        return size

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = bytes(len(view))  # what was dropped reads as zeros
        at = 0
        while count := self._file.readinto(view[at:]):
            at += count
        return len(view)

    def truncate(self, size: int) -> int:
        try:
            return self._file.truncate(size)
        except OSError as error:
            self._error = self._error or OSError(error.errno, error.strerror, self._file.name)
            return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        """Nothing is buffered here."""
