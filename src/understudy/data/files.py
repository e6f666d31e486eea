"""`load` and `save`: demonstrations in any format, recognised by looking at the file, and the bundled ones."""

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from understudy.core.errors import DemonstrationError, SettingError, unknown
from understudy.core.paths import checked_path
from understudy.core.text import quoted
from understudy.core.types import MultiDiscrete
from understudy.data.demonstrations import Demonstrations, Ends
from understudy.data.formats import FORMATS, Format, Selection

LONGEST_PATH = 1000
MULTI_DISCRETE = ("npz", "minari")
"""Formats that hold multi-discrete actions."""
WITHOUT_ACTIONS = ("npz", "csv", "arrays")
"""Formats that hold demonstrations without actions."""


def bundled() -> dict[str, Path]:
    """The bundled demonstrations: name → file."""
    folder = Path(str(resources.files("understudy.data") / "bundled"))
    return {path.stem: path for path in sorted(folder.glob("*.npz"))}


def load(
    source: str | os.PathLike[str],
    episodes: int | None = None,
    ends: Ends | None = None,
    keys: Sequence[str] = (),
    filter: str | None = None,
) -> Demonstrations:
    """Load demonstrations: the name of a bundled task, the path of a data set in any known format, or "format:path".

    Args:
        source: The format is recognised by looking. "minari:ID", "lerobot:DIR" and so on name it.
        episodes: Keep only the first ones.
        ends: How episodes end if the data does not say: at a time limit (the default) or in a terminal state.
        keys: Observation keys to use, in this order, for formats with several.
        filter: A named subset of the episodes, for formats that have them.
    """
    name = str(checked_path(source))
    if isinstance(keys, str):
        raise SettingError(f"keys is {keys!r}: a list of names is needed, such as [{keys!r}]")
    selection = Selection(tuple(keys), filter, episodes, ends)
    format_, path = find_format(name)
    demonstrations = format_.read(path, selection)
    return demonstrations if episodes is None else demonstrations.first(episodes)


def save(demonstrations: Demonstrations, target: str | os.PathLike[str], replace: bool = True) -> None:
    """Write demonstrations. The ending of the path chooses the format, or "format:path" names it.

    On an error no partial file is left. With `replace=False` an old file stays, and RunError is raised.
    """
    name = str(checked_path(target))
    format_, path = target_format(name)
    if isinstance(demonstrations.recorded_space, MultiDiscrete) and format_.name not in MULTI_DISCRETE:
        raise SettingError(
            f"{format_.title} files cannot hold multi-discrete actions: write one of {', '.join(MULTI_DISCRETE)}"
        )
    if not demonstrations.has_actions and format_.name not in WITHOUT_ACTIONS:
        raise SettingError(
            f"{format_.title} files cannot hold demonstrations without actions: write one of "
            f"{', '.join(WITHOUT_ACTIONS)}"
        )
    assert format_.write is not None
    format_.write(demonstrations, path, replace)


def find_format(source: str | os.PathLike[str]) -> tuple[Format, Path]:
    """The format and the path of a data set. `load` says what `source` may be."""
    name = str(checked_path(source))
    known = bundled()
    if name in known:
        return FORMATS["npz"], known[name]
    prefix, colon, rest = name.partition(":")
    if colon and prefix in FORMATS and not Path(name).exists():
        return FORMATS[prefix], FORMATS[prefix].locate(rest)
    path = Path(name)
    if not path.exists():
        if path.suffix or os.sep in name:
            raise DemonstrationError(
                f"no file '{quoted(name, LONGEST_PATH)}': check the path, or pass a bundled name ({', '.join(known)})"
            )
        raise unknown("demonstrations", quoted(name), known, "Or pass the path of a data set.")
    found = [one for one in FORMATS.values() if one.recognises(path)]
    if len(found) > 1:
        names = " or ".join(f"{one.name}:{quoted(name, LONGEST_PATH)}" for one in found)
        raise DemonstrationError(f"'{quoted(name, LONGEST_PATH)}' may have several formats: pass {names}")
    if not found and path.is_dir():
        raise DemonstrationError(
            f"'{quoted(name, LONGEST_PATH)}' is a directory of no known format: docs/demonstrations.md lists them; "
            "'format:PATH' says what is missing"
        )
    return (found[0] if found else _by_ending(path) or FORMATS["npz"]), path


def target_format(target: str | os.PathLike[str], strict: bool = False) -> tuple[Format, Path]:
    """The format and the path to write. An unknown ending or format raises. No ending: npz; with `strict` it raises."""
    name = str(checked_path(target))
    prefix, colon, rest = name.partition(":")
    if colon and prefix in FORMATS:
        if FORMATS[prefix].write is None:
            known = ", ".join(f"{one.name}:PATH" for one in FORMATS.values() if one.write is not None)
            raise SettingError(f"{FORMATS[prefix].title} data sets cannot be written: choose one of {known}")
        return FORMATS[prefix], FORMATS[prefix].locate(rest)
    path = Path(name)
    found = _by_ending(path)
    named = bool(path.suffix) or (bool(colon) and os.sep not in prefix)
    if found is None and (strict or named):
        endings = " or ".join(one.suffix for one in FORMATS.values() if one.suffix and one.write is not None)
        folders = ", ".join(f"{one.name}:PATH" for one in FORMATS.values() if not one.suffix and one.write is not None)
        raise SettingError(
            f"'{quoted(name, LONGEST_PATH)}' names no known format: choose the ending {endings}, or a directory, "
            f"{folders}"
        )
    return found or FORMATS["npz"], path


def _by_ending(path: Path) -> Format | None:
    return next((one for one in FORMATS.values() if one.suffix and path.suffix == one.suffix), None)
