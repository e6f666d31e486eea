"""Whether a policy can act: its arrays and settings fit each other and the task's spec, and its numbers are sound."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from understudy.core.errors import SpecError
from understudy.core.spec import MOST_STEPS, Continuous, Discrete, MultiDiscrete, Spec, action_kind
from understudy.core.text import quoted
from understudy.deploy.forward import MOST_POINTS, Node

ACTIVATIONS = ("relu", "tanh", "identity")

LARGEST = 1e37
"""Outputs of a layer must stay below this: float32 ends at 3e38."""
LARGEST_OBS = 1e3
"""The size of the observations for which that is checked."""
MOST_COMPONENTS = 10_000
"""Of a mixture."""
LOG_STD = (-100.0, 20.0)
"""The range of log σ. The lower end is σ = 0 in effect."""


def check_policy(policy: Any, spec: Spec, diverged: bool = False) -> None:
    """Raise SpecError if the policy, a `Node`, cannot act in a task with this spec.

    The numbers in the arrays of a policy that `diverged` may be anything.
    """
    with np.errstate(all="ignore"):
        _Check(spec, diverged).policy(policy, (), LARGEST_OBS)


@dataclass(frozen=True)
class _Check:
    """Checks of one policy.

    In all methods, `stack` are leading axes of the arrays, from time-indexed policies and ensembles, and `reach` is how
    large the inputs can be.
    """

    spec: Spec
    diverged: bool

    def policy(self, policy: Any, stack: tuple[int, ...], reach: float) -> None:
        if _is(policy, "Normalized"):
            self.policy(policy.policy, stack, self.normalization(policy.normalization, stack, reach))
        elif _is(policy, "Timed"):
            whole = type(policy.horizon) is int and 1 <= policy.horizon <= MOST_STEPS
            _need(whole and len(self.spec.obs_shape) == 1, f"the horizon is {quoted(repr(policy.horizon))}")
            wider = replace(self.spec, obs_shape=(self.spec.obs_size + 1,), obs_parts=())
            _Check(wider, self.diverged).policy(policy.policy, stack, reach)
        elif _is(policy, "TimeIndexed"):
            self.policy(policy.policies, (*stack, _count(policy.policies, stack)), reach)
        elif _is(policy, "Ensemble"):
            known = _is(policy.members, "Deterministic", "Categorical")
            _need(known, "an ensemble of other policies than deterministic or categorical ones")
            self.policy(policy.members, (*stack, _count(policy.members, stack)), reach)
        elif _is(policy, "Tabular"):
            self.table(policy.table, stack)
        else:
            self.network_policy(policy, stack, reach)

    def table(self, table: Any, stack: tuple[int, ...]) -> None:
        _need(self.spec.obs_shape == () and isinstance(self.spec.action, Discrete), "a table for a task that has none")
        states = table.shape[-2] if getattr(table, "ndim", 0) > 1 else 0
        _need(states > 0, "a table without states")
        self.array("table", table, (*stack, states, self.spec.action_size))
        self.sound((table >= 0).all() and np.allclose(table.sum(-1), 1, atol=1e-3), "its rows are not probabilities")

    def network_policy(self, policy: Any, stack: tuple[int, ...], reach: float) -> None:
        space = self.spec.action
        kinds: dict[str, tuple[str, ...]] = {
            "discrete": ("Categorical",),
            "multi-discrete": ("Independent",),
            "continuous": ("Deterministic", "Gaussian", "Mixture", "StateDependent", "Binned"),
        }
        found = policy.kind if isinstance(policy, Node) else type(policy).__name__
        _need(_is(policy, *kinds[action_kind(space)]), f"a {found} for {action_kind(space)} actions")
        if isinstance(space, MultiDiscrete):
            _need(policy.nvec == space.nvec, f"nvec is {quoted(repr(policy.nvec))}")
        self.network(policy.net, stack, self.outputs(policy), reach)
        if policy.kind == "Deterministic":
            _need(isinstance(policy.squash, bool), f"squash is {quoted(repr(policy.squash))}")
            _need(policy.clip is None or _is_number(policy.clip, 0, LARGEST), f"clip is {quoted(repr(policy.clip))}")
        elif policy.kind in ("Gaussian", "Mixture"):
            low, high = policy.log_std_min, policy.log_std_max
            ordered = _is_number(low, *LOG_STD) and _is_number(high, *LOG_STD) and low <= high
            _need(ordered, f"log σ from {quoted(repr(low))} to {quoted(repr(high))}")
        if policy.kind == "Gaussian":
            _need(policy.bound in ("tanh", "clip"), f"bound is {quoted(repr(policy.bound))}")
        elif policy.kind == "StateDependent":
            self.array("log_std", policy.log_std, (*stack, *policy.net.weights[-1].shape[-2:]))
            self.sound(_largest(policy.log_std) <= -LOG_STD[0], "log_std is out of range")
            self.sound(float(policy.log_std.max()) <= LOG_STD[1], "log_std is out of range")
            _need(_is_number(policy.clip, 0, LARGEST), f"clip is {quoted(repr(policy.clip))}")
            whole = isinstance(policy.hold, int) and _is_number(policy.hold, 0, MOST_STEPS)
            _need(whole, f"hold is {quoted(repr(policy.hold))}")

    def outputs(self, policy: Any) -> int:
        """The number of outputs of a policy's network."""
        size = self.spec.action_size
        if policy.kind == "Binned":
            return self.grid(policy)
        if policy.kind == "Mixture":
            count = policy.components
            whole = isinstance(count, int) and _is_number(count, 0, MOST_COMPONENTS)
            _need(whole, f"components is {quoted(repr(count))}")
            return int(count) * (1 + 2 * size)
        return size * (2 if policy.kind == "Gaussian" else 1)

    def grid(self, policy: Any) -> int:
        """The number of actions of a policy on a grid."""
        whole = type(policy.bins) is int and 2 <= policy.bins <= MOST_POINTS and policy.size == self.spec.action_size
        within = whole and policy.size * math.log(policy.bins) <= math.log(MOST_POINTS) + 1e-9
        _need(within, f"bins is {quoted(repr(policy.bins))} in {quoted(repr(policy.size))} dimensions")
        return int(policy.bins**policy.size)

    def network(self, net: Any, stack: tuple[int, ...], outputs: int, reach: float) -> None:
        shape = self.spec.obs_shape
        _need(_is(net, "MLP") and len(shape) == 1, f"no network for observations of shape {shape}")
        _need(net.activation in ACTIVATIONS, f"activation is {quoted(repr(net.activation))}")
        width, indices = shape[0], net.input_indices
        if indices is not None:
            whole = isinstance(indices, tuple) and all(type(i) is int and 0 <= i < width for i in indices)
            _need(bool(whole and indices), f"input_indices is {quoted(repr(indices))} for {width} observations")
            width = len(indices)
        layers = len(net.weights) if isinstance(net.weights, tuple) and isinstance(net.biases, tuple) else 0
        _need(layers > 0 and len(net.biases) == layers, "a network without layers of weights and biases")
        for i, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
            units = outputs if i == layers - 1 else _units(weight)
            self.array(f"weights {i}", weight, (*stack, width, units))
            self.array(f"biases {i}", bias, (*stack, units))
            reach = reach * width * _largest(weight) + _largest(bias)
            self.sound(reach <= LARGEST, "its weights are so large that actions overflow")
            reach, width = (1.0 if net.activation == "tanh" else reach), units

    def normalization(self, values: Any, stack: tuple[int, ...], reach: float) -> float:
        """How large normalized observations can be."""
        shape = self.spec.obs_shape
        _need(_is(values, "Normalization") and len(shape) == 1, f"no normalization for observations of shape {shape}")
        for name in ("obs_mean", "obs_std"):
            self.array(name, getattr(values, name), (*stack, *shape))
        self.sound((values.obs_std > 0).all(), "obs_std is not above 0")
        if isinstance(self.spec.action, Continuous):
            for name in ("act_center", "act_scale"):
                self.array(name, getattr(values, name), (*stack, *self.spec.action.shape))
            self.sound((values.act_scale > 0).all(), "act_scale is not above 0")
            self.sound(_largest(values.act_center) + _largest(values.act_scale) <= LARGEST, "actions overflow")
        else:
            _need(values.act_center is None and values.act_scale is None, "a range of discrete actions")
        reach = float(np.float64(reach + _largest(values.obs_mean)) / values.obs_std.min())
        self.sound(reach <= LARGEST, "obs_mean and obs_std are so large or small that observations overflow")
        clip = values.obs_clip
        _need(clip is None or _is_number(clip, 0, LARGEST), f"obs_clip is {quoted(repr(clip))}")
        return reach if clip is None else min(reach, float(clip))

    def array(self, name: str, value: Any, shape: tuple[int, ...]) -> None:
        """Raise unless the value is an array of finite floats of this shape."""
        fine = isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64) and value.dtype.isnative
        _need(fine, f"{name} is not an array of float32 or float64 numbers")
        _need(value.shape == shape, f"{name} has shape {value.shape}, not {shape}")
        self.sound(math.isfinite(_largest(value)), f"{name} has NaN or infinite numbers")

    def sound(self, condition: Any, reason: str) -> None:
        """Raise unless the numbers are sound, or may be anything."""
        _need(bool(condition) or self.diverged, reason)


def _count(policies: Any, stack: tuple[int, ...]) -> int:
    """How many policies are stacked: the length of their arrays' next axis."""
    shape = next((leaf.shape for leaf in _leaves(policies) if isinstance(leaf, np.ndarray)), ())
    _need(len(shape) > len(stack) and shape[len(stack)] > 0, "an empty stack of policies")
    return int(shape[len(stack)])


def _leaves(value: Any) -> Iterator[Any]:
    inner = value if isinstance(value, tuple) else vars(value).values() if isinstance(value, Node) else None
    if inner is None:
        yield value
    else:
        for one in inner:
            yield from _leaves(one)


def _is(value: Any, *kinds: str) -> bool:
    return isinstance(value, Node) and value.kind in kinds


def _units(weight: Any) -> int:
    units = weight.shape[-1] if isinstance(weight, np.ndarray) and weight.ndim else 0
    _need(units > 0, "a layer without units")
    return int(units)


def _largest(array: np.ndarray) -> float:
    """The largest absolute value, without a copy of the array; NaN if there is one."""
    return max(float(array.max()), -float(array.min())) if array.size else 0.0


def _is_number(value: Any, low: float, high: float) -> bool:
    """Whether a JSON value is a number above `low`, up to `high`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low < value <= high


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise SpecError(reason)
