"""The writers of training logs (`train.logs`): a CSV table, TensorBoard event files, Weights & Biases."""

import csv
import io
import os
import re
import secrets
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from understudy.core.errors import RunError
from understudy.core.reader import FileReader
from understudy.core.storage import write_json

if TYPE_CHECKING:
    from understudy.train.results import Run

METRICS, PROJECT = "metrics.csv", "understudy"
COLUMNS = "seed,episodes,round"
"""The first columns of metrics.csv. A file that begins with others is not overwritten."""
FLUSH_EVERY = 5.0
"""Seconds between flushes of an event file: each flush waits for the disk."""

Pairs = Sequence[tuple[int, int]]
"""Number of demonstrated episodes and seed of each run."""
Round = dict[str, np.ndarray]
"""The metrics of one round: name → (runs,)."""


class Writer(Protocol):
    """Writes rounds to a log. Its constructor takes the rounds that a checkpoint holds."""

    def add(self, number: int, metrics: Round) -> None: ...

    def end(self, runs: "Sequence[Run]") -> None: ...

    def close(self, finished: bool) -> None: ...


class Table:
    """LOGS/metrics.csv: the columns of a run's metrics.csv, in the order of rounds.

    Rows are appended, so that `tail -f` works. Resuming removes only the rows after the checkpoint.
    """

    def __init__(self, directory: Path, pairs: Pairs, past: list[Round]):
        directory.mkdir(parents=True, exist_ok=True)
        self._pairs = pairs
        expected = "".join(self._lines(number, metrics) for number, metrics in enumerate(past, 1)).encode()
        self._file = _open_table(directory / METRICS)
        start = self._file.read(len(COLUMNS))
        if not COLUMNS.encode().startswith(start):
            self._file.close()
            raise RunError("this file is not a log of understudy: move it away, or log elsewhere")
        self._file.seek(0)
        if self._file.read(len(expected)) != expected:
            self._file.seek(0)
            self._file.write(expected)
        self._file.truncate(len(expected))

    def add(self, number: int, metrics: Round) -> None:
        self._file.write(self._lines(number, metrics).encode())
        self._file.flush()

    def _lines(self, number: int, metrics: Round) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if number == 1:
            writer.writerow(["seed", "episodes", "round", *metrics])
        for run, (count, seed) in enumerate(self._pairs):
            writer.writerow([seed, count, number, *(float(values[run]) for values in metrics.values())])
        return text.getvalue()

    def end(self, runs: "Sequence[Run]") -> None:
        """Do nothing: held-out payoffs and statuses are in the run's runs.csv."""

    def close(self, finished: bool) -> None:
        self._file.close()


def _open_table(path: Path) -> IO[bytes]:
    """A regular file to read and write. A link is not followed: it could lead to a file of the user."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise RunError("this is not a regular file: remove it")
    return os.fdopen(handle, "r+b")


class TensorBoard:
    """Event files: a scalar for each finite metric of a round. The x-axis is environment steps, or else the round.

    It uses tensorboardX's synchronous `EventsWriter`. `SummaryWriter` writes from a background thread, which ends when
    the disk is full. Training does not get the error, and `add_scalar` blocks once the queue is full; with an unbounded
    queue (max_queue=0) the process never exits. Here `add` raises the error, and the log is dropped with one line. It
    also needs no threads: 25 SummaryWriters start 50.
    """

    def __init__(self, directory: Path, pairs: Pairs, past: list[Round], suffix: str = ""):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self._steps, self._flushed, self._files = [0] * len(pairs), [0.0] * len(pairs), []
        for old in (directory / "tensorboard").rglob(f"events.out.tfevents.*{suffix}"):
            old.unlink()
        for folder in (directory / "tensorboard" / name for name in run_names(pairs)):
            folder.mkdir(parents=True, exist_ok=True)
            self._files.append(EventsWriter(str(folder / "events"), suffix))
        if not suffix:  # TensorBoard then drops rounds after the checkpoint that it has already read
            for run in range(len(pairs)):
                self._write(run, 0, session_log=SessionLog(status=SessionLog.START))
        for number, metrics in enumerate(past, 1):
            self.add(number, metrics)

    def add(self, number: int, metrics: Round) -> None:
        for run in range(len(self._files)):
            scalars = finite_scalars(metrics, run)
            if scalars:
                self.scalars(run, step_of(scalars, number), scalars)

    def scalars(self, run: int, step: int, scalars: dict[str, float]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        self._steps[run] = step
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._write(run, step, summary=Summary(value=values))

    def _write(self, run: int, step: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._files[run].write_event(Event(wall_time=time.time(), step=step, **content))
        if time.monotonic() - self._flushed[run] >= FLUSH_EVERY:
            self._files[run].flush()
            self._flushed[run] = time.monotonic()

    def end(self, runs: "Sequence[Run]") -> None:
        for index, run in enumerate(runs):
            if np.isfinite(run.payoff):
                self.scalars(index, self._steps[index], {"held_out_payoff": run.payoff})

    def close(self, finished: bool) -> None:
        for file in self._files:
            file.close()


class WeightsAndBiases:
    """A W&B run for each run. Resumed training continues in the same W&B runs, which are found by their ids."""

    def __init__(self, directory: Path, pairs: Pairs, past: list[Round], config: dict[str, Any]):
        import wandb

        path = directory / "wandb.json"
        resumes = path.exists() and bool(past)
        name = config["algorithm"]["name"]
        group = _group(path) if resumes else f"{name}-{secrets.token_hex(4)}"
        self._runs = [
            wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                group=group,
                name=run,
                id=f"{group}-{run.replace('/', '-')}",
                config={**config, "seed": seed, "trajectories": count},
                dir=str(directory),
                resume="allow",
                reinit="create_new",
                settings={"console": "off"},
            )
            for run, (count, seed) in zip(run_names(pairs), pairs, strict=True)
        ]
        write_json(path, {"group": group})
        # The W&B server has the earlier rounds. Offline, each folder of a run must hold all rounds.
        if not resumes or self._runs[0].offline:
            for number, metrics in enumerate(past, 1):
                self.add(number, metrics)

    def add(self, number: int, metrics: Round) -> None:
        for index, run in enumerate(self._runs):
            scalars = finite_scalars(metrics, index)
            if scalars:
                run.log(scalars, step=step_of(scalars, number))

    def end(self, runs: "Sequence[Run]") -> None:
        self.summary([{"held_out_payoff": run.payoff, "status": run.status} for run in runs])

    def summary(self, values: list[dict[str, Any]]) -> None:
        for run, summary in zip(self._runs, values, strict=True):
            run.summary.update(summary)

    def close(self, finished: bool) -> None:
        for run in self._runs:
            run.finish(exit_code=0 if finished else 1)


def _group(path: Path) -> str:
    """The W&B group of a run that is resumed."""
    pattern = {"group": lambda value: isinstance(value, str) and re.fullmatch(r"[\w.:-]{1,128}", value) is not None}
    group: str = FileReader(path, "a log of W&B", "remove it").json(pattern)["group"]
    return group


def run_names(pairs: Pairs) -> list[str]:
    """seed-K, or episodes-N/seed-K if there are several numbers of episodes."""
    several = len({count for count, _ in pairs}) > 1
    return [f"episodes-{count}/seed-{seed}" if several else f"seed-{seed}" for count, seed in pairs]


def split_rounds(metrics: dict[str, np.ndarray]) -> list[Round]:
    """Metrics of (runs, rounds), as a list of rounds."""
    rounds = max((values.shape[1] for values in metrics.values()), default=0)
    return [{name: values[:, i] for name, values in metrics.items()} for i in range(rounds)]


def finite_scalars(metrics: Round, run: int) -> dict[str, float]:
    """A run's finite metrics in a round. After it has stopped, all are NaN. If no episode ended, `return` is NaN."""
    return {name: float(values[run]) for name, values in metrics.items() if np.isfinite(values[run])}


def step_of(scalars: dict[str, float], number: int) -> int:
    """The x-coordinate of a round: its environment steps so far, or its number if there are none."""
    return int(scalars.get("env_steps", number))


def last_step(metrics: dict[str, np.ndarray], run: int) -> int:
    """The x-coordinate of a run's last round."""
    known = [
        step_of(scalars, number)
        for number, one in enumerate(split_rounds(metrics), 1)
        if (scalars := finite_scalars(one, run))
    ]
    return known[-1] if known else 0
