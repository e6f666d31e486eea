"""Where saved policies are: a file, a run's directory, or the directory of a trained expert."""

import csv
import json
import os
from pathlib import Path
from typing import Any

from understudy.core.errors import RunError
from understudy.policies.actor import Actor, read_policy

POLICY = "policy.npz"
"""The file of an expert's directory that its policy is in."""


def load_policy(path: str | os.PathLike[str]) -> Actor:
    """A saved policy, the selected one of a run directory, or the one that `understudy expert train` kept in its."""
    path = Path(path)
    if (path / POLICY).is_file():
        path = path / POLICY
    elif path.is_dir():
        path = selected(path)
    return read_policy(path)


def selected(directory: Path) -> Path:
    """The file of a run directory's selected policy."""
    run_config(directory)
    row = next(row for row in run_rows(directory) if row["selected"] == "True")
    return directory / "policies" / f"episodes{row['episodes']}-seed{row['seed']}.npz"


def run_config(directory: Path) -> dict[str, Any]:
    if not directory.exists():
        raise RunError(f"no run at '{directory}': `understudy train ... --out {directory}` makes one")
    path = directory / "config.json"
    if not path.is_file():
        raise RunError(f"'{directory}' holds no run: config.json is missing")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"'{path}' is damaged ({error}): the run cannot be read") from error
    if not isinstance(config, dict) or "algorithm" not in config:
        raise RunError(f"'{path}' is not a run's configuration")
    return config


def run_rows(directory: Path) -> list[dict[str, str]]:
    path = directory / "runs.csv"
    if not path.is_file():
        raise RunError(f"'{directory}' is damaged: runs.csv is missing")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
