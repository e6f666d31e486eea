"""The structure of a policy file: classes, fields and the names of arrays. Nothing in it can name other code."""

import dataclasses
from typing import Any

import numpy as np

from understudy.core.errors import UnderstudyError
from understudy.core.patterns import mismatch
from understudy.core.spec import MOST_STEPS, ActionSpace, Continuous, Discrete, MultiDiscrete, Spec
from understudy.core.text import quoted
from understudy.deploy.forward import FIELDS

MOST_NODES, DEEPEST = 100_000, 16
"""Limits of a structure."""
MOST_OBSERVED = 10_000_000
"""Numbers of an observation."""
SPEC = {
    "obs_shape": [int],
    "action": ({"n": int}, {"nvec": [int]}, {"low": [float], "high": [float]}),
    "horizon": lambda value: type(value) is int and 1 <= value <= MOST_STEPS,
    "policy_obs?": (None, [int]),
    "critic_obs?": (None, [int]),
    "obs_parts?": [lambda pair: isinstance(pair, list) and len(pair) == 2],
    "kind": lambda value: value in ("Discrete", "MultiDiscrete", "Continuous"),
}
"""The pattern of a spec."""


def array_names(node: Any) -> set[str]:
    """The arrays that a structure refers to. Raises ValueError if it is not one that `describe` makes."""
    names: set[str] = set()
    waiting, seen = [(node, 0)], 0
    while waiting:
        (one, depth), seen = waiting.pop(), seen + 1
        if not isinstance(one, dict) or depth > DEEPEST or seen > MOST_NODES:
            raise ValueError("its structure is too large, too deep, or no structure")
        keys = set(one)
        if keys == {"class", "fields"} and isinstance(one["class"], str) and one["class"] in FIELDS:
            expected = set(FIELDS[one["class"]])
            if not isinstance(one["fields"], dict) or set(one["fields"]) != expected:
                raise ValueError(f"the fields of its {one['class']} are not {', '.join(sorted(expected))}")
            waiting += [(field, depth + 1) for field in one["fields"].values()]
        elif keys == {"tuple"} and isinstance(one["tuple"], list):
            waiting += [(item, depth + 1) for item in one["tuple"]]
        elif keys == {"array"} and isinstance(one["array"], str) and one["array"] not in names:
            names.add(one["array"])
        elif keys != {"value"} or not isinstance(one["value"], bool | int | float | str | None):
            raise ValueError(f"its structure contains {quoted(one, 60)}")
    return names


def describe_spec(spec: Spec) -> dict[str, Any]:
    """A spec as JSON values; `read_spec` is the inverse."""
    return {**dataclasses.asdict(spec), "kind": type(spec.action).__name__}


def read_spec(values: Any) -> Spec:
    """A spec from JSON values. Raises ValueError if they are not those of one."""
    wrong = mismatch(values, SPEC, "the spec")
    if wrong is not None:
        raise ValueError(wrong)
    action, shape = values["action"], tuple(values["obs_shape"])
    if any(length < 1 for length in shape) or int(np.prod(shape, dtype=object)) > MOST_OBSERVED:
        raise ValueError(f"observations of shape {quoted(shape)}")
    try:
        space: ActionSpace
        if values["kind"] == "Continuous":
            space = Continuous(action["low"], action["high"])
        else:
            space = Discrete(action["n"]) if values["kind"] == "Discrete" else MultiDiscrete(tuple(action["nvec"]))
        parts = tuple((name, size) for name, size in values.get("obs_parts", ()))
        return Spec(shape, space, values["horizon"], values.get("policy_obs"), parts, values.get("critic_obs"))
    except KeyError as error:
        raise ValueError("the spec has actions of another kind") from error
    except UnderstudyError as error:
        raise ValueError(str(error)) from error
