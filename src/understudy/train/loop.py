"""The only training loop. An algorithm never has its own.

Runs (seeds × demonstration counts) are one compiled program: a vmapped round, called once a round, its states donated
from call to call. On a CPU the program is called once for each core, with a share of the runs. What a round collects
beside the demonstrations is a `Collector`'s business: nothing (offline), episodes in a JAX environment and the expert's
answers inside the same program (`Fused`), or the same gathered on the host before the call (`Hosted`). An algorithm
that learns while it plays has several turns in a round: all of them in one program in a JAX environment (`Fused`), one
call for each where the environment is on the host (`Stepped`). `lanes` has the programs.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from understudy.collect.collectors import Collector, Hosted, Stepped
from understudy.core.errors import DivergedError, WorkerError
from understudy.core.progress import Progress
from understudy.core.types import Dataset, Spec, State
from understudy.game import Algorithm
from understudy.train.checkpoints import Checkpoint
from understudy.train.programs import Lane, Outcome, merged, shares, traced


@dataclass(frozen=True)
class Training:
    """What a batch of runs came to. Every array's first axis is the run."""

    states: State
    metrics: dict[str, np.ndarray]
    """name → (runs, rounds); NaN from the round in which a run stopped being finite, or after it stopped."""
    statuses: list[str]
    """A few words a run: finished, stopped and why, diverged, interrupted, and when."""
    seconds: float
    """Time spent, in earlier sittings too."""
    interrupted: bool


Visit = Callable[[int, Callable[[], State]], None]
"""Called after each round with its number, from 1, and a function that returns the states of all runs then."""


class Log(Protocol):
    """Told the numbers of every run, (runs, rounds) each, and the number of the first of these rounds.

    Before training: of the rounds that a checkpoint holds, none if there are none. Then of each round, once it is done.
    They are those of `Training.metrics`.
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
) -> Training:
    """Train one run for each key, all at once, on demonstrations and what a collector adds to them.

    `demonstrations.size` has an entry for each run; the steps are shared. A run that stops, or whose metrics or
    parameters stop being finite, keeps the state of its last good round while the others go on. Ctrl-C ends all runs at
    the end of the round and keeps what they have. With a checkpoint, training goes on from where it was. `visit` may
    look at the states after each round, for learning curves. `held_out` has demonstrated steps for payoffs, not for
    training. `log` is told what each round came to, run by run.
    """
    began, algorithm = time.perf_counter(), traced(algorithm)
    unseen = None if algorithm.schedule is None else held_out
    lanes = [Lane(algorithm, spec, demonstrations, unseen, keys, runs, collector) for runs in shares(len(keys))]
    history: list[Outcome] = []
    pending: list[list[Outcome]] = []
    before = 0.0
    place = None if checkpoint is None else checkpoint.load()
    if place is not None:
        before = place.seconds
        history = _unpacked(place.history)
        asked = np.sum([outcome.queries for outcome in history], axis=0)
        for lane in lanes:
            lane.restore(place, asked)
    if log is not None:
        log(1, _metrics(history))

    def together(parts: Any) -> np.ndarray:
        """The lanes' shares side by side, without the runs that only fill the last."""
        return np.concatenate(parts)[: len(keys)]

    def record() -> None:
        turns = [
            jax.tree.map(lambda *part: np.concatenate(part, axis=1)[:, : len(keys)], *call)
            for call in jax.device_get(pending)
        ]
        pending.clear()
        history.append(merged(turns))
        if log is not None:
            log(len(history), _metrics(history[-1:]))
        if progress is not None:
            going = history[-1].active & history[-1].finite
            means = {name: _mean(values[going]) for name, values in history[-1].metrics.items()}
            means = {name: mean for name, mean in means.items() if np.isfinite(mean)}  # round 0 plays no episodes
            progress(len(history), algorithm.rounds, means)

    def states() -> State:
        # A copy: with a single lane these would be the very arrays that the next round overwrites.
        parts = zip(*(jax.tree.leaves(lane.states) for lane in lanes), strict=True)
        leaves = [jnp.copy(jnp.concatenate(part)[: len(keys)]) for part in parts]
        return jax.tree.unflatten(jax.tree.structure(lanes[0].states), leaves)

    def policies() -> Any:
        return jax.tree.map(lambda *part: together(part), *(lane.policies() for lane in lanes))

    def keep(place: Checkpoint) -> None:
        active = together([lane.active for lane in lanes])
        around = [together(part) for part in zip(*(lane.kept(len(history)) for lane in lanes), strict=True)]
        place.save(states(), active, _packed(history), before + time.perf_counter() - began, around)

    def gather(index: int, call: int) -> None:
        """What the lanes are given, where it is gathered on the host."""
        if isinstance(collector, Hosted):
            asked, going = (together([getattr(lane, name) for lane in lanes]) for name in ASKED)
            gathered: Any = collector.gather(algorithm, states(), index, asked, going)
        elif isinstance(collector, Stepped):
            gathered = collector.turn(policies, index, call, together([lane.active for lane in lanes]))
        else:
            return
        for lane in lanes:
            lane.given = jax.tree.map(lambda x, runs=lane.runs: jnp.asarray(x[runs]), gathered)

    with ExitStack() as stack:
        interrupt = stack.enter_context(_interruptible())
        threads = stack.enter_context(ThreadPoolExecutor(len(lanes)))
        first = len(history)
        if isinstance(collector, Stepped):
            stack.enter_context(collector.working(first))
        for index in range(first, algorithm.rounds):
            if (interrupt.is_set() and (history or pending)) or _over(history, collector):
                break
            if isinstance(collector, Hosted) and pending:
                record()
            calls: list[list[Outcome]] = []
            for call in range(lanes[0].calls):
                try:
                    gather(index, call)
                except WorkerError as error:
                    raise _resumable(error, checkpoint) from error
                # The first round compiles, which one lane does for all; then they go side by side.
                each = map if (index == first and call == 0) or len(lanes) == 1 else threads.map
                calls.append(list(each(lambda lane, at=(index, call): lane.advance(*at, wait=len(lanes) > 1), lanes)))
                # Read the round before, so that the host waits for numbers while the device is at the next round.
                if pending:
                    record()
            pending.extend(calls)
            if visit is not None:
                visit(index + 1, states)
            # What steps on the host may die with its workers: its place is kept from the first round on.
            early = isinstance(collector, Stepped) and index == first
            if checkpoint is not None and (checkpoint.due or early):
                record()
                keep(checkpoint)
        if pending:
            record()
        if checkpoint is not None and (interrupt.is_set() or checkpoint.path.exists()):
            keep(checkpoint)
    seconds = before + time.perf_counter() - began
    short = len(history) < algorithm.rounds and not _over(history, collector)
    try:
        limit = None if collector is None else int(collector.limit)
        return _summary(algorithm, states(), history, seconds, interrupt.is_set() and bool(short), limit)
    except DivergedError:
        if checkpoint is not None:  # there is nothing to go on from
            Checkpoint.discard(checkpoint.path)
        raise


ASKED = ("asked", "active")


def _mean(values: Any) -> float:
    """The mean of what is finite: a return is not, in a round in which no episode ended."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _resumable(error: WorkerError, checkpoint: Checkpoint | None) -> WorkerError:
    way_on = "" if checkpoint is None else checkpoint.way_on
    return WorkerError(f"{error}; {way_on}") if way_on else error


def _packed(history: list[Outcome]) -> dict[str, np.ndarray]:
    """A history as plain arrays, (rounds, runs) each."""
    stacked = jax.tree.map(lambda *rounds: np.stack(rounds), *history)
    metrics = {f"metrics.{name}": x for name, x in stacked.metrics.items()}
    return metrics | {name: getattr(stacked, name) for name in Outcome._fields[1:]}


def _unpacked(columns: dict[str, np.ndarray]) -> list[Outcome]:
    metrics: dict[str, Any] = {
        name.removeprefix("metrics."): x for name, x in columns.items() if name.startswith("metrics.")
    }
    rest: list[Any] = [columns[name] for name in Outcome._fields[1:]]
    stacked = Outcome(metrics, *rest)
    return [jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(len(stacked.active))]


def _metrics(history: list[Outcome]) -> dict[str, np.ndarray]:
    """name → (runs, rounds); NaN where a run is not going."""
    return {
        name: np.stack(
            [np.where(outcome.active & outcome.finite, outcome.metrics[name], np.nan) for outcome in history], axis=1
        )
        for name in (history[0].metrics if history else ())
    }


def _going(outcome: Outcome) -> np.ndarray:
    return np.asarray(outcome.active & outcome.finite & (outcome.stop == 0))


def _over(history: list[Outcome], collector: Collector | None) -> bool:
    """Whether no run has a round to come, as far as the history tells."""
    if not history:
        return False
    return not (_going(history[-1]) & ~_spent(history, None if collector is None else int(collector.limit))).any()


def _spent(history: list[Outcome], limit: int | None) -> np.ndarray:
    """Runs that have asked the expert as often as they may."""
    return np.asarray(np.sum([outcome.queries for outcome in history], axis=0) >= (limit or np.inf))


def _summary(
    algorithm: Algorithm,
    states: State,
    history: list[Outcome],
    seconds: float,
    interrupted: bool,
    limit: int | None = None,
) -> Training:
    statuses = []
    for run in range(len(history[0].active)):
        status = f"interrupted after round {len(history)} of {algorithm.rounds}" if interrupted else "finished"
        for index, outcome in enumerate(history):
            if not outcome.active[run]:
                break
            if not outcome.finite[run]:
                values = {name: float(value[run]) for name, value in outcome.metrics.items()}
                bad = [
                    f"{name} is {value}"
                    for name, value in values.items()
                    if not np.isfinite(value) and name != "return"
                ]
                what = bad[0] if bad else "the parameters are not finite"
                status = f"diverged in round {index + 1}: {what}, so the policy of round {index} is kept"
            elif outcome.stop[run]:
                status = f"stopped in round {index + 1}: {algorithm.stop_reasons[int(outcome.stop[run]) - 1]}"
                status += f", so the policy of round {index} is kept" if outcome.undo[run] else ""
        if status == "finished" and _spent(history, limit)[run]:
            last = max(index for index, outcome in enumerate(history) if outcome.active[run])
            if last + 1 < algorithm.rounds:
                status = f"stopped in round {last + 1}: the budget of {limit} queries is spent"
        statuses.append(status)
    if all(status.startswith("diverged in round 1:") for status in statuses):
        raise DivergedError(f"every run {statuses[0].split(',')[0]}: lower the learning rate, or look at the data")
    return Training(states, _metrics(history), statuses, seconds, interrupted)


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of raising, so that no round is torn in two; a second Ctrl-C raises."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def handle(signum: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()
        if os.isatty(2):  # not by print: what is interrupted may be printing
            os.write(2, b"\nEnding after this round. Ctrl-C again ends at once.\n")

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
