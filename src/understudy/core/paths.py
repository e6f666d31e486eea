"""Where something may be written: paths that can be names of files, and that hold nothing of somebody else."""

import fnmatch
import os
import secrets
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from understudy.core.errors import RunError
from understudy.core.text import quoted

PARTIAL, REPLACED = ".partial", ".replaced"
"""Endings of temporary names: what is being written, and an old directory while the new one takes its place."""
SHOWN = 3
"""At most this many entries are named in an error."""
MOVE_AWAY = "choose another, or move it away first"
REPLACE = "choose another name, or pass replace=True (--replace)"
LONGEST_NAME = 255
"""Bytes of a file name that file systems take."""


def checked_path(path: str | os.PathLike[str]) -> Path:
    """A path as a `Path`. Raises if it is none, or if no file can have this name."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise RunError(f"{quoted(repr(path))} is not a path: pass text or a pathlib.Path")
    path = Path(path)
    if "\0" in str(path):
        raise RunError(f"'{quoted(path)}' is not a path, it has a null character: choose another name")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
        raise RunError(f"'{quoted(path)}' has a name of more than {LONGEST_NAME} bytes: choose a shorter one")
    return path


def check_new_directory(path: str | os.PathLike[str], own: Collection[str] = (), hint: str = MOVE_AWAY) -> None:
    """Raise if a directory cannot be written at `path`, or holds files other than those that match `own`.

    `hint` says what to do if it holds a run.
    """
    path = checked_path(path)
    if path.is_dir():
        if path.is_symlink():
            raise RunError(f"'{path}' is a link: name the directory that it leads to, '{os.path.realpath(path)}'")
        others = list(islice((entry for entry in files_in(path) if not matches(entry, own)), SHOWN + 1))
        if others:
            named = ", ".join(f"'{entry}'" for entry in others[:SHOWN]) + (", ..." if len(others) > SHOWN else "")
            run = (path / "config.json").exists() and not own
            what = f"already holds a run: {hint}" if run else f"holds {named}: {MOVE_AWAY}"
            raise RunError(f"the directory '{path}' {what}")
    elif path.exists() or path.is_symlink():
        raise RunError(f"'{path}' is a file, but a directory is needed: choose another name")
    _check_parent(path)


def check_file_path(path: str | os.PathLike[str]) -> None:
    """Raise if a file cannot be written at `path`."""
    path = checked_path(path)
    if path.is_dir():
        raise RunError(f"'{path}' is a directory, but a file is needed: choose another name")
    if path.exists() and not path.is_file():
        raise RunError(f"'{path}' is not a regular file: choose another name")
    _check_parent(path)


def check_new_file(path: str | os.PathLike[str], hint: str = "choose another name, or move it away first") -> None:
    """Raise if a file cannot be written at `path`, or is already there; `hint` says what to do then."""
    check_file_path(path)
    if Path(path).exists():
        raise RunError(f"the file '{path}' already exists: {hint}")


def check_no_own_directory(path: Path, file: str, start: str) -> None:
    """Raise if `path` is a directory that the same command wrote: its `file` begins with the text `start`."""
    if (path / file).is_file() and is_own_file(path / file, start):
        raise RunError(f"the directory '{path}' already holds an export: {REPLACE}")


def check_own_file(path: str | os.PathLike[str], start: str) -> None:
    """Raise if a file cannot be written at `path`, or one is there that does not begin with the text `start`."""
    check_file_path(path)
    if os.path.lexists(path) and not is_own_file(Path(path), start):
        raise RunError(f"'{path}' is not a file that this command wrote: choose another name, or move it away first")


def is_own_file(path: Path, start: str) -> bool:
    """Whether a regular file, no link, begins with a text. A killed process may have left only a part of the text."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return start.encode().startswith(file.read(len(start.encode())))


def temporary(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{ending}")


def _check_parent(path: Path) -> None:
    if path.name:
        checked_path(f"{temporary(path, PARTIAL)}{path.suffix}")
    parent = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not parent.exists():
        raise RunError(f"'{path}' cannot be written: '{parent}' is a link to nothing")
    if not parent.is_dir():
        raise RunError(f"'{path}' cannot be written: '{parent}' is a file")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise RunError(f"'{path}' cannot be written: no permission in '{parent}'")


def files_in(path: Path) -> Iterator[str]:
    """The files in a directory, and its empty folders, relative to it. Links are not followed."""
    for folder, folders, files in os.walk(path):
        folders.sort()
        here = Path(folder).relative_to(path)
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from (str(here / name) for name in sorted((*files, *links)))
        if not folders and not files and Path(folder) != path:
            yield f"{here}/"


def matches(entry: str, own: Collection[str]) -> bool:
    return any(fnmatch.fnmatchcase(entry.removesuffix("/"), pattern) for pattern in own)
