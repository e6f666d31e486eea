"""The only training loop. An algorithm never has its own.

Runs (seeds × numbers of demonstrations) are one compiled program: a vmapped round, called once a round, whose states
are donated from call to call. On a CPU the program is called once for each core, with a share of the runs. A
`Collector` supplies a round's other data; `programs` has the compiled round.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from understudy.collect.base import Collector, Request, offline
from understudy.core.errors import DivergedError, RunError, SpecError, WorkerError
from understudy.core.progress import Progress
from understudy.core.types import Dataset, Spec, State
from understudy.game import Algorithm
from understudy.train.candidates import Kept
from understudy.train.checkpoints import Checkpoint, Layout, Leaf, has_checkpoint
from understudy.train.contract import check_policy
from understudy.train.programs import Program, shares, traced
from understudy.train.records import (
    RoundRecord,
    diverged_in,
    finite_mean,
    merged,
    metrics_of,
    packed,
    spent,
    statuses_of,
    unpacked,
)


@dataclass(frozen=True)
class Training:
    """The result of training a batch of runs. The first axis of every array is the run."""

    states: State
    kept: Kept | None
    """Candidates for the final policies, if any were kept."""
    metrics: dict[str, np.ndarray]
    """name → (runs, rounds). NaN from the round in which a run diverged, or after it stopped."""
    statuses: list[str]
    """How each run ended: finished, stopped and why, diverged, interrupted."""
    seconds: float
    """Training time, including that before a resume."""
    interrupted: bool


Visit = Callable[[int, Callable[[], State]], bool | None]
"""Called after each round with its number, from 1, and a function that returns the states of all runs.

It may return True to end training after this round, as Ctrl-C does.
"""


class Log(Protocol):
    """Called with the metrics of some rounds, (runs, rounds) each, and the number of the first.

    Once before training, with the rounds that a checkpoint holds, if any; then after each round.
    """

    def __call__(self, first: int, metrics: dict[str, np.ndarray]) -> None: ...


def train(
    algorithm: Algorithm,
    spec: Spec,
    demonstrations: Dataset,
    keys: Key[Array, " runs"],
    collector: Collector | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    visit: Visit | None = None,
    held_out: Dataset | None = None,
    log: Log | None = None,
    parts: int = 0,
) -> Training:
    """Train one run for each key, all at once, on demonstrations and a collector's data.

    `demonstrations.size` has an entry for each run; the steps are shared. A run that stops, or whose metrics or
    parameters are not finite, keeps the state of its last good round while the others continue. Ctrl-C ends all runs at
    the end of the round and keeps their results. With a checkpoint, training resumes from it. `visit` may read the
    states after each round. `held_out` has demonstrated steps for payoffs, not for training. `parts` of training each
    keep a candidate for the final policy (`candidates`).
    """
    with nullcontext() if checkpoint is None else checkpoint.claimed():
        loop = _Loop(algorithm, spec, demonstrations, keys, collector, held_out, checkpoint, log, parts)
        return loop.run(progress, visit)


class _Loop:
    """The state of the loop: the programs, the records of finished rounds, and those the host has not read yet."""

    def __init__(
        self,
        algorithm: Algorithm,
        spec: Spec,
        demonstrations: Dataset,
        keys: Key[Array, " runs"],
        collector: Collector | None,
        held_out: Dataset | None,
        checkpoint: Checkpoint | None,
        log: Log | None,
        parts: int,
    ):
        self.began, self.algorithm = time.perf_counter(), traced(algorithm)
        self.collector = offline() if collector is None else collector
        self.checkpoint, self.log, self.runs = checkpoint, log, len(keys)
        held_out = None if self.algorithm.schedule is None else held_out
        self.programs = [
            Program(self.algorithm, spec, demonstrations, held_out, keys, share, self.collector, parts)
            for share in shares(self.runs)
        ]
        if demonstrations.steps.t.shape[0] > 1:
            first = jax.tree.map(lambda x: np.asarray(x[0]), self.programs[0].states)
            check_policy(self.algorithm, spec, first, demonstrations)
        self.records: list[RoundRecord] = []
        self.unread: list[list[RoundRecord]] = []
        self.causes: dict[int, str] = {}
        """Why runs have diverged."""
        self.seconds_before, self.unsaved = 0.0, False
        saved = None if checkpoint is None else checkpoint.load(self._layout)
        if saved is not None:
            self.seconds_before, self.records = saved.seconds, unpacked(saved.records)
            queries = np.sum([record.queries for record in self.records], axis=0)
            for program in self.programs:
                program.restore(saved, queries)

    def run(self, progress: Progress | None, visit: Visit | None) -> Training:
        if self.log is not None:
            self.log(1, metrics_of(self.records))
        first, several = len(self.records), len(self.programs) > 1
        with ExitStack() as stack:
            interrupt = stack.enter_context(_interruptible())
            threads = stack.enter_context(ThreadPoolExecutor(len(self.programs) + 1))
            stack.enter_context(self.collector.opened(first))
            for index in range(first, self.algorithm.rounds):
                if (interrupt.is_set() and (self.records or self.unread)) or self._over():
                    break
                if self.collector.waits_for_round and self.unread:
                    self._read(progress)
                calls: list[list[RoundRecord]] = []
                for call in range(self.collector.calls_per_round):
                    request = self._request(index, call)
                    self._gather(request)
                    # In a thread of its own: a call may return only when the device has nearly finished.
                    asked = threads.submit(self.collector.ahead, request)
                    # The first call compiles, which one program does for all; then they run in parallel.
                    each = map if (index == first and call == 0) or not several else threads.map
                    calls.append(list(each(lambda p, at=(index, call): p.advance(*at, wait=several), self.programs)))
                    asked.result()
                    # Read the previous round's records while the device computes this round.
                    if self.unread:
                        self._read(progress)
                self.unread.extend(calls)
                if visit is not None:
                    if self.collector.waits_for_round:  # report the round first: a person may look at it in `visit`
                        self._read(progress)
                    if visit(index + 1, self._states):
                        interrupt.set()
                early = self.collector.checkpoint_first_round and index == first
                if self.checkpoint is not None and (self.checkpoint.due or early):
                    if self.unread:
                        self._read(progress)
                    self._save(self.checkpoint)
            if self.unread:
                self._read(progress)
            last = self.checkpoint
            if (
                last is not None
                and (interrupt.is_set() or has_checkpoint(last.path))
                and last.rounds != len(self.records)
            ):
                self._save(last)
        short = len(self.records) < self.algorithm.rounds and not self._over()
        return self._result(interrupt.is_set() and short)

    def _result(self, interrupted: bool) -> Training:
        self._find_causes()
        statuses = statuses_of(self.algorithm, self.records, interrupted, self.collector.limit, self.causes)
        if all(diverged_in(self.records, run) == 0 for run in range(self.runs)):
            if self.checkpoint is not None:  # there is nothing to resume
                Checkpoint.discard(self.checkpoint.path)
            raise DivergedError(f"every run diverged in round 1: {self.causes[0]}")
        kept = jax.tree.map(lambda *part: self._joined(part), *(program.kept for program in self.programs))
        return Training(self._states(), kept, metrics_of(self.records), statuses, self._seconds(), interrupted)

    def _find_causes(self) -> None:
        """Measure what was not finite in runs that have diverged since the last call."""
        for run in range(self.runs):
            index = diverged_in(self.records, run)
            if index is not None and run not in self.causes:
                program = next(program for program in self.programs if run in program.runs)
                self.causes[run] = program.cause_of_divergence(run, index, self.records)

    def _seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.began

    def _joined(self, parts: Any) -> np.ndarray:
        """The programs' shares joined, without the padding runs of the last share."""
        return np.concatenate(parts)[: self.runs]

    def _states(self) -> State:
        # A copy: with a single program these would be the arrays that the next round overwrites.
        parts = zip(*(jax.tree.leaves(program.states) for program in self.programs), strict=True)
        leaves = [jnp.copy(jnp.concatenate(part)[: self.runs]) for part in parts]
        return jax.tree.unflatten(jax.tree.structure(self.programs[0].states), leaves)

    def _request(self, index: int, call: int) -> Request:
        """What the collector may read: the policies and the counts from before this update, also after it has begun."""
        queries, active = ([getattr(p, name) for p in self.programs] for name in ("queries", "active"))
        acting = [p.policies() for p in self.programs] if self.collector.looks_ahead else None

        def policies() -> Any:
            parts = jax.device_get(acting or [p.policies() for p in self.programs])
            return jax.tree.map(lambda *part: self._joined(part), *parts)

        return Request(
            *(self.algorithm, self._states, policies, index, call),
            lambda: self._joined(queries),
            lambda: self._joined(active),
        )

    def _gather(self, request: Request) -> None:
        """Let the collector collect the programs' data on the host."""
        try:
            gathered = self.collector.gather(request)
        except (WorkerError, SpecError) as error:
            if request.update == 0 and self.checkpoint is not None and (self.records or self.unread):
                if self.unread:
                    self._read(None)
                self._save(self.checkpoint)
            raise _resumable(error, self.checkpoint) from error
        if gathered is not None:
            for program in self.programs:
                program.given = jax.tree.map(lambda x, runs=program.runs: jnp.asarray(x[runs]), gathered)

    def _read(self, progress: Progress | None) -> None:
        """Read the records of the last round, and report them."""
        calls = [
            jax.tree.map(lambda *part: np.concatenate(part, axis=1)[:, : self.runs], *call)
            for call in jax.device_get(self.unread)
        ]
        self.unread.clear()
        record = merged(calls)
        if self.checkpoint is not None and self.records and {*record.metrics} != {*self.records[-1].metrics}:
            raise RunError(f"'{self.checkpoint.path}' has other metrics than this training: remove it, and train again")
        self.records.append(record)
        if self.collector.waits_for_round:  # its data of this round are still here
            self._find_causes()
        if self.log is not None:
            self.log(len(self.records), metrics_of(self.records[-1:]))
        if progress is not None:
            going = self.records[-1].active & self.records[-1].finite
            means = {name: finite_mean(values[going]) for name, values in self.records[-1].metrics.items()}
            means = {name: mean for name, mean in means.items() if np.isfinite(mean)}  # round 0 has no episodes
            progress(len(self.records), self.algorithm.rounds, means)

    def _layout(self) -> Layout:
        """The layout of this training's checkpoint. Runs keep finite states, if their first state is finite."""

        def of_all_runs(array: Any, finite: bool = False) -> Leaf:
            return Leaf((self.runs, *array.shape[1:]), array.dtype, finite)

        program = self.programs[0]

        def collector(rounds: int) -> list[Leaf]:
            stored = jax.eval_shape(lambda memory: self.collector.in_program.stored(memory, rounds), program.memory)
            return [of_all_runs(array) for array in [*jax.tree.leaves(program.kept), *stored]]

        states = jax.device_get(jax.tree.leaves(program.states))
        return Layout(
            [of_all_runs(x, x.dtype.kind != "f" or bool(np.isfinite(x).all())) for x in states],
            collector,
            self.runs,
            self.algorithm.rounds,
            len(self.algorithm.stop_reasons),
            () if self.algorithm.schedule is None else ("return", "env_steps"),
        )

    def _save(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint. If that fails, say so once and continue: the result can still be saved at the end."""
        active = self._joined([program.active for program in self.programs])
        memory = [program.stored_memory(len(self.records)) for program in self.programs]
        arrays = [self._joined(part) for part in zip(*memory, strict=True)]
        try:
            checkpoint.save(self._states(), active, packed(self.records), self._seconds(), arrays)
        except (OSError, RunError) as error:
            if not self.unsaved:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else error
                kept = f"; {checkpoint.resume_hint}" if has_checkpoint(checkpoint.path) else ""
                what = f"the checkpoint '{checkpoint.path}' cannot be written ({reason}): training continues"
                print(f"{what}{kept}", file=sys.stderr)
            self.unsaved = True
        else:
            self.unsaved = False

    def _over(self) -> bool:
        """Whether all runs have ended, according to the records read so far."""
        if not self.records:
            return False
        last = self.records[-1]
        going = np.asarray(last.active & last.finite & (last.stop == 0))
        return not (going & ~spent(self.records, self.collector.limit)).any()


def _resumable(error: WorkerError | SpecError, checkpoint: Checkpoint | None) -> WorkerError | SpecError:
    hint = "" if checkpoint is None else checkpoint.resume_hint
    return type(error)(f"{error}; {hint}") if hint else error


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of raising, so that the round is finished. A second Ctrl-C raises."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def handle(signum: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()
        if os.isatty(2):  # not print: the signal may have interrupted a print
            os.write(2, b"\nEnding after this round. Ctrl-C again ends at once.\n")

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
