"""A first guess of which keys and gamepad axes mean which action."""

from typing import Any

import numpy as np

from understudy.core.types import ActionSpace, Continuous, Discrete

PAIRS = (
    (("key:ArrowLeft", "key:KeyA"), ("key:ArrowRight", "key:KeyD"), "axis:0"),
    (("key:ArrowDown", "key:KeyS"), ("key:ArrowUp", "key:KeyW"), "axis:1"),
    (("key:KeyJ",), ("key:KeyL",), "axis:2"),
    (("key:KeyK",), ("key:KeyI",), "axis:3"),
)
"""For each dimension of a continuous action: keys for its lowest value, keys for its highest, and a gamepad axis."""
MORE_PAIRS = ("TG", "YH", "UM", "ZX", "CV", "BN")
"""Letters for further dimensions: lowest and highest."""
FEW = {
    2: ((0, ("ArrowLeft", "KeyA"), "axis:0-"), (1, ("ArrowRight", "KeyD"), "axis:0+")),
    3: ((0, ("ArrowLeft", "KeyA"), "axis:0-"), (2, ("ArrowRight", "KeyD"), "axis:0+")),
    4: (
        (1, ("ArrowLeft", "KeyA"), "axis:0-"),
        (2, ("ArrowUp", "KeyW"), "axis:1-"),
        (3, ("ArrowRight", "KeyD"), "axis:0+"),
    ),
}
"""Discrete actions that many environments share: two are left and right, three have rest in the middle, four have rest
first (LunarLander: left, main and right engine)."""


REVERSED = ("Forest", "Pendulum", "Pendulum-v1")
"""Environments whose first action grows to the left."""


def guess(space: ActionSpace, env: str = "") -> dict[str, Any]:
    """Bindings and the action at rest. `env` is the name of the environment."""
    if isinstance(space, Continuous):
        return _continuous(space, env in REVERSED)
    if isinstance(space, Discrete):
        return _discrete(space.n)
    bindings = []
    for index, count in enumerate(space.nvec[: len(PAIRS)]):
        low, high, axis = PAIRS[index]
        rest = (count - 1) // 2
        for keys, value, sign in ((low, max(rest - 1, 0), "-"), (high, min(rest + 1, count - 1), "+")):
            bindings += [_binding(key, index, value) for key in (*keys, f"{axis}{sign}") if value != rest]
    return {"bindings": bindings, "rest": [(count - 1) // 2 for count in space.nvec]}


def _continuous(space: Continuous, reverse: bool) -> dict[str, Any]:
    low, high = (np.asarray(bound, np.float32).astype(float) for bound in (space.low, space.high))
    rest = np.where((low <= 0) & (high >= 0) & (low < 0), 0.0, (low + high) / 2)
    bindings = []
    for index in range(len(low)):
        if index < len(PAIRS):
            down, up, axis = PAIRS[index]
        elif index < len(PAIRS) + len(MORE_PAIRS):
            letters = MORE_PAIRS[index - len(PAIRS)]
            down, up, axis = (f"key:Key{letters[0]}",), (f"key:Key{letters[1]}",), ""
        else:
            break
        turned = reverse and index == 0
        down, up = (up, down) if turned else (down, up)
        bindings += [_binding(key, index, float(low[index])) for key in down]
        bindings += [_binding(key, index, float(high[index])) for key in up]
        if axis:
            sign = -1.0 if turned or axis in ("axis:1", "axis:3") else 1.0  # a gamepad's vertical axes point down
            bindings.append(_binding(axis, index, sign * float(high[index] - low[index]) / 2))
    return {"bindings": bindings, "rest": rest.tolist()}


def _discrete(count: int) -> dict[str, Any]:
    rest = 1 if count == 3 else 0
    bindings = []
    for value, keys, axis in FEW.get(count, ()):
        bindings += [_binding(f"key:{key}", 0, value) for key in keys] + [_binding(axis, 0, value)]
    bindings += [_binding(f"key:Digit{value}", 0, value) for value in range(min(count, 10))]
    bindings += [_binding(f"button:{value}", 0, value) for value in range(min(count, 10))]
    return {"bindings": bindings, "rest": rest}


def _binding(given: str, index: int, value: Any) -> dict[str, Any]:
    return {"input": given, "index": index, "value": value}
