"""Logging where people look: each round's numbers, as the round ends.

    LOGS/metrics.csv           always: a line for each run and round, to `tail -f`
    LOGS/tensorboard/seed-K/   event files, one TensorBoard run for each seed (extra `tensorboard`)
    LOGS/wandb/, wandb.json    Weights & Biases: a run for each seed, in one group (extra `wandb`)

`understudy train` keeps LOGS beside the run's directory, as RUN.logs, until that is whole; then it moves in. What is
written is what the run's history holds, no more and no less: training that goes on from a checkpoint drops the rounds
that are played again. A log that fails is reported and left out, and training goes on.
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

from understudy.core.errors import ExtraError, unknown
from understudy.core.storage import check_place
from understudy.train.log_writers import (
    METRICS,
    Column,
    Pairs,
    Table,
    TensorBoard,
    WeightsAndBiases,
    Writer,
    columns_of,
    last_step,
)

if TYPE_CHECKING:
    from understudy.evaluation.returns import Evaluation
    from understudy.train.results import Result, Run

Kind = Literal["tensorboard", "wandb"]
KINDS: tuple[str, ...] = get_args(Kind)
PACKAGES = {"tensorboard": ("tensorboardX", "SummaryWriter"), "wandb": ("wandb", "init")}
"""What each kind imports, and a name that is in it: a folder called `wandb` can be imported, too."""
LOGS, EVALUATION = ".logs", ".evaluation"


@dataclass(frozen=True)
class Logs:
    """Where training writes down each round: metrics.csv in the directory, and the kinds that are named.

    A kind whose package is not installed is refused here, before anything is trained.
    """

    directory: str | os.PathLike[str]
    kinds: Sequence[str] = ()

    def __post_init__(self) -> None:
        kinds = (self.kinds,) if isinstance(self.kinds, str) else self.kinds
        object.__setattr__(self, "kinds", tuple(dict.fromkeys(kinds)))
        check_kinds(self.kinds)
        check_place(Path(self.directory) / METRICS)

    @contextmanager
    def opened(self, pairs: Pairs, config: dict[str, Any]) -> "Iterator[Recorder]":
        """For these runs, which the configuration describes."""
        directory = Path(self.directory)
        makers: dict[str, Callable[[list[Column]], Writer]] = {METRICS: lambda past: Table(directory, pairs, past)}
        if "tensorboard" in self.kinds:
            makers["tensorboard"] = lambda past: TensorBoard(directory, pairs, past)
        if "wandb" in self.kinds:
            makers["wandb"] = lambda past: WeightsAndBiases(directory, pairs, past, config)
        recorder = Recorder(makers)
        try:
            yield recorder
        except BaseException:
            recorder.close(whole=False)
            raise
        recorder.close(whole=True)


class Recorder:
    """What the training loop tells (`run.Log`), handed on to each writer for as long as that one works."""

    def __init__(self, makers: dict[str, Callable[[list[Column]], Writer]]):
        self._makers, self._writers = makers, dict[str, Writer]()

    def __call__(self, first: int, metrics: dict[str, np.ndarray]) -> None:
        columns = columns_of(metrics)
        if self._makers:  # the first call has what earlier sittings did
            for name in self._makers:
                _works(name, self._open, name, columns)
            self._makers = {}
            return
        for number, column in enumerate(columns, first):
            self._each(partial(_add, number, column))

    def _open(self, name: str, past: list[Column]) -> None:
        self._writers[name] = self._makers[name](past)

    def end(self, runs: "Sequence[Run]") -> None:
        """How the runs ended."""
        self._each(lambda writer: writer.end(runs))

    def close(self, whole: bool) -> None:
        self._each(lambda writer: writer.close(whole))

    def _each(self, act: Callable[[Writer], None]) -> None:
        self._writers = {name: writer for name, writer in self._writers.items() if _works(name, act, writer)}


def check_kinds(kinds: Sequence[str]) -> None:
    """Refuse kinds that are unknown, or whose package is not installed."""
    for kind in kinds:
        if kind not in KINDS:
            raise unknown("kind of log", kind, KINDS)
        package, name = PACKAGES[kind]
        try:
            found = hasattr(importlib.import_module(package), name)
        except ImportError:
            found = False
        if not found:
            raise ExtraError(f"logging to {kind} needs {package}: pip install 'understudy[{kind}]'")


def log_evaluation(
    run: str | os.PathLike[str], kinds: Sequence[str], result: "Result", evaluation: "Evaluation"
) -> None:
    """Add what a saved run's policies returned to its logs: evaluation/return, and evaluation/gap if there is one."""
    directory, pairs = Path(run), [(one.episodes, one.seed) for one in result.runs]
    expert = evaluation.expert
    facts = []
    for returns in evaluation.returns:
        mean = float(np.mean(returns))
        gap = {} if expert is None else {"evaluation/gap": expert.mean - mean}
        facts.append({"evaluation/return": mean, **gap})

    def tensorboard() -> None:
        writer = TensorBoard(directory, pairs, [], EVALUATION)
        for index, of_it in enumerate(facts):
            writer.scalars(index, last_step(result.metrics, index), of_it)
        writer.close(whole=True)

    def wandb() -> None:
        writer = WeightsAndBiases(directory, pairs, columns_of(result.metrics), result.config)
        writer.end(result.runs)
        writer.summary(facts)
        writer.close(whole=True)

    for kind in dict.fromkeys(kinds):
        _works(kind, {"tensorboard": tensorboard, "wandb": wandb}[kind])


def settle(run: str | os.PathLike[str]) -> None:
    """Move what was logged beside a run into its directory, now that it is whole and has a metrics.csv of its own."""
    beside = Path(f"{run}{LOGS}")
    if not beside.is_dir():
        return
    (beside / METRICS).unlink(missing_ok=True)
    for log in list(beside.iterdir()):
        _works(str(Path(run) / log.name), log.rename, Path(run) / log.name)
    with suppress(OSError):  # what could not be moved stays
        beside.rmdir()


def discard(run: str | os.PathLike[str]) -> None:
    """Remove the metrics of a run that came to nothing. Logs that were asked for stay."""
    beside = Path(f"{run}{LOGS}")
    (beside / METRICS).unlink(missing_ok=True)
    with suppress(OSError):  # it was not made, or holds such logs
        beside.rmdir()


def _add(number: int, column: Column, writer: Writer) -> None:
    writer.add(number, column)


def _works(name: str, act: Callable[..., object], *arguments: Any) -> bool:
    """Whether it could be done; if not, a line says why."""
    try:
        act(*arguments)
    except Exception as error:  # noqa: BLE001 (whatever a log does, the run is worth more)
        what = next(iter(str(error).splitlines()), "") or "no reason given"
        print(f"logging to {name} failed and is left out ({type(error).__name__}: {what})", file=sys.stderr)
        return False
    return True
