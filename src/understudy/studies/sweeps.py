"""Sweeps: a list of values for a setting means one algorithm for each value.

settings = { lr = [1e-4, 3e-4] }                 two algorithms
settings = { lr = [1e-4, 3e-4], decay = [true, false] }    four: all combinations
settings = { hidden = [64, 64] }                 one: `hidden` is a list itself
settings = { hidden = [[64, 64], [256, 256]] }   two
settings = { sac = { lr = [1e-4, 3e-4] } }       two, of a player's setting
"""

import dataclasses
import itertools
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from understudy.core.errors import SettingError
from understudy.core.text import quoted

MOST_COMBINATIONS = 200
Axes = dict[tuple[str, ...], list[Any]]
"""The path of each swept setting, such as ("sac", "lr"), and its values."""


def combinations(current: Any, settings: Mapping[str, Any]) -> list[tuple[dict[str, Any], list[tuple[str, ...]]]]:
    """The settings of each combination, and the paths of the settings that are swept.

    `current` is the algorithm before the settings. Settings that it does not have stay as they are.
    """
    axes = _axes(current, settings, ())
    check_axes({".".join(path): values for path, values in axes.items()})
    return [
        (_replaced(settings, dict(zip(axes, values, strict=True)), ()), list(axes))
        for values in itertools.product(*axes.values())
    ]


def check_axes(axes: Mapping[str, Sequence[Any]]) -> None:
    """Raise if a sweep has no values, a value twice, or too many combinations."""
    for name, values in axes.items():
        if not values:
            raise SettingError(f"{name} is []: at least one value is needed")
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise SettingError(f"{name} has the value {quoted(repr(twice))} twice: give each value once")
    count = math.prod(len(values) for values in axes.values())
    if count > MOST_COMBINATIONS:
        factors = " × ".join(f"{len(values)} of {name}" for name, values in axes.items())
        raise SettingError(f"{count} combinations of settings ({factors}): at most {MOST_COMBINATIONS} are allowed")


def is_tuple(kind: Any) -> bool:
    """Whether a field's type is a tuple, or a tuple or None."""
    return get_origin(_without_none(kind)) is tuple


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (typing.Union, types.UnionType):
        rest = [option for option in get_args(kind) if option is not types.NoneType]
        return rest[0] if len(rest) == 1 else kind
    return kind


def _axes(current: Any, settings: Mapping[str, Any], path: tuple[str, ...]) -> Axes:
    axes: Axes = {}
    hints = typing.get_type_hints(type(current))
    for name, value in settings.items():
        here = (*path, name)
        inner = getattr(current, name, None)
        if isinstance(value, Mapping) and dataclasses.is_dataclass(inner):
            axes |= _axes(inner, value, here)
        elif isinstance(value, list) and name in hints:
            lists = all(isinstance(item, list | tuple) for item in value)
            if not is_tuple(hints[name]) or (value and lists):
                axes[here] = value
    return axes


def _replaced(settings: Mapping[str, Any], chosen: Mapping[tuple[str, ...], Any], path: tuple[str, ...]) -> Any:
    """The settings with the chosen values in place of the lists."""
    new = {}
    for name, value in settings.items():
        here = (*path, name)
        if here in chosen:
            new[name] = chosen[here]
        else:
            new[name] = _replaced(value, chosen, here) if isinstance(value, Mapping) else value
    return new
