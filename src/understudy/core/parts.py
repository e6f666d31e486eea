"""Named parts of a flat observation, such as the entries of a Dict space: (("joint_pos", 7), ("goal", 3))."""

from collections.abc import Iterable, Sequence
from typing import Any

from understudy.core.errors import SettingError, SpecError, unknown
from understudy.core.text import is_line, quoted

Parts = tuple[tuple[str, int], ...]
"""Names and sizes, in the order of the flat observation. Empty if the observation has no names."""
MOST_PARTS, LONGEST_NAME = 1000, 200


def check_parts(parts: Parts, size: int) -> None:
    """Raise SpecError unless the parts have different names and fill an observation of this size."""
    names = [name for name, _ in parts]
    if not all(is_line(name, LONGEST_NAME) and name for name in names) or len(set(names)) < len(names):
        raise SpecError(f"the parts of the observation are called {quoted(names)}: different lines of text are needed")
    if len(parts) > MOST_PARTS or any(type(count) is not int or count < 1 for _, count in parts):
        raise SpecError(f"the observation has {len(parts)} parts, {quoted(parts)}: at most {MOST_PARTS}, none empty")
    total = sum(count for _, count in parts)
    if parts and total != size:
        raise SpecError(f"the parts of the observation have {total} numbers, and the observation has {size}")


def columns(parts: Parts, chosen: Any, setting: str) -> tuple[int, ...] | None:
    """The indices of the flat observation that `chosen` selects: names of parts, indices, or None for all of it.

    Names and indices may be mixed, and stay in the given order. `setting` is the option's name, for errors.
    """
    if chosen is None:
        return None
    if isinstance(chosen, str) or not isinstance(chosen, Iterable):
        raise SettingError(f"{setting} is {quoted(repr(chosen))}: a list of names or indices is needed")
    found: list[Any] = []
    for one in chosen:
        if not isinstance(one, str):
            found.append(one)
        elif one.isdecimal() and one not in dict(parts):
            found.append(int(one))
        else:
            found += _part(parts, one, setting)
    return tuple(found)


def reordered(parts: Parts, wanted: Parts) -> list[int] | None:
    """The columns that bring an observation with `parts` into the order `wanted`; None: it has that order.

    Without a name in common, the order cannot be compared and is taken to be the same. Raises SpecError if only some
    names are the same, or if a part has another size.
    """
    shared = {name for name, _ in parts} & {name for name, _ in wanted}
    if not shared or parts == wanted:
        return None
    if sorted(parts) != sorted(wanted):
        raise SpecError(f"the parts of their observations are {_listed(parts)}, and {_listed(wanted)} are needed")
    found = columns(parts, [name for name, _ in wanted], "parts")
    return None if found is None else list(found)


def _listed(parts: Parts) -> str:
    return quoted(", ".join(f"{name} ({size})" for name, size in parts), 240)


def _part(parts: Parts, name: str, setting: str) -> Sequence[int]:
    if not parts:
        raise SettingError(f"{setting} has the name '{quoted(name)}', and the observation has no names: pass indices")
    start = 0
    for one, size in parts:
        if one == name:
            return range(start, start + size)
        start += size
    raise unknown("part of the observation", quoted(name), [one for one, _ in parts], where=setting)
