"""The record of a finished cell: what it must hold, its key and its checksum.

    KEY = the first 16 hex digits of the sha256 of {"config": ..., "format": FORMAT} as canonical JSON

A record may come from a file that someone else wrote, so its types and the sizes of its numbers and texts are checked
as well as its checksum, which anyone can compute.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from understudy.core.errors import RunError
from understudy.core.patterns import mismatch
from understudy.core.text import printable, quoted

FORMAT = 2
FINAL = "final"
RETURNED = "returned"
"""The kind FINAL in the files of the benchmark: evaluations of the policy that is returned."""
ENV_STEPS = "env_steps"
X_KINDS = (ENV_STEPS, "round", FINAL)
ENDED = ("finished", "stopped", "diverged")
"""Prefixes of the status of a finished cell. An interrupted run is not finished."""
LARGEST, MOST, LONGEST = 1e100, 10**15, 10_000
"""The largest return, the largest count, and the most characters of a text."""


def _number(least: float, most: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _text(value: Any) -> bool:
    """One printable line: it is shown in terminals, pages and figures."""
    return isinstance(value, str) and len(value) <= LONGEST and printable(value) == value and "\n" not in value


def _has_form(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


is_key = _has_form(r"[0-9a-f]{16}")
is_digest = _has_form(r"[0-9a-f]{64}")
_return, _duration = _number(-LARGEST, LARGEST), _number(0, 1e12)
RECORD = {
    "format": int,
    "key": is_key,
    "config": {
        "algorithm": {"name": _text, "preset": _text, "settings": {str: object}, "hyperparameters": {str: object}},
        "task": {"env": _text, "demonstrations": _text, "trajectories": _count, "expert": (None, _text)},
        "seed": _number(0, 2**32 - 1),
        "protocol": {str: (None, _number(0, MOST))},
    },
    "display": {"label": (None, _text), "demos": (None, _text), "expert_return": (None, _return)},
    "evaluations": [
        {"x_kind": _text, "x": _count, "steps?": (None, _count), "payoff?": (None, _return), "returns": [_return]}
    ],
    "status": _text,
    "seconds": _duration,
    "runs_in_program": _count,
    "env_steps": (None, _count),
    "queries": (None, _count),
    "provenance": {"command": _text, "versions": {str: _text}, "date": _text, "device": _text},
    "policy?": is_digest,
}
"""The pattern of a record (see `core.reader.mismatch`). `policy` is the sha256 of the cell's policy file."""


def kind_of(row: Mapping[str, Any]) -> str:
    """The kind of an evaluation, one of `X_KINDS`."""
    return FINAL if row["x_kind"] == RETURNED else str(row["x_kind"])


def position(row: Mapping[str, Any]) -> int:
    """x of an evaluation. Earlier versions rounded environment steps down to a multiple of eval_every in `x`.

    `steps` has always been exact. It is missing where x counts rounds or trajectories.
    """
    steps = row.get("steps")
    return int(steps) if kind_of(row) in (ENV_STEPS, FINAL) and steps not in (None, "") else int(row["x"])


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces. NaN and infinity raise ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def checksum(value: Any) -> str:
    """The sha256 of a value as canonical JSON. Texts that are not valid Unicode raise ValueError."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def cell_key(config: dict[str, Any]) -> str:
    """The key of a cell with this config."""
    return checksum({"format": FORMAT, "config": config})[:16]


def record_checksum(record: dict[str, Any]) -> str:
    """The sha256 of a cell's record without its checksum."""
    return checksum({name: value for name, value in record.items() if name != "checksum"})


def flaw(record: Any) -> str | None:
    """Why a record is not that of a finished cell, or None."""
    wrong = mismatch(record, RECORD, "the record")
    if wrong is not None:
        return wrong
    if record["format"] != FORMAT or record["key"] != cell_key(record["config"]):
        return f"its key does not match its config, or its format ({record['format']}) is not {FORMAT}"
    status, rows = record["status"], record["evaluations"]
    if not status.startswith(ENDED):
        return f"its status is '{status}': it must begin with {', '.join(ENDED)}"
    for row in rows:
        if row["x_kind"] not in X_KINDS:
            return f"x_kind is {row['x_kind']!r}: it must be one of {', '.join(X_KINDS)}"
        if not row["returns"]:
            return f"its evaluation at {row['x_kind']} {row['x']} has no returns"
    finals, expected = sum(row["x_kind"] == FINAL for row in rows), 0 if status.startswith("diverged") else 1
    if finals != expected:
        return f"it has {finals} final evaluations: status '{status}' needs {expected}"
    if len({(row["x_kind"], row["x"]) for row in rows}) < len(rows):
        return "it has two evaluations at the same point"
    return None


def check_record(record: Any) -> None:
    """Raise RunError if a record is not that of a finished cell."""
    wrong = flaw(record)
    if wrong is not None:
        key = record.get("key") if isinstance(record, dict) else None
        raise RunError(f"cell {quoted(key)} cannot be stored: {quoted(wrong, 300)}")
