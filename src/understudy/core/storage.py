"""Files that are whole or absent: written beside their place, then renamed into it."""

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
    """A path to write to; on success it becomes `path`, replacing what was there, and on failure nothing is left."""
    path = Path(path)
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        beside.chmod(0o666 & ~_umask())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def whole_directory(path: str | os.PathLike[str], replace: bool = False) -> Iterator[Path]:
    """A directory to fill; on success it becomes `path`, and on failure nothing is left.

    `path` must be free, unless `replace` says that what is there may go once the new one is whole.
    """
    path = Path(path)
    if not replace:
        check_free(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield beside
        beside.chmod(0o777 & ~_umask())
        if replace and path.exists():
            with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as aside:
                path.replace(Path(aside) / "old")
                beside.replace(path)
        else:
            check_free(path)
            beside.replace(path)
    finally:
        if beside.exists():
            shutil.rmtree(beside)


def check_free(path: str | os.PathLike[str]) -> None:
    """Refuse to write a run where something is already."""
    path = Path(path)
    if path.is_dir() and any(path.iterdir()):
        what = "already holds a run" if (path / "config.json").exists() else "is not empty"
        raise RunError(f"the directory '{path}' {what}: choose another, or remove it first")
    if path.exists() and not path.is_dir():
        raise RunError(f"'{path}' is a file, and a directory is needed: choose another name")
    _check_parent(path)


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a file's place that cannot be written to."""
    path = Path(path)
    if path.is_dir():
        raise RunError(f"'{path}' is a directory, and a file is needed: choose another name")
    _check_parent(path)


def _check_parent(path: Path) -> None:
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise RunError(f"'{path}' cannot be written: '{above}' is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise RunError(f"'{path}' cannot be written: no permission in '{above}'")


def write_json(path: Path, value: Any) -> None:
    with whole_file(path) as beside:
        beside.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    with whole_file(path) as beside, beside.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
