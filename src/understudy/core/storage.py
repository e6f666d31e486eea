"""Atomic files and directories: written under a temporary name in the same folder, then renamed."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import RunError


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to. On success it is renamed to `path`, replacing an old file; on failure removed."""
    path = Path(path)
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o666 & ~_umask())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_directory(path: str | os.PathLike[str], replace: bool = False) -> Iterator[Path]:
    """A temporary directory to fill. On success it is renamed to `path`; on failure removed.

    `path` must not exist, unless `replace` is set: then the old directory is removed after the new one is complete.
    """
    path = Path(path)
    if not replace:
        check_free(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield partial
        partial.chmod(0o777 & ~_umask())
        if replace and path.exists():
            with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as trash:
                path.replace(Path(trash) / "old")
                partial.replace(path)
        else:
            check_free(path)
            partial.replace(path)
    finally:
        if partial.exists():
            shutil.rmtree(partial)


def check_free(path: str | os.PathLike[str]) -> None:
    """Raise if the directory is not empty or cannot be written."""
    path = Path(path)
    if path.is_dir() and any(path.iterdir()):
        what = "already holds a run" if (path / "config.json").exists() else "is not empty"
        raise RunError(f"the directory '{path}' {what}: choose another, or remove it first")
    if path.exists() and not path.is_dir():
        raise RunError(f"'{path}' is a file, but a directory is needed: choose another name")
    _check_parent(path)


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise if the file cannot be written."""
    path = Path(path)
    if path.is_dir():
        raise RunError(f"'{path}' is a directory, but a file is needed: choose another name")
    _check_parent(path)


def _check_parent(path: Path) -> None:
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise RunError(f"'{path}' cannot be written: '{parent}' is a file")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise RunError(f"'{path}' cannot be written: no permission in '{parent}'")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    """Write a compressed npz file atomically."""
    with whole_file(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
