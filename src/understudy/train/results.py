"""The result of training, and the directory it is saved in.

    RUN/config.json     algorithm, hyperparameters, seeds, versions, a summary of the demonstrations
    RUN/metrics.csv     a row for each run and round
    RUN/runs.csv        a row for each run: seed, episodes, held-out payoff, status, whether it was selected
    RUN/policies/*.npz  the policies: plain arrays and JSON
    RUN/tensorboard/, RUN/wandb/    logs of training, with --log (`train.logs`)

The directory is written atomically: it is complete or absent.
"""

import csv
import dataclasses
import datetime
import operator
import os
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from understudy.core.errors import NeedsError
from understudy.core.progress import Progress
from understudy.core.statistics import Sample
from understudy.core.storage import whole_directory, whole_file, write_json
from understudy.core.version import __version__
from understudy.evaluation.returns import Evaluation, evaluate
from understudy.game import Algorithm
from understudy.policies.actor import Actor
from understudy.policies.saved import load_policy, run_config, run_rows


@dataclass(frozen=True)
class Run:
    """One run of a training call: a seed with a number of demonstrated episodes."""

    seed: int
    episodes: int
    status: str
    payoff: float
    """The payoff on held-out steps, by which a run is selected (`train.selection`)."""

    @property
    def name(self) -> str:
        return f"episodes{self.episodes}-seed{self.seed}"


@dataclass(frozen=True)
class Result:
    """The result of `imitate`: a policy for each seed and number of episodes, the metrics, and the configuration."""

    config: dict[str, Any]
    runs: list[Run]
    policies: list[Actor]
    metrics: dict[str, np.ndarray]
    """name → (runs, rounds)."""
    interrupted: bool = False
    env: Any = None
    """The environment passed to `imitate`, if any. It is not saved."""

    @property
    def selected(self) -> int:
        """The index of the run with the lowest held-out payoff, among those with the most demonstrations."""
        most = max(run.episodes for run in self.runs)

        def rank(index: int) -> tuple[bool, float]:
            payoff = self.runs[index].payoff
            return (not np.isfinite(payoff), payoff)

        return min((i for i, run in enumerate(self.runs) if run.episodes == most), key=rank)

    @property
    def policy(self) -> Actor:
        """The selected policy."""
        return self.policies[self.selected]

    @property
    def expert(self) -> Sample | None:
        """The expert's return, if the demonstrations record it."""
        stated = self.config["demonstrations"]["expert_return"]
        if stated is None:
            return None
        return Sample(stated["mean"], float("nan") if stated["std"] is None else stated["std"], stated["size"])

    def evaluate(
        self,
        env: Any = None,
        episodes: int = 10,
        seed: int = 0,
        expert: Sample | None = None,
        workers: int = 1,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Evaluate all policies: their returns, and the gap to the expert.

        `env` defaults to the environment of the demonstrations, `expert` to the return that they record.
        """
        env = next((e for e in (env, self.env, self.config["demonstrations"]["env"]) if e is not None), None)
        if env is None:
            raise NeedsError("the environment of these demonstrations has no registered name: pass env=")
        return evaluate(self.policies, env, episodes, seed, expert or self.expert, workers, progress)

    def save(self, directory: str | os.PathLike[str], replace: bool = False) -> None:
        """Write the run directory atomically. An existing run is overwritten only with `replace=True`."""
        with whole_directory(directory, replace) as partial:
            (partial / "policies").mkdir()
            for run, actor in zip(self.runs, self.policies, strict=True):
                actor.save(partial / "policies" / f"{run.name}.npz")
            names = list(self.metrics)
            write_csv(
                partial / "metrics.csv",
                ["seed", "episodes", "round", *names],
                (
                    [run.seed, run.episodes, round_ + 1, *(float(self.metrics[name][i, round_]) for name in names)]
                    for i, run in enumerate(self.runs)
                    for round_ in range(self.metrics[names[0]].shape[1])
                ),
            )
            write_csv(
                partial / "runs.csv",
                ["seed", "episodes", "held_out_payoff", "status", "selected"],
                (
                    [run.seed, run.episodes, run.payoff, run.status, i == self.selected]
                    for i, run in enumerate(self.runs)
                ),
            )
            write_json(partial / "config.json", self.config)

    def __repr__(self) -> str:
        return f"Result({self.config['algorithm']['name']}, {len(self.runs)} runs, selected {self.runs[self.selected]})"


def load_run(directory: str | os.PathLike[str]) -> Result:
    """Load a saved run."""
    directory = Path(directory)
    config, rows = run_config(directory), run_rows(directory)
    runs = [Run(int(r["seed"]), int(r["episodes"]), r["status"], float(r["held_out_payoff"])) for r in rows]
    policies = [load_policy(directory / "policies" / f"{run.name}.npz") for run in runs]
    with (directory / "metrics.csv").open(newline="", encoding="utf-8") as file:
        header, *lines = list(csv.reader(file))
    table = np.array([[float(value) for value in line] for line in lines]).reshape(len(runs), -1, len(header))
    metrics = {name: table[:, :, i] for i, name in enumerate(header) if name not in ("seed", "episodes", "round")}
    return Result(config, runs, policies, metrics, any(run.status.startswith("interrupted") for run in runs))


def hyperparameters(algorithm: Algorithm) -> dict[str, Any]:
    """All fields of an algorithm, as JSON values."""
    return {f.name: _plain(getattr(algorithm, f.name)) for f in dataclasses.fields(algorithm)}


def _plain(value: Any) -> Any:
    """A setting as a JSON value: numbers as Python numbers, dataclasses as dicts, functions as their names."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if getattr(value, "shape", None) == ():  # __index__ and __float__ of an array may fail
        return _plain(value.item())
    if isinstance(value, SupportsIndex):
        return operator.index(value)
    if isinstance(value, SupportsFloat):
        return float(value)
    if dataclasses.is_dataclass(value):
        fields = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__, **fields}
    return getattr(value, "__qualname__", repr(value))


def result_rows(result: Result, evaluation: Evaluation) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of an evaluation's CSV file: a row for each policy, with its provenance."""
    settings = result.config["algorithm"]
    made = provenance()
    tail = [
        " && ".join(dict.fromkeys([result.config["command"], made["command"]])),
        " ".join(f"{name}={version}" for name, version in result.config["versions"].items()),
        result.config["device"],
        made["date"],
    ]
    header = [
        "env",
        "algorithm",
        "preset",
        "seed",
        "x_kind",
        "x",
        "mean_return",
        "std_return",
        "episodes",
        "train_seconds",
        "evaluate_seconds",
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
            *tail,
        ]
        for about, returns in zip(evaluation.about, evaluation.returns, strict=True)
    ]
    return [*header, "command", "versions", "device", "date"], rows


def provenance() -> dict[str, Any]:
    """How a result was made: command, date, versions and device."""
    import jax

    packages = {name: metadata.version(name) for name in ("jax", "equinox", "optax", "numpy", "gymnasium")}
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    command = " ".join(["understudy" if program == "__main__.py" else program, *sys.argv[1:]])
    return {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"understudy": __version__, "python": platform.python_version(), **packages},
        "device": jax.devices()[0].device_kind,
    }


def write_csv(path: Path, header: list[str], rows: Iterable[list[Any]]) -> None:
    """Write a CSV file atomically."""
    with whole_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
