"""The interface of a format: how to recognise, read and write one kind of data set."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from understudy.core.errors import SettingError
from understudy.core.text import quoted
from understudy.data.demonstrations import Demonstrations, Ends


@dataclass(frozen=True)
class Selection:
    """The part of a data set to read."""

    keys: tuple[str, ...] = ()
    """Observation keys, in this order; empty: the format's default."""
    filter: str | None = None
    """A named subset of the episodes, such as robomimic's "train"."""
    episodes: int | None = None
    """Only the first episodes; None: all."""
    ends: Ends | None = None
    """How episodes end if the data set does not say."""


@dataclass(frozen=True)
class Format:
    """One kind of data set. A module of this folder has one, called FORMAT."""

    name: str
    """The prefix of `load("name:...")`."""
    title: str
    recognises: Callable[[Path], bool]
    """Whether a file or directory looks like this format, by its names and first bytes. It never raises."""
    read: Callable[[Path, Selection], Demonstrations]
    """Read it. Whatever is wrong with it is a DemonstrationError in one line that names the file."""
    write: Callable[[Demonstrations, Path, bool], None] | None = None
    """Write a file or directory at a path, atomically. The last argument: replace an old one of this format."""
    suffix: str | None = None
    """The ending of the files that it writes; None: it writes a directory."""
    locate: Callable[[str], Path] = Path
    """The path of the text after "name:", such as a Minari id."""


def chosen(demonstrations: Demonstrations, selection: Selection, format_: Format) -> Demonstrations:
    """The parts of the observations that a selection names, for a format that has no named subsets of episodes."""
    if selection.filter is not None:
        raise SettingError(
            f"filter is '{quoted(selection.filter)}', and {format_.title} files have no named subsets: leave it out"
        )
    return demonstrations.with_keys(selection.keys) if selection.keys else demonstrations
