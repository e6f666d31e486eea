"""Hyperparameters from a study file: TOML values converted to the types of an algorithm's fields.

field's type         TOML value
float                finite number
int                  whole number
bool                 true or false
Literal              one of its strings
tuple                list
X | None             X, or "none" for None
dataclass            table that replaces some of its fields, such as sac = { lr = 1e-3 }
"""

import dataclasses
import math
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any, Literal, get_args, get_origin

from understudy.algorithms import find
from understudy.core.errors import SettingError, unknown

NONE = "none"
LARGEST = 3e38
"""Settings are float32 in a compiled program, where larger numbers are infinite."""


def overrides(algorithm: str, preset: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as arguments of `Algorithm.preset`."""
    return _convert_fields(find(algorithm).preset(preset), settings, "", algorithm)


def _convert_fields(current: Any, settings: Mapping[str, Any], prefix: str, owner: str) -> dict[str, Any]:
    known = [field.name for field in dataclasses.fields(current)]
    hints, converted = typing.get_type_hints(type(current)), {}
    for name, value in settings.items():
        if name not in known:
            raise unknown("hyperparameter", name, known, where=owner)
        converted[name] = _convert(hints[name], value, getattr(current, name), f"{prefix}{name}")
    return converted


def _convert(kind: Any, value: Any, current: Any, name: str) -> Any:
    options = get_args(kind)
    if get_origin(kind) in (typing.Union, types.UnionType) and types.NoneType in options:
        if value is None or value == NONE:
            return None
        (kind,) = (option for option in options if option is not types.NoneType)
        options = get_args(kind)
    if get_origin(kind) is Literal:
        if value not in options:
            raise _wrong(name, value, f"one of {', '.join(map(repr, options))}")
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(name, value, "a list")
        return tuple(_convert(options[0], item, None, f"{name}[{i}]") for i, item in enumerate(value))
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise _wrong(name, value, f"a table of {kind.__name__} settings")
        changes = _convert_fields(current, value, f"{name}.", kind.__name__)
        try:
            return dataclasses.replace(current, **changes)
        except SettingError as error:
            raise SettingError(f"{name}: {error}") from error
    return _convert_scalar(kind, value, name)


def _convert_scalar(kind: Any, value: Any, name: str) -> Any:
    if kind is bool:
        if not isinstance(value, bool):
            raise _wrong(name, value, "true or false")
        return value
    if kind is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(name, value, "a whole number")
        return value
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise _wrong(name, value, "a finite number")
        if abs(value) > LARGEST:
            raise _wrong(name, value, f"a number of at most {LARGEST:g}")
        return float(value)
    if not callable(value):
        raise SettingError(f"{name} is {value!r}: a function is needed, so set it in Python and not in a file")
    return value


def _wrong(name: str, value: Any, needed: str) -> SettingError:
    return SettingError(f"{name} is {value!r}: {needed} is needed")


def selected(settings: Mapping[str, Any], paths: Collection[tuple[str, ...]]) -> dict[str, Any]:
    """The settings at some paths, such as ("sac", "lr")."""
    chosen: dict[str, Any] = {}
    for path in paths:
        value, place = settings, chosen
        for name in path[:-1]:
            value, place = value[name], place.setdefault(name, {})
        place[path[-1]] = value[path[-1]]
    return chosen


def setting_texts(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    """name=value for each setting; a player's settings have dotted names."""
    texts = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and "class" not in value:
            texts += setting_texts(value, f"{prefix}{name}.")
        else:
            texts.append(f"{prefix}{name}={tuple(value) if isinstance(value, list) else value}")
    return texts
