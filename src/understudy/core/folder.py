"""A data set that is a directory, which somebody else may have made.

Names of its files may come from the data set itself. No name leads out of the directory, also not through links. All
files together have the limit of one npz file (`core.reader.read_limit`): it is compared with what the files declare,
before their contents are read.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from understudy.core.errors import RunError, UnderstudyError
from understudy.core.paths import LONGEST_NAME
from understudy.core.reader import FileReader, read_limit
from understudy.core.text import quoted

MOST_FILES = 1_000_000
"""Entries of one folder."""


class Refused(Exception):
    """Contents of a file that are not allowed. `reading` turns it into the error that names the file."""


@contextmanager
def reading(file: FileReader) -> Iterator[None]:
    """Turn every way in which damaged contents can fail into the error for a file."""
    with file.guarded():
        try:
            yield
        except Refused as error:
            raise file.damaged(error) from error


class Folder:
    """A directory. `what` names its kind ("a LeRobot data set"), `remedy` says what to do if it is damaged."""

    def __init__(self, path: Path, what: str, remedy: str, error: type[UnderstudyError] = RunError):
        self.path, self.what, self.remedy, self.kind = path, what, remedy, error
        self._reader = FileReader(path, what, remedy, error)
        self.name = self._reader.name
        self._sizes: dict[str, int] = {}
        self._declared = 0

    def damaged(self, reason: object) -> UnderstudyError:
        """The error for a directory that is not what it should be."""
        return self._reader.damaged(reason)

    def reading(self, name: str | None = None) -> AbstractContextManager[None]:
        """Turn every way in which damaged contents can fail into the error for a file, or for the directory."""
        return reading(self._reader if name is None else self.file(name))

    def inside(self, name: str) -> Path:
        """The path of a file in the directory. `name` has slashes between its parts. It need not exist."""
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part or len(os.fsencode(part)) > LONGEST_NAME for part in parts):
            raise self.damaged(f"'{quoted(name)}' is not the name of a file in it")
        path = self.path / name
        root, real = os.path.realpath(self.path), os.path.realpath(path)
        if real != root and not real.startswith(root.rstrip(os.sep) + os.sep):
            raise self.damaged(f"'{quoted(name)}' is a link out of the directory; cp -rL copies what links lead to")
        return path

    def file(self, name: str) -> FileReader:
        """The reader of one of its files."""
        return FileReader(self.inside(name), self.what, self.remedy, self.kind)

    def has(self, name: str) -> bool:
        """Whether it has a file or folder with this name."""
        return self.inside(name).exists()

    def json(self, name: str, pattern: Any) -> Any:
        """The value in a JSON file, which must match a pattern."""
        return self.file(name).json(pattern)

    def names(self, name: str) -> list[str]:
        """The names in one of its folders, sorted; none if the folder is not there."""
        path = self.inside(name)
        with self._reader.guarded():
            found = sorted(os.listdir(path)) if path.is_dir() else []
        if len(found) > MOST_FILES:
            raise self.damaged(f"'{quoted(name)}' has {len(found)} files, and at most {MOST_FILES} are read")
        return found

    def weigh(self, name: str) -> None:
        """Count the size of a file for the limit, before it is read."""
        with self.file(name).opened() as raw:
            self._sizes[name] = os.fstat(raw.fileno()).st_size

    def reserve(self, name: str, declared: int) -> None:
        """Count bytes that will stay in memory, because of a file. Raises if they are too many."""
        self._declared += declared
        self.check_fits(name, 0)

    def check_fits(self, name: str, declared: int) -> None:
        """Raise if a file takes too many bytes in memory for a moment, besides those that stay."""
        self.file(name).check_total(self._declared + declared, read_limit(sum(self._sizes.values())))
