"""Patterns that JSON values from files must match."""

from collections.abc import Iterator
from typing import Any

from understudy.core.text import quoted


def mismatch(value: Any, pattern: Any, where: str = "it") -> str | None:
    """Why a JSON value does not match a pattern, or None.

    A pattern is a type or a tuple of types (`float` also takes whole numbers), `[pattern]` for a list of any length,
    `{"key": pattern}` for an object with at least these keys, `{str: pattern}` for one with any keys, or a function
    that returns whether a value is allowed. A key that ends with "?" is optional.
    """
    if isinstance(pattern, dict) and str in pattern:
        if not isinstance(value, dict):
            return f"{where} is not an object"
        return _first(mismatch(one, pattern[str], f"'{key}'") for key, one in value.items())
    if isinstance(pattern, dict):
        if not isinstance(value, dict):
            return f"{where} is not an object"
        for key, inner in pattern.items():
            name = key.removesuffix("?")
            if name not in value:
                if key == name:
                    return f"{where} has no '{name}'"
            elif wrong := mismatch(value[name], inner, f"'{name}'"):
                return wrong
        return None
    if isinstance(pattern, list):
        if not isinstance(value, list):
            return f"{where} is not a list"
        return _first(mismatch(one, pattern[0], f"entry {i} of {where}") for i, one in enumerate(value))
    kinds = pattern if isinstance(pattern, tuple) else (pattern,)
    for kind in kinds:
        if kind is None and value is None:
            return None
        if isinstance(kind, type):
            plain = (int, float) if kind is float else kind
            if isinstance(value, plain) and (not isinstance(value, bool) or kind in (bool, object)):
                return None
        elif isinstance(kind, dict | list):
            if mismatch(value, kind, where) is None:
                return None
        elif kind is not None and kind(value):
            return None
    return f"{where} is {quoted(repr(value), 40)}"


def _first(reasons: Iterator[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)
