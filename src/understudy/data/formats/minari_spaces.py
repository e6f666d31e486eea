"""Gymnasium spaces as the JSON texts of Minari, read with checks and without Minari.

Box            {"type": "Box", "dtype", "shape", "low", "high"}, with bare Infinity
Discrete       {"type": "Discrete", "start", "n"}
MultiDiscrete  {"type": "MultiDiscrete", "dtype", "nvec", "start"}
MultiBinary    {"type": "MultiBinary", "n"}
Text           {"type": "Text", "max_length", "min_length", "charset"}, which only other keys can go around
Dict, Tuple    {"type": "Dict", "subspaces": {...}}, {"type": "Tuple", "subspaces": [...]}
"""

import json
import math
from collections import OrderedDict  # Gymnasium sorts the keys of a plain dict
from typing import Any

import numpy as np
from gymnasium import spaces

from understudy.core.parts import MOST_PARTS
from understudy.core.patterns import mismatch
from understudy.core.text import quoted

DEEPEST = 8
"""Spaces inside spaces."""
MOST_AXES = 8
MOST_NUMBERS = 10_000_000
"""Numbers of a space, with all spaces inside."""
LARGEST = 2**31
"""The most values of a discrete number."""
DTYPES = (
    "float16",
    "float32",
    "float64",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
NUMBER = (int, float)
PATTERNS: dict[str, dict[str, Any]] = {
    "Box": {"dtype": lambda x: x in DTYPES, "shape": [int], "low": (list, *NUMBER), "high": (list, *NUMBER)},
    "Discrete": {"n": int, "start?": int},
    "MultiDiscrete": {"nvec": list, "dtype?": lambda x: x in DTYPES[4:], "start?": (list, None)},
    "MultiBinary": {"n": (int, [int])},
    "Text": {"max_length": int, "min_length?": int, "charset?": str},
    "Dict": {"subspaces": {str: dict}},
    "Tuple": {"subspaces": [dict]},
}
"""What a JSON object of each type must have."""


def parse_space(text: str) -> spaces.Space[Any]:
    """The space of a JSON text. Raises ValueError if it is none."""
    value = json.loads(text)
    if _numbers(value, 0) > MOST_NUMBERS:  # a Box may give its bounds as two numbers, and Gymnasium stores all of them
        raise ValueError(f"a space of more than {MOST_NUMBERS} numbers")
    return _space(value, 0)


def space_text(space: spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.Dict) -> str:
    """The JSON text of a space, as Minari reads it."""
    return json.dumps(_value(space))


def _numbers(value: Any, depth: int) -> int:
    """The numbers in the boxes of a space that is not yet checked."""
    if not isinstance(value, dict) or depth > DEEPEST:
        return 0
    inner, shape = value.get("subspaces", ()), value.get("shape", ())
    if isinstance(inner, dict | list):
        return sum(_numbers(one, depth + 1) for one in (inner.values() if isinstance(inner, dict) else inner))
    whole = isinstance(shape, list) and len(shape) <= MOST_AXES and all(type(length) is int for length in shape)
    return math.prod(shape) if whole else 0


def _space(value: Any, depth: int) -> spaces.Space[Any]:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in PATTERNS:
        raise ValueError(f"a space of type {quoted(repr(kind), 40)}")
    wrong = mismatch(value, PATTERNS[kind], f"the {kind} space")
    if wrong is not None:
        raise ValueError(wrong)
    if kind in ("Dict", "Tuple"):
        inner = value["subspaces"]
        if depth == DEEPEST or not 1 <= len(inner) <= MOST_PARTS:
            raise ValueError(f"a {kind} space with {len(inner)} subspaces at depth {depth}")
        if kind == "Tuple":
            return spaces.Tuple([_space(one, depth + 1) for one in inner])
        return spaces.Dict(OrderedDict((name, _space(one, depth + 1)) for name, one in inner.items()))
    return _leaf(kind, value)


def _leaf(kind: str, value: dict[str, Any]) -> spaces.Space[Any]:
    if kind == "Box":
        shape = tuple(value["shape"])
        _check_shape(shape)
        low, high = (np.asarray(value[key], value["dtype"]) for key in ("low", "high"))
        if any(bound.shape not in ((), shape) or np.isnan(bound.astype(float)).any() for bound in (low, high)):
            raise ValueError(f"a Box space of shape {shape} with bounds of other shapes, or NaN")
        return spaces.Box(np.broadcast_to(low, shape), np.broadcast_to(high, shape), shape, low.dtype.type)
    if kind == "Discrete":
        n, start = value["n"], value.get("start", 0)
        if not 1 <= n <= LARGEST or abs(start) > LARGEST:
            raise ValueError(f"a Discrete space with n = {quoted(n, 40)} and start = {quoted(start, 40)}")
        return spaces.Discrete(n, start=start)
    if kind == "MultiDiscrete":
        nvec, start = np.asarray(value["nvec"]), np.asarray(value.get("start") or 0)
        _check_shape(nvec.shape)
        if (
            {nvec.dtype.kind, start.dtype.kind} != {"i"}
            or nvec.min() < 1
            or max(nvec.max(), abs(start).max()) > LARGEST
        ):
            raise ValueError("a MultiDiscrete space with wrong numbers")
        return spaces.MultiDiscrete(nvec, value.get("dtype", "int64"), start=np.broadcast_to(start, nvec.shape).copy())
    if kind == "MultiBinary":
        n = value["n"]
        _check_shape((n,) if isinstance(n, int) else tuple(n))
        return spaces.MultiBinary(n)
    longest, shortest = value["max_length"], value.get("min_length", 1)
    if not 0 <= shortest <= longest <= LARGEST or not value.get("charset", "a"):
        raise ValueError(f"a Text space of {quoted(shortest, 40)} to {quoted(longest, 40)} characters")
    return spaces.Text(longest, min_length=shortest, charset=value.get("charset", "a"))


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) > MOST_AXES or any(length < 1 for length in shape) or math.prod(shape) > MOST_NUMBERS:
        raise ValueError(f"a space of shape {quoted(shape, 60)}")


def _value(space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "subspaces": {name: _value(one) for name, one in space.spaces.items()}}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "dtype": "int64", "start": int(space.start), "n": int(space.n)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "dtype": "int64", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    assert isinstance(space, spaces.Box)
    bounds = {"low": space.low.tolist(), "high": space.high.tolist()}
    return {"type": "Box", "dtype": str(space.dtype), "shape": list(space.shape), **bounds}
