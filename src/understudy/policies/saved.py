"""Loading saved policies from a policy file, a run directory or an expert directory."""

import csv
import json
import os
from pathlib import Path
from typing import Any

from understudy.core.errors import RunError
from understudy.policies.actor import Actor, read_policy

POLICY = "policy.npz"
"""The policy's file name in an expert directory."""


def load_policy(path: str | os.PathLike[str]) -> Actor:
    """Load a policy.

    `path` is a policy file, a run directory (its selected policy is loaded), or a directory written by
    `understudy expert train`.
    """
    path = Path(path)
    if (path / POLICY).is_file():
        path = path / POLICY
    elif path.is_dir():
        path = selected_policy_path(path)
    return read_policy(path)


def selected_policy_path(directory: Path) -> Path:
    """The file of a run directory's selected policy."""
    run_config(directory)
    row = next(row for row in run_rows(directory) if row["selected"] == "True")
    return directory / "policies" / f"episodes{row['episodes']}-seed{row['seed']}.npz"


def run_config(directory: Path) -> dict[str, Any]:
    """The contents of a run directory's config.json."""
    if not directory.exists():
        raise RunError(f"no run at '{directory}': create one with `understudy train ... --out {directory}`")
    path = directory / "config.json"
    if not path.is_file():
        raise RunError(f"'{directory}' holds no run: config.json is missing")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"'{path}' is damaged ({error}): the run cannot be read") from error
    if not isinstance(config, dict) or "algorithm" not in config:
        raise RunError(f"'{path}' is not the configuration of a run: it has no 'algorithm'")
    return config


def run_rows(directory: Path) -> list[dict[str, str]]:
    """The rows of a run directory's runs.csv, one for each trained policy."""
    path = directory / "runs.csv"
    if not path.is_file():
        raise RunError(f"'{directory}' is damaged: runs.csv is missing")
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
