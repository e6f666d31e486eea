"""Logs of training: the metrics of each round, written when the round ends.

    LOGS/metrics.csv           always: a row for each run and round, to `tail -f`
    LOGS/tensorboard/seed-K/   event files, one TensorBoard run per seed (extra `tensorboard`)
    LOGS/wandb/, wandb.json    Weights & Biases, one run per seed, in one group (extra `wandb`)

LOGS of `understudy train` is RUN.logs, next to the run's directory; it is moved into the directory when the run is
saved. The logs hold the same rounds as the run's metrics: a resumed run drops the rounds after its checkpoint, which it
trains again. A log that fails is reported on standard error and dropped; training continues.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from understudy.core.errors import RunError, missing_extra, unknown
from understudy.core.paths import check_file_path, check_own_file, is_own_file
from understudy.core.text import quoted
from understudy.train.log_writers import (
    COLUMNS,
    METRICS,
    Pairs,
    Round,
    Table,
    TensorBoard,
    WeightsAndBiases,
    Writer,
    last_step,
    split_rounds,
)

if TYPE_CHECKING:
    from understudy.evaluation.returns import Evaluation
    from understudy.train.results import Result, Run

Kind = Literal["tensorboard", "wandb"]
KINDS: tuple[str, ...] = get_args(Kind)
PACKAGES = {"tensorboard": ("tensorboardX", "SummaryWriter"), "wandb": ("wandb", "init")}
"""The package of each kind, and a name in it: an empty folder called `wandb` can be imported too."""
LOGS, EVALUATION = ".logs", ".evaluation"
OWN = (METRICS, "tensorboard", "wandb", "wandb.json")
"""What RUN.logs holds."""


@dataclass(frozen=True)
class Logs:
    """Where training logs each round: metrics.csv in `directory`, and the named kinds.

    Raises here, before training starts, if the package of a kind is not installed.
    """

    directory: str | os.PathLike[str]
    kinds: Sequence[str] = ()

    def __post_init__(self) -> None:
        kinds = (self.kinds,) if isinstance(self.kinds, str) else self.kinds
        object.__setattr__(self, "kinds", tuple(dict.fromkeys(kinds)))
        check_kinds(self.kinds)
        check_file_path(Path(self.directory) / METRICS)

    @contextmanager
    def opened(self, pairs: Pairs, config: dict[str, Any]) -> "Iterator[Recorder]":
        """Open the logs for some runs with their configuration; close them at the end."""
        directory = Path(self.directory)
        writers: dict[str, Callable[[list[Round]], Writer]] = {METRICS: lambda past: Table(directory, pairs, past)}
        if "tensorboard" in self.kinds:
            writers["tensorboard"] = lambda past: TensorBoard(directory, pairs, past)
        if "wandb" in self.kinds:
            writers["wandb"] = lambda past: WeightsAndBiases(directory, pairs, past, config)
        recorder = Recorder(writers)
        try:
            yield recorder
        except BaseException:
            recorder.close(finished=False)
            raise
        recorder.close(finished=True)


class Recorder:
    """The training loop's `Log`: passes the rounds on to all writers, and drops a writer that fails."""

    def __init__(self, makers: dict[str, Callable[[list[Round]], Writer]]):
        self._makers, self._writers = makers, dict[str, Writer]()

    def __call__(self, first: int, metrics: dict[str, np.ndarray]) -> None:
        rounds = split_rounds(metrics)
        if self._makers:  # the first call has the rounds of the checkpoint
            for name in self._makers:
                _succeeds(name, self._open, name, rounds)
            self._makers = {}
            return
        for number, one in enumerate(rounds, first):
            self._each(partial(_add, number, one))

    def _open(self, name: str, past: list[Round]) -> None:
        self._writers[name] = self._makers[name](past)

    def end(self, runs: "Sequence[Run]") -> None:
        """Log the held-out payoffs and the statuses of the runs."""
        self._each(lambda writer: writer.end(runs))

    def close(self, finished: bool) -> None:
        self._each(lambda writer: writer.close(finished))

    def _each(self, act: Callable[[Writer], None]) -> None:
        self._writers = {name: writer for name, writer in self._writers.items() if _succeeds(name, act, writer)}


def check_kinds(kinds: Sequence[str]) -> None:
    """Raise if a kind is unknown or its package is not installed."""
    for kind in kinds:
        if kind not in KINDS:
            raise unknown("kind of log", kind, KINDS)
        package, name = PACKAGES[kind]
        try:
            installed = hasattr(importlib.import_module(package), name)
        except ImportError:
            installed = False
        if not installed:
            raise missing_extra(kind, f"logging to {kind} needs {package}")


def log_evaluation(
    run: str | os.PathLike[str], kinds: Sequence[str], result: "Result", evaluation: "Evaluation"
) -> None:
    """Add the scores of a saved run's policies to its logs: evaluation/return and, if known, gap, length, success."""
    directory, pairs = Path(run), [(one.episodes, one.seed) for one in result.runs]
    columns = {"return": evaluation.returns.mean(axis=1), "gap": evaluation.gaps}
    if evaluation.lengths is not None:
        columns["length"] = evaluation.lengths.mean(axis=1)
    if evaluation.success is not None and not np.isnan(evaluation.success).any():
        columns["success"] = evaluation.success.mean(axis=1)
    known = {name: values for name, values in columns.items() if values is not None}
    scores = [
        {f"evaluation/{name}": float(values[index]) for name, values in known.items()} for index in range(len(pairs))
    ]

    def tensorboard() -> None:
        writer = TensorBoard(directory, pairs, [], EVALUATION)
        for index, score in enumerate(scores):
            writer.scalars(index, last_step(result.metrics, index), score)
        writer.close(finished=True)

    def wandb() -> None:
        writer = WeightsAndBiases(directory, pairs, split_rounds(result.metrics), result.config)
        writer.end(result.runs)
        writer.summary(scores)
        writer.close(finished=True)

    for kind in dict.fromkeys(kinds):
        _succeeds(kind, {"tensorboard": tensorboard, "wandb": wandb}[kind])


def check_logs(run: str | os.PathLike[str]) -> None:
    """Raise if RUN.logs exists and is not a folder of logs: its files are moved, and its metrics.csv is removed."""
    logs = Path(f"{run}{LOGS}")
    if logs.is_symlink():
        raise RunError(f"'{logs}' is a link, and logs are not written through links: remove it")
    others = [entry.name for entry in logs.iterdir() if entry.name not in OWN] if logs.is_dir() else []
    if others:
        raise RunError(f"'{logs}' holds '{quoted(others[0])}', which is no log: choose another --out, or move it away")
    check_own_file(logs / METRICS, COLUMNS)


def move_logs(run: str | os.PathLike[str]) -> None:
    """Move RUN.logs into the directory of a saved run, which has its own metrics.csv."""
    logs = Path(f"{run}{LOGS}")
    if not logs.is_dir() or logs.is_symlink():  # a link may lead to a folder of the user
        return
    _remove_metrics(logs)
    for log in [logs / name for name in OWN[1:] if os.path.lexists(logs / name)]:
        _succeeds(str(Path(run) / log.name), log.rename, Path(run) / log.name)
    with suppress(OSError):  # it is not empty if a log could not be moved
        logs.rmdir()


def discard(run: str | os.PathLike[str]) -> None:
    """Remove the metrics.csv of a run that failed. TensorBoard and W&B logs stay."""
    logs = Path(f"{run}{LOGS}")
    if logs.is_symlink():
        return
    _remove_metrics(logs)
    with suppress(OSError):  # it does not exist, or holds other logs
        logs.rmdir()


def _remove_metrics(logs: Path) -> None:
    """Remove metrics.csv, unless it is a file of the user."""
    if is_own_file(logs / METRICS, COLUMNS):
        (logs / METRICS).unlink()


def _add(number: int, metrics: Round, writer: Writer) -> None:
    writer.add(number, metrics)


def _succeeds(name: str, act: Callable[..., object], *arguments: Any) -> bool:
    """Whether a call succeeds; if not, print one line with the reason."""
    try:
        act(*arguments)
    except Exception as error:  # noqa: BLE001 (no failure of a log may end training)
        reason = next(iter(str(error).splitlines()), "") or "no reason given"
        print(f"logging to {name} failed and stops ({type(error).__name__}: {reason})", file=sys.stderr)
        return False
    return True
