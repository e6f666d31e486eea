"""Run directories and expert directories: where their policies are.

The files of a run directory may come from a stranger: `core.reader` reads them, and only what matches is used.
"""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from understudy.core.digests import check_digests
from understudy.core.errors import RunError, unknown
from understudy.core.paths import checked_path
from understudy.core.reader import FileReader
from understudy.core.text import is_line, quoted

POLICY = "policy.npz"
"""The policy's file name in an expert directory."""
POLICIES = "policies"
MOST_SEED, MOST_EPISODES, MOST_STEPS = 2**32 - 1, 10**9, 10**9
REMEDY = "train again, or copy the directory again"
CONFIG = {
    "algorithm": {
        "name": is_line,
        "preset": (None, is_line),
        "hyperparameters": dict,
        "card": {"title": is_line},
    },
    "seeds": [lambda value: _is_whole(value, 0, MOST_SEED)],
    "episodes": [lambda value: _is_whole(value, 1, MOST_EPISODES)],
    "demonstrations": {
        "env": (None, is_line),
        "expert_return": (
            None,
            {"mean": float, "std": (None, float), "size": lambda value: _is_whole(value, 1, MOST_EPISODES)},
        ),
    },
    "env?": (None, {"name": is_line, "args": {str: object}, "wrap": [is_line], "horizon": (None, int)}),
    "seconds": float,
    "command": str,
    "versions": {"understudy": is_line},
    "device": is_line,
}
"""The pattern of a run's config.json: what this library reads of it."""


class RunRow(NamedTuple):
    """A row of runs.csv: one trained policy."""

    seed: int
    episodes: int
    held_out_payoff: float
    payoff_error: float | None
    held_out_steps: int
    returned: str
    mean_return: float | None
    status: str
    selected: bool

    @property
    def policy(self) -> str:
        """Its policy's file name."""
        return f"episodes{self.episodes}-seed{self.seed}.npz"


def policy_path(path: str | os.PathLike[str], policy: str | None = None) -> Path:
    """The policy file at a path: a policy file, a run directory, or a directory written by `understudy expert train`.

    Of a run directory, `policy` names one, as in "episodes10-seed2"; None: the selected one.
    """
    path = checked_path(path)
    if path.is_dir() and not (path / POLICY).is_file():
        return _run_policy(path, policy)
    if policy is not None:
        raise RunError(f"'{quoted(path, 1000)}' holds one policy, not '{quoted(policy)}': leave out the policy's name")
    return path / POLICY if path.is_dir() else path


def _run_policy(directory: Path, name: str | None) -> Path:
    run_config(directory)
    rows = {row.policy.removesuffix(".npz"): row for row in run_rows(directory)}
    chosen = next(key for key, row in rows.items() if row.selected) if name is None else name
    if chosen not in rows:
        raise unknown("policy", quoted(chosen), rows, where=f"'{quoted(directory, 1000)}'")
    if rows[chosen].status.startswith("diverged"):
        raise RunError(f"policy {chosen} of '{quoted(directory, 1000)}' has diverged: choose another, or train again")
    policy = f"{POLICIES}/{rows[chosen].policy}"
    check_digests(directory, ["config.json", "runs.csv", policy], REMEDY)
    return directory / policy


def run_config(directory: Path) -> dict[str, Any]:
    """The contents of a run directory's config.json. Raises RunError if understudy has not written it."""
    name = quoted(directory, 1000)
    if not directory.exists():
        raise RunError(f"no run at '{name}': create one with `understudy train ... --out {name}`")
    path = directory / "config.json"
    if (directory / POLICY).is_file():
        raise RunError(
            f"'{name}' holds one policy, not a run: "
            f"`understudy.evaluate([understudy.load_policy('{name}')], env)` in Python evaluates it"
        )
    if not path.exists():
        raise RunError(f"'{name}' holds no run: config.json is missing")
    config: dict[str, Any] = FileReader(path, "the configuration of a run", REMEDY).json(CONFIG)
    versions = config["versions"].items()
    if not all(is_line(key) and is_line(version) for key, version in versions):
        raise RunError(f"'{name}' is damaged: the versions in config.json are not text")
    return config


def run_rows(directory: Path) -> list[RunRow]:
    """The rows of a run directory's runs.csv, one for each trained policy."""
    file = FileReader(directory / "runs.csv", "the list of a run's policies", REMEDY)
    columns = {
        "seed": lambda text: whole(text, 0, MOST_SEED),
        "episodes": lambda text: whole(text, 1, MOST_EPISODES),
        "held_out_payoff": number,
        "payoff_error": _optional,
        "held_out_steps": lambda text: whole(text, 0, MOST_STEPS),
        "returned": lambda text: quoted(text, 100),
        "mean_return": _optional,
        "status": lambda text: quoted(text, 500),
        "selected": {"True": True, "False": False}.__getitem__,
    }
    rows = [RunRow(**row) for row in file.csv(columns)]
    if len({row.policy for row in rows}) < len(rows) or sum(row.selected for row in rows) != 1:
        raise file.damaged("each pair of seed and episodes appears once, and one of them is selected")
    return rows


def whole(text: str, low: int, high: int) -> int:
    """The whole number in a cell of a CSV file. Raises ValueError."""
    if not re.fullmatch(r"[0-9]{1,10}", text) or not low <= int(text) <= high:
        raise ValueError(f"'{quoted(text, 40)}' is not a whole number from {low} to {high}")
    return int(text)


def number(text: str) -> float:
    """The number in a cell of a CSV file, which may be NaN or infinite. Raises ValueError."""
    if not re.fullmatch(r"[-+.0-9a-zA-Z]{1,40}", text):  # float() also takes spaces, underscores and other digits
        raise ValueError(f"'{quoted(text, 40)}' is not a number")
    return float(text)


def _optional(text: str) -> float | None:
    """The number in a cell that may be empty."""
    return number(text) if text else None


def _is_whole(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high
