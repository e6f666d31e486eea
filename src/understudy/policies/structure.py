"""Policies as the structure of a file, and back (`understudy.deploy.structure` has its limits)."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from understudy.core.errors import RunError
from understudy.deploy.forward import Node, build
from understudy.policies.base import Categorical, Deterministic, Independent
from understudy.policies.combined import Ensemble, Normalized, Tabular, TimeIndexed
from understudy.policies.gaussian import Gaussian, StateDependent
from understudy.policies.mixture import Mixture
from understudy.policies.networks import MLP
from understudy.policies.normalization import Normalization
from understudy.policies.wrapped import Binned, Timed

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
        Mixture,
        StateDependent,
        Tabular,
        TimeIndexed,
        Binned,
        Timed,
    )
}


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


def rebuild(node: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of `describe`."""
    if "class" in node:
        return CLASSES[node["class"]](**{name: rebuild(field, arrays) for name, field in node["fields"].items()})
    if "tuple" in node:
        return tuple(rebuild(item, arrays) for item in node["tuple"])
    return arrays[node["array"]] if "array" in node else node["value"]


def as_nodes(policy: Any) -> Node:
    """The policy for NumPy alone."""
    arrays: dict[str, np.ndarray] = {}
    structure = describe(policy, "policy", arrays)
    node: Node = build(structure, arrays)
    return node
