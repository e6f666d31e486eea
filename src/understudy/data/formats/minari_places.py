"""Where Minari data sets are: ids under $MINARI_DATASETS_PATH or ~/.minari/datasets, and other directories."""

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from understudy.core.errors import DemonstrationError
from understudy.core.text import quoted
from understudy.data.formats.minari_metadata import METADATA

ROOT = "MINARI_DATASETS_PATH"
ID = re.compile(r"(?:[-_\w]+/)*[-_\w]+-v\d+")
"""The name of a data set: (namespace/)name-v0."""
DEEPEST, SHOWN = 4, 20
"""Levels of namespaces that are searched, and ids that are shown."""
LONGEST_PATH = 1000


def id_of(path: Path) -> str:
    """The id of a data set at a path: its place under Minari's root, or its name."""
    whole = path.absolute()
    inside = whole.is_relative_to(root().absolute())
    name = whole.relative_to(root().absolute()).as_posix() if inside else whole.name
    return name if ID.fullmatch(name) else f"{re.sub(r'[^-_0-9a-zA-Z]+', '-', whole.name).strip('-') or 'data'}-v0"


def root() -> Path:
    """The directory of all local data sets."""
    return Path(os.environ.get(ROOT) or Path("~/.minari/datasets").expanduser())


def locate(text: str) -> Path:
    """The path of "minari:TEXT": an existing path, or an id under the root; any other text is a new path."""
    return Path(text) if Path(text).exists() or not ID.fullmatch(text) else root() / text


def missing(path: Path) -> DemonstrationError:
    """The error for a path without a data set."""
    if path.is_absolute() and path.is_relative_to(root()) and not path.exists():
        name = path.relative_to(root()).as_posix()
        local = list(islice(_local(root(), 0), SHOWN + 1))
        known = ", ".join(local[:SHOWN]) + (", ..." if len(local) > SHOWN else "") if local else "none"
        return DemonstrationError(
            f"no Minari data set '{quoted(name)}' in '{quoted(root(), LONGEST_PATH)}' (there: {quoted(known, 300)}): "
            f"'minari download {quoted(name)}' downloads one"
        )
    return DemonstrationError(
        f"'{quoted(path, LONGEST_PATH)}' has no data/{METADATA}: pass a Minari data set or its id"
    )


def _local(folder: Path, depth: int) -> Iterator[str]:
    """The ids below a folder."""
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        if (entry / "data" / METADATA).is_file():
            yield entry.relative_to(root()).as_posix()
        elif depth < DEEPEST and entry.is_dir() and not entry.is_symlink() and not entry.name.startswith("."):
            yield from _local(entry, depth + 1)
