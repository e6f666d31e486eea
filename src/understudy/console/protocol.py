"""Messages of a client: JSON texts, checked before anything acts on them. docs/console.md has the protocol.

A message is an object with `type`, the fields of that type and no others, and perhaps `id`. Every field has a check,
which returns the value or raises `Refused`.
"""

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from understudy.core.text import quoted
from understudy.core.types import ActionSpace, Continuous, Discrete

PROTOCOL = 1
LONGEST_MESSAGE = 65_536
"""Bytes of a client's message."""
LARGEST_WHOLE = 2**53 - 1
LARGEST_SEED, LARGEST_SEQ = 2**31 - 1, 2**32 - 1
SLOWEST, FASTEST = 0.5, 120.0
"""Steps per second of the clock."""
MODES = ("demonstrate", "watch", "answer", "compare", "progress")
JPEG, PNG = 1, 2
RUNNING, PERSON, OVER = 1, 2, 4
"""Flags of a picture."""
HEADER = struct.Struct("<BBHIIId")
MOST_BINDINGS, LONGEST_INPUT = 200, 40
HELD = r"key:[A-Za-z][A-Za-z0-9]*|button:[0-9]{1,2}|mouse:(?:left|right)|axis:[0-9]{1,2}[+-]"
ANALOG = r"axis:[0-9]{1,2}|mouse:[xy]"
Check = Callable[[Any], Any]


class Refused(Exception):
    """A message that is answered with an error. `code` is one of docs/console.md."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


class Message(NamedTuple):
    """A checked message."""

    type: str
    fields: dict[str, Any]
    id: int | None


class Optional(NamedTuple):
    """A field with a default."""

    check: Check
    default: Any = None


def whole(low: int, high: int) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high} is needed")
        return value

    return check


def number(low: float, high: float) -> Check:
    def check(value: Any) -> float:
        if type(value) not in (int, float) or not low <= value <= high:
            raise ValueError(f"a number from {low:g} to {high:g} is needed")
        return float(value)

    return check


def one_of(*choices: Any) -> Check:
    def check(value: Any) -> Any:
        for choice in choices:
            if type(value) is type(choice) and value == choice:
                return value
        raise ValueError(f"choose {', '.join(json.dumps(choice) for choice in choices)}")

    return check


def or_null(inner: Check) -> Check:
    return lambda value: None if value is None else inner(value)


def name(pattern: str) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise ValueError("this is no name of the session")
        return value

    return check


def action_of(space: ActionSpace) -> Check:
    """A checked action of a person: a NumPy array, or a whole number for discrete actions."""

    def check(value: Any) -> Any:
        if isinstance(space, Discrete):
            return whole(0, space.n - 1)(value)
        size = space.shape[0]
        if not isinstance(value, list) or len(value) != size:
            raise ValueError(f"a list of {size} numbers is needed")
        if isinstance(space, Continuous):
            if not all(type(x) in (int, float) and abs(x) <= LARGEST_WHOLE for x in value):
                raise ValueError(f"a list of {size} numbers is needed")
            return np.clip(np.array(value, np.float64), space.low, space.high).astype(np.float32)
        return np.array([whole(0, n - 1)(x) for x, n in zip(value, space.nvec, strict=True)], np.int32)

    return check


def plain_action(action: Any) -> Any:
    """An action as JSON values; None stays."""
    return None if action is None else np.asarray(action).tolist()


def mapping_of(space: ActionSpace) -> Check:
    """A checked mapping from keys, mouse and gamepad to actions."""
    action, continuous = action_of(space), isinstance(space, Continuous)
    size = 1 if isinstance(space, Discrete) else space.shape[0]

    def value_of(value: Any, index: int) -> Any:
        if isinstance(space, Continuous):
            return number(-LARGEST_WHOLE, LARGEST_WHOLE)(value)
        most = space.n if isinstance(space, Discrete) else space.nvec[index]
        return whole(0, most - 1)(value)

    def binding(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or set(value) != {"input", "index", "value"}:
            raise ValueError("a binding has input, index and value, and no other fields")
        given, allowed = value["input"], f"{HELD}|{ANALOG}" if continuous else HELD
        if not isinstance(given, str) or len(given) > LONGEST_INPUT or re.fullmatch(allowed, given) is None:
            raise ValueError(f"the input {quoted(repr(given), 60)} is unknown")
        index = whole(0, size - 1)(value["index"])
        return {"input": given, "index": index, "value": value_of(value["value"], index)}

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or set(value) != {"bindings", "rest"}:
            raise ValueError("a mapping has bindings and rest, and no other fields")
        bindings = value["bindings"]
        if not isinstance(bindings, list) or len(bindings) > MOST_BINDINGS:
            raise ValueError(f"at most {MOST_BINDINGS} bindings are needed")
        return {"bindings": [binding(one) for one in bindings], "rest": plain_action(action(value["rest"]))}

    return check


def messages_for(space: ActionSpace) -> dict[str, dict[str, Check | Optional]]:
    """The fields of every message, for an environment with these actions."""
    boolean, question, clip = one_of(True, False), name("[0-9]{1,6}-[0-9]{1,9}"), name("[0-9a-z-]{1,80}")
    return {
        "mode": {"mode": one_of(*MODES)},
        "take-control": {},
        "mapping": {"mapping": mapping_of(space)},
        "end": {},
        "start": {
            "seed": Optional(or_null(whole(0, LARGEST_SEED))),
            "policy": Optional(or_null(whole(1, LARGEST_SEED))),
        },
        "clock": {
            "running": boolean,
            "rate": Optional(number(SLOWEST, FASTEST)),
            "stepping": Optional(boolean),
        },
        "step": {},
        "act": {"seq": whole(0, LARGEST_SEQ), "action": action_of(space)},
        "take": {},
        "hand-back": {},
        "undo": {"seconds": Optional(number(0, 1e6)), "steps": Optional(whole(1, LARGEST_SEED))},
        "success": {"success": one_of(True, False, None)},
        "keep": {},
        "discard": {},
        "seen": {"frame": whole(0, LARGEST_SEQ)},
        "answer": {"question": question, "action": action_of(space)},
        "skip": {"question": question},
        "reopen": {"question": question},
        "finish": {},
        "clip": {"clip": clip},
        "next-pair": {},
        "prefer": {"pair": whole(1, LARGEST_SEED), "choice": one_of("left", "right", "same")},
        "train": {},
        "stop": {},
        "save": {},
    }


def parse(text: str, messages: Mapping[str, Mapping[str, Check | Optional]]) -> Message:
    """The message of a text. Raises `Refused`, with the message's `id` as `ref` where it has one."""
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise Refused("not-json", f"this is no JSON: {quoted(error, 100)}") from error
    if not isinstance(value, dict):
        raise Refused("not-json", "a JSON object is needed")
    ref = value.pop("id", None)
    if ref is not None and (type(ref) is not int or not 0 <= ref <= LARGEST_WHOLE):
        raise Refused("wrong-field", f"id is {quoted(repr(ref), 40)}: a whole number is needed")
    try:
        kind = value.pop("type", None)
        if not isinstance(kind, str) or kind not in messages:
            raise Refused("unknown-type", f"type is {quoted(repr(kind), 40)}: see docs/console.md")
        return Message(kind, _checked(kind, value, messages[kind]), ref)
    except Refused as refused:
        refused.__dict__["ref"] = ref
        raise


def _checked(kind: str, value: dict[str, Any], fields: Mapping[str, Check | Optional]) -> dict[str, Any]:
    unknown = [key for key in value if key not in fields]
    if unknown:
        raise Refused("wrong-field", f"{kind} has no field '{quoted(unknown[0], 40)}'")
    checked = {}
    for key, field in fields.items():
        check, default = (field.check, field.default) if isinstance(field, Optional) else (field, ...)
        if key not in value:
            if default is ...:
                raise Refused("wrong-field", f"{kind} needs the field {key}")
            checked[key] = default
            continue
        try:
            checked[key] = check(value[key])
        except ValueError as error:
            shown = quoted(repr(value[key]), 60)
            raise Refused("wrong-field", f"{key} is {shown}: {error}") from error
    return checked


def picture_message(format_: int, flags: int, frame: int, t: int, seq: int, total: float, image: bytes) -> bytes:
    """A picture of the stage as a binary message."""
    return HEADER.pack(1, format_, flags, frame & LARGEST_SEQ, t, seq, total) + image


def dumps(message: Any) -> str:
    """A message of the server as JSON. Numbers that are not finite are null."""
    return json.dumps(_plain(message), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"it contains {name}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value
