"""How rounds are written down, one class for each kind of log (`logs`): a table, event files, Weights & Biases."""

import csv
import io
import json
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from understudy.core.storage import write_json

if TYPE_CHECKING:
    from understudy.train.results import Run

METRICS, PROJECT = "metrics.csv", "understudy"
FLUSH_EVERY = 5.0
"""Seconds from one flush of an event file to the next: each waits for the disk."""

Pairs = Sequence[tuple[int, int]]
"""Demonstrated episodes and seed of each run."""
Column = dict[str, np.ndarray]
"""A round: name → (runs,)."""


class Writer(Protocol):
    """A place where rounds are written down; made with those of earlier sittings."""

    def add(self, number: int, column: Column) -> None: ...

    def end(self, runs: "Sequence[Run]") -> None: ...

    def close(self, whole: bool) -> None: ...


class Table:
    """LOGS/metrics.csv, in the columns of a run's own, round by round. It only grows, but for rounds played again."""

    def __init__(self, directory: Path, pairs: Pairs, past: list[Column]):
        path = directory / METRICS
        directory.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._pairs = pairs
        before = "".join(self._lines(number, column) for number, column in enumerate(past, 1)).encode()
        self._file = path.open("r+b")
        if self._file.read(len(before)) != before:
            self._file.seek(0)
            self._file.write(before)
        self._file.truncate(len(before))

    def add(self, number: int, column: Column) -> None:
        self._file.write(self._lines(number, column).encode())
        self._file.flush()

    def _lines(self, number: int, column: Column) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if number == 1:
            writer.writerow(["seed", "episodes", "round", *column])
        for run, (count, seed) in enumerate(self._pairs):
            writer.writerow([seed, count, number, *(float(values[run]) for values in column.values())])
        return text.getvalue()

    def end(self, runs: "Sequence[Run]") -> None:
        """A run's end is in its runs.csv."""

    def close(self, whole: bool) -> None:
        self._file.close()


class TensorBoard:
    """Event files: a scalar for each number of a round that is finite, at the environment steps or else the round."""

    def __init__(self, directory: Path, pairs: Pairs, past: list[Column], suffix: str = ""):
        # Not SummaryWriter: it hands events to a thread, and waits for good once that has died of a full disk.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self._steps, self._flushed, self._files = [0] * len(pairs), [0.0] * len(pairs), []
        for old in (directory / "tensorboard").rglob(f"events.out.tfevents.*{suffix}"):
            old.unlink()
        for folder in (directory / "tensorboard" / name for name in run_names(pairs)):
            folder.mkdir(parents=True, exist_ok=True)
            self._files.append(EventsWriter(str(folder / "events"), suffix))
        if not suffix:  # a TensorBoard that has seen rounds which are played again forgets them
            for run in range(len(pairs)):
                self._write(run, 0, session_log=SessionLog(status=SessionLog.START))
        for number, column in enumerate(past, 1):
            self.add(number, column)

    def add(self, number: int, column: Column) -> None:
        for run in range(len(self._files)):
            scalars = finite_scalars(column, run)
            if scalars:
                self.scalars(run, step_of(scalars, number), scalars)

    def scalars(self, run: int, step: int, scalars: dict[str, float]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        self._steps[run] = step
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._write(run, step, summary=Summary(value=values))

    def _write(self, run: int, step: int, **what: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._files[run].write_event(Event(wall_time=time.time(), step=step, **what))
        if time.monotonic() - self._flushed[run] >= FLUSH_EVERY:
            self._files[run].flush()
            self._flushed[run] = time.monotonic()

    def end(self, runs: "Sequence[Run]") -> None:
        for index, run in enumerate(runs):
            if np.isfinite(run.payoff):
                self.scalars(index, self._steps[index], {"held_out_payoff": run.payoff})

    def close(self, whole: bool) -> None:
        for file in self._files:
            file.close()


class WeightsAndBiases:
    """A W&B run for each of ours. Training that goes on does so in the same ones, which W&B knows by their names."""

    def __init__(self, directory: Path, pairs: Pairs, past: list[Column], config: dict[str, Any]):
        import wandb

        path = directory / "wandb.json"
        goes_on = path.exists() and bool(past)
        name = config["algorithm"]["name"]
        group = json.loads(path.read_text(encoding="utf-8"))["group"] if goes_on else f"{name}-{secrets.token_hex(4)}"
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
        # What is on W&B's server stays there; offline there is nobody to ask, and the latest run is a whole one.
        if not goes_on or self._runs[0].offline:
            for number, column in enumerate(past, 1):
                self.add(number, column)

    def add(self, number: int, column: Column) -> None:
        for index, run in enumerate(self._runs):
            scalars = finite_scalars(column, index)
            if scalars:
                run.log(scalars, step=step_of(scalars, number))

    def end(self, runs: "Sequence[Run]") -> None:
        self.summary([{"held_out_payoff": run.payoff, "status": run.status} for run in runs])

    def summary(self, facts: list[dict[str, Any]]) -> None:
        for run, of_it in zip(self._runs, facts, strict=True):
            run.summary.update(of_it)

    def close(self, whole: bool) -> None:
        for run in self._runs:
            run.finish(exit_code=0 if whole else 1)


def run_names(pairs: Pairs) -> list[str]:
    """seed-K, after its number of episodes where there are several."""
    several = len({count for count, _ in pairs}) > 1
    return [f"episodes-{count}/seed-{seed}" if several else f"seed-{seed}" for count, seed in pairs]


def columns_of(history: dict[str, np.ndarray]) -> list[Column]:
    """The rounds of a history, name → (runs, rounds), one by one."""
    rounds = max((values.shape[1] for values in history.values()), default=0)
    return [{name: values[:, i] for name, values in history.items()} for i in range(rounds)]


def finite_scalars(column: Column, run: int) -> dict[str, float]:
    """A run's numbers in a round: none once it has stopped, and no return where no episode ended."""
    return {name: float(values[run]) for name, values in column.items() if np.isfinite(values[run])}


def step_of(scalars: dict[str, float], number: int) -> int:
    """Where a round is drawn: at the environment steps until then, or at its number if there are none."""
    return int(scalars.get("env_steps", number))


def last_step(history: dict[str, np.ndarray], run: int) -> int:
    """Where a run's last round was drawn."""
    known = [
        step_of(scalars, number)
        for number, column in enumerate(columns_of(history), 1)
        if (scalars := finite_scalars(column, run))
    ]
    return known[-1] if known else 0
