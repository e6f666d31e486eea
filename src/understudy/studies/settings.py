"""Hyperparameters as a file can say them: numbers, words, lists and tables, made what the algorithm's fields are.

float        a finite number                        a field's class, such as sac = { lr = 1e-3 }: a table that
int          a whole number                         replaces some of the fields of what is there
bool         true or false                          something or None: "none" stands for None
words        one of them                            tuples: a list
"""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from understudy.algorithms import find
from understudy.core.errors import SettingError, unknown

Names = tuple[str, ...]
At = Callable[[Names], str]
"""From a setting's names, outermost first, to what its errors begin with: where it stands."""
NONE = "none"


def overrides(algorithm: str, preset: str, settings: Mapping[str, Any], at: At = lambda names: "") -> dict[str, Any]:
    """The settings as arguments of `Algorithm.preset`."""
    return _fields(find(algorithm).preset(preset), settings, (), at, algorithm)


def _fields(value: Any, given: Mapping[str, Any], names: Names, at: At, owner: str) -> dict[str, Any]:
    known = [field.name for field in dataclasses.fields(value)]
    hints, found = typing.get_type_hints(type(value)), {}
    for name, setting in given.items():
        where = (*names, name)
        if name not in known:
            error = unknown("hyperparameter", name, known, place=owner)
            raise type(error)(f"{at(where)}{error}")
        found[name] = _fitted(hints[name], setting, getattr(value, name), where, at)
    return found


def _fitted(kind: Any, value: Any, default: Any, names: Names, at: At) -> Any:
    def wrong(needed: str) -> SettingError:
        return SettingError(f"{at(names)}{'.'.join(names)} is {value!r}: {needed} is needed")

    options = get_args(kind)
    if get_origin(kind) in (typing.Union, types.UnionType) and types.NoneType in options:
        if value is None or value == NONE:
            return None
        (kind,) = (option for option in options if option is not types.NoneType)
        options = get_args(kind)
    if get_origin(kind) is Literal:
        if value not in options:
            raise wrong(f"one of {', '.join(map(repr, options))}")
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise wrong("a list")
        return tuple(
            _fitted(options[0], item, None, (*names[:-1], f"{names[-1]}[{i}]"), at) for i, item in enumerate(value)
        )
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise wrong(f"a table of settings of {kind.__name__}")
        changes = _fields(default, value, names, at, kind.__name__)
        try:
            return dataclasses.replace(default, **changes)
        except SettingError as error:
            raise SettingError(f"{at((*names, *named_by(error, value)))}{'.'.join(names)}: {error}") from error
    if kind is bool:
        if not isinstance(value, bool):
            raise wrong("true or false")
        return value
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong("a whole number")
        return value
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise wrong("a finite number")
        return float(value)
    if not callable(value):
        raise wrong("a function, which only a study made in Python can hold,")
    return value


def named_by(error: Exception, settings: Mapping[str, Any]) -> Names:
    """The setting that an algorithm's own message begins with, if it is among these."""
    word = str(error).split(" ", 1)[0].split("[", 1)[0]
    return (word,) if word in settings else ()
