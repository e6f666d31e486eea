"""Saving a result that took hours: if its place cannot be written, it is saved at a second one."""

import errno
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from understudy.core.errors import NoSpaceError, RunError


def save_or_rescue(save: Callable[[Path], object], path: str | os.PathLike[str], hint: str = "") -> None:
    """Call `save(path)`. If that fails, save in a new folder of the cache, or of the temporary files.

    Raises an error that names this folder, or says that there is none. `hint` is added to it: what else is kept.
    """
    path = Path(path)
    try:
        save(path)
    except (OSError, RunError) as error:
        reason, hint = _reason(error), f"; {hint}" if hint else ""
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind = NoSpaceError if full else RunError
        for folder in second_places():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                kept = Path(tempfile.mkdtemp(prefix=f"{path.name}-", dir=folder)) / path.name
                save(kept)
            except (OSError, RunError):
                continue
            free = not path.exists() and not path.is_symlink()
            copy = f"; to copy it: cp -r {shlex.quote(str(kept))} {shlex.quote(str(path))}" if free else ""
            raise kind(f"'{path}' cannot be written ({reason}): it is saved in '{kept}'{copy}{hint}") from error
        raise kind(
            f"'{path}' cannot be written ({reason}), nor can the cache and the temporary folder{hint}"
        ) from error


def second_places() -> Iterator[Path]:
    """Folders for results that cannot be saved where they should be."""
    with suppress(RuntimeError):  # there is no home directory
        yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "understudy", "unsaved").expanduser()
    yield Path(tempfile.gettempdir(), f"understudy-{os.getuid()}")


def _reason(error: OSError | RunError) -> str:
    return str(error.strerror if isinstance(error, OSError) and error.strerror else error)
