"""Tables of results as CSV files, with the columns that say how they were made."""

import csv
import datetime
import math
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.core.processes import typed_command
from understudy.core.storage import atomic_file
from understudy.core.text import printable
from understudy.core.version import __version__
from understudy.evaluation.returns import Evaluation

if TYPE_CHECKING:
    from understudy.train.results import Result

RETURNS = (
    *("env", "algorithm", "preset", "seed", "x_kind", "x", "mean_return", "std_return", "episodes"),
    *("train_seconds", "evaluate_seconds"),
)
"""The first columns of an evaluation's CSV file."""
OUTCOMES = ("mean_length", "success_rate", "expert_return", "expert_source")
"""Further columns: steps of an episode, share of successful ones, and the expert's mean return ("same starts": in its
own episodes from the policy's starting states; "demonstrations": as they record it)."""


def result_rows(result: "Result", evaluation: Evaluation) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of an evaluation's CSV file: a row for each policy, with its provenance."""
    settings = result.config["algorithm"]
    made = provenance()
    tail = [
        " && ".join(dict.fromkeys([printable(result.config["command"]), made["command"]])),
        " ".join(f"{name}={version}" for name, version in result.config["versions"].items()),
        result.config["device"],
        made["date"],
    ]
    rows = [
        [
            evaluation.env,
            settings["name"],
            settings["preset"],
            about["seed"],
            "trajectories",
            about["episodes"],
            round(float(returns.mean()), 3),
            round(float(returns.std()), 3),
            len(returns),
            result.config["seconds"],
            round(evaluation.seconds, 3),
            *_outcomes(evaluation, index),
            *tail,
        ]
        for index, (about, returns) in enumerate(zip(evaluation.about, evaluation.returns, strict=True))
    ]
    return [*RETURNS, *OUTCOMES, "command", "versions", "device", "date"], rows


def _outcomes(evaluation: Evaluation, index: int) -> list[Any]:
    """The values of `OUTCOMES` for one policy; empty where they are not known."""
    length = "" if evaluation.lengths is None else round(float(evaluation.lengths[index].mean()), 3)
    told = [] if evaluation.success is None else [x for x in evaluation.success[index].tolist() if not math.isnan(x)]
    success = round(sum(told) / len(told), 4) if told else ""
    if evaluation.expert_returns is not None:
        return [length, success, round(float(evaluation.expert_returns[index].mean()), 3), "same starts"]
    if evaluation.expert is not None:
        return [length, success, round(evaluation.expert.mean, 3), "demonstrations"]
    return [length, success, "", ""]


def provenance() -> dict[str, Any]:
    """How a result was made: command, date, versions and device."""
    import jax

    packages = {name: metadata.version(name) for name in ("jax", "equinox", "optax", "numpy", "gymnasium")}
    return {
        "command": typed_command(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"understudy": __version__, "python": platform.python_version(), **packages},
        "device": jax.devices()[0].device_kind,
    }


def write_csv(path: Path, header: list[str], rows: Iterable[list[Any]]) -> None:
    """Write a CSV file atomically."""
    with atomic_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
