"""The structure of a policy as JSON: classes, fields and the names of arrays. Nothing in it can name other code."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np

from understudy.core.errors import RunError, UnderstudyError
from understudy.core.patterns import mismatch
from understudy.core.text import quoted
from understudy.core.types import MOST_STEPS, ActionSpace, Continuous, Discrete, MultiDiscrete, Spec
from understudy.policies.base import Categorical, Deterministic, Independent
from understudy.policies.combined import Ensemble, Normalized, Tabular, TimeIndexed
from understudy.policies.gaussian import Gaussian, StateDependent
from understudy.policies.networks import MLP
from understudy.policies.normalization import Normalization

MOST_NODES, DEEPEST = 100_000, 16
"""Limits of a structure."""
MOST_OBSERVED = 10_000_000
"""Numbers of an observation."""
CLASSES: dict[str, type[eqx.Module]] = {
    cls.__name__: cls
    for cls in (
        MLP,
        Normalization,
        Categorical,
        Independent,
        Ensemble,
        Deterministic,
        Normalized,
        Gaussian,
        StateDependent,
        Tabular,
        TimeIndexed,
    )
}
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


def describe(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """A JSON value for a module: its class and fields. Arrays go into `arrays` under their path."""
    if isinstance(value, eqx.Module):
        if type(value).__name__ not in CLASSES:
            raise RunError(f"a policy of class {type(value).__name__} cannot be saved: use {', '.join(CLASSES)}")
        fields = {name: describe(getattr(value, name), f"{path}.{name}", arrays) for name in vars(value)}
        return {"class": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return {"tuple": [describe(item, f"{path}.{i}", arrays) for i, item in enumerate(value)]}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        arrays[path] = np.asarray(value)
        return {"array": path}
    return {"value": value}


def array_names(node: Any) -> set[str]:
    """The arrays that a structure refers to. Raises ValueError if it is not one that `describe` makes."""
    names: set[str] = set()
    waiting, seen = [(node, 0)], 0
    while waiting:
        (one, depth), seen = waiting.pop(), seen + 1
        if not isinstance(one, dict) or depth > DEEPEST or seen > MOST_NODES:
            raise ValueError("its structure is too large, too deep, or no structure")
        keys = set(one)
        if keys == {"class", "fields"} and isinstance(one["class"], str) and one["class"] in CLASSES:
            expected = {field.name for field in dataclasses.fields(CLASSES[one["class"]])}
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


def rebuild(node: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of `describe`."""
    if "class" in node:
        return CLASSES[node["class"]](**{name: rebuild(field, arrays) for name, field in node["fields"].items()})
    if "tuple" in node:
        return tuple(rebuild(item, arrays) for item in node["tuple"])
    return arrays[node["array"]] if "array" in node else node["value"]


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
