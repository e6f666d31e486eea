"""The only training loop. An algorithm never has its own.

Runs (seeds × demonstration counts) are one compiled program: a vmapped round, called once a round, its states donated
from call to call. On a CPU the program is called once for each core, with a share of the runs. What a round collects
beside the demonstrations is a `Collector`'s business: nothing (offline), episodes in a JAX environment and the expert's
answers inside the same program (`Fused`), or the same gathered on the host before the call (`Hosted`).
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.checkpoints import Checkpoint, Place
from understudy.collectors import Collected, Collector, Fused, Hosted, round_data
from understudy.errors import DivergedError
from understudy.game import Algorithm
from understudy.types import Dataset, Spec, State

Leaves = TypeVar("Leaves")


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


class Progress(Protocol):
    """Told after each round: rounds done, rounds in all, the mean of each metric over the runs still going."""

    def __call__(self, done: int, total: int, metrics: dict[str, float]) -> None: ...


Visit = Callable[[int, Callable[[], State]], None]
"""Called after each round with its number, from 1, and a function that returns the states of all runs then."""


class Outcome(NamedTuple):
    """What the host reads of a round, for each run."""

    metrics: dict[str, Float[Array, " runs"]]
    active: Bool[Array, " runs"]
    finite: Bool[Array, " runs"]
    stop: Int[Array, " runs"]
    undo: Bool[Array, " runs"]
    queries: Int[Array, " runs"]
    """Asked of the expert in this round."""


def train(
    algorithm: Algorithm,
    spec: Spec,
    demonstrations: Dataset,
    keys: Key[Array, " runs"],
    collector: Collector | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    visit: Visit | None = None,
) -> Training:
    """Train one run for each key, all at once, on demonstrations and what a collector adds to them.

    `demonstrations.size` has an entry for each run; the steps are shared. A run that stops, or whose metrics or
    parameters stop being finite, keeps the state of its last good round while the others go on. Ctrl-C ends all runs at
    the end of the round and keeps what they have. With a checkpoint, training goes on from where it was. `visit` may
    look at the states after each round, for learning curves.
    """
    began, algorithm = time.perf_counter(), traced(algorithm)
    lanes = [_Lane(algorithm, spec, demonstrations, keys, runs, collector) for runs in _shares(len(keys))]
    history: list[Outcome] = []
    pending: list[Outcome] = []
    before = 0.0
    place = None if checkpoint is None else checkpoint.load()
    if place is not None:
        before = place.seconds
        history = _unpacked(place.history)
        asked = np.sum([outcome.queries for outcome in history], axis=0)
        for lane in lanes:
            lane.restore(place, asked)

    def record() -> None:
        parts = jax.device_get(pending)
        pending.clear()
        history.append(jax.tree.map(lambda *part: np.concatenate(part)[: len(keys)], *parts))
        if progress is not None:
            going = history[-1].active & history[-1].finite
            means = {name: float(values[going].mean()) for name, values in history[-1].metrics.items() if going.any()}
            means = {name: mean for name, mean in means.items() if np.isfinite(mean)}  # round 0 plays no episodes
            progress(len(history), algorithm.rounds, means)

    def states() -> State:
        # A copy: with a single lane these would be the very arrays that the next round overwrites.
        together = (jnp.copy(jnp.concatenate(part)[: len(keys)]) for part in zip(*map(_leaves, lanes), strict=True))
        return jax.tree.unflatten(jax.tree.structure(lanes[0].states), list(together))

    def keep(place: Checkpoint) -> None:
        active = np.concatenate([lane.active for lane in lanes])[: len(keys)]
        place.save(states(), active, _packed(history), before + time.perf_counter() - began)

    with _interruptible() as interrupt, ThreadPoolExecutor(len(lanes)) as threads:
        first = len(history)
        for index in range(first, algorithm.rounds):
            if (interrupt.is_set() and (history or pending)) or _over(history, collector):
                break
            if isinstance(collector, Hosted):
                if pending:
                    record()
                asked, going = (np.concatenate([getattr(lane, name) for lane in lanes])[: len(keys)] for name in ASKED)
                gathered = collector.gather(algorithm, states(), index, asked, going)
                for lane in lanes:
                    lane.given = jax.tree.map(lambda x, runs=lane.runs: jnp.asarray(x[runs]), gathered)
            # The first round compiles, which one lane does for all; then they go side by side.
            each = map if index == first or len(lanes) == 1 else threads.map
            outcomes = list(each(lambda lane, index=index: lane.advance(index, wait=len(lanes) > 1), lanes))
            # Read the round before, so that the host waits for numbers while the device is at the next round.
            if pending:
                record()
            pending.extend(outcomes)
            if visit is not None:
                visit(index + 1, states)
            if checkpoint is not None and checkpoint.due:
                record()
                keep(checkpoint)
        if pending:
            record()
        if checkpoint is not None and (interrupt.is_set() or checkpoint.path.exists()):
            keep(checkpoint)
    seconds = before + time.perf_counter() - began
    early = len(history) < algorithm.rounds and not _over(history, collector)
    try:
        limit = None if collector is None else int(collector.limit)
        return _summary(algorithm, states(), history, seconds, interrupt.is_set() and bool(early), limit)
    except DivergedError:
        if checkpoint is not None:  # there is nothing to go on from
            Checkpoint.discard(checkpoint.path)
        raise


def _shares(runs: int) -> np.ndarray:
    """Which runs go together in one program: a row of indices for each.

    An accelerator takes all of them at once. XLA's CPU programs keep to one core when the networks are small, so there
    the runs are dealt out to the cores, in equal shares (the last run is repeated where they do not divide).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    size = -(-runs // cores) if jax.default_backend() == "cpu" else runs
    shares = -(-runs // size)
    return np.minimum(np.arange(shares * size), runs - 1).reshape(shares, size)


def _leaves(lane: "_Lane") -> list[Array]:
    return jax.tree.leaves(lane.states)


ASKED = ("asked", "active")


class _Lane:
    """A share of the runs: a program's inputs from round to round."""

    def __init__(
        self,
        algorithm: Algorithm,
        spec: Spec,
        demonstrations: Dataset,
        keys: Key[Array, " runs"],
        runs: np.ndarray,
        collector: Collector | None,
    ):
        init_keys, self.keys = jax.vmap(jax.random.split, out_axes=1)(keys[runs])
        self.algorithm = algorithm
        self.demonstrations = demonstrations._replace(size=demonstrations.size[runs])
        self.states = _init(algorithm, spec, self.demonstrations, init_keys)
        jax.block_until_ready(self.states)  # type: ignore[no-untyped-call]
        self.active = jnp.ones(len(runs), bool)
        self.runs = runs
        self.asked = jnp.zeros(len(runs), jnp.int32)
        self.limit = jnp.asarray(np.iinfo(np.int32).max if collector is None else collector.limit, jnp.int32)
        self.fused = collector if isinstance(collector, Fused) else None
        self.given: Collected | None = None

    def restore(self, place: Place, asked: np.ndarray) -> None:
        """Go on from a checkpoint, which holds all runs, not only those of the share."""
        self.asked = jnp.asarray(asked[self.runs], jnp.int32)
        leaves = [jnp.asarray(leaf[self.runs]) for leaf in place.leaves]
        self.states = jax.tree.unflatten(jax.tree.structure(self.states), leaves)
        self.active = jnp.asarray(place.active[self.runs])

    def advance(self, index: int, wait: bool = False) -> Outcome:
        """One round of all runs of the share. Lanes only go side by side if each waits, in its thread, for its own."""
        self.states, self.active, outcome = _round(
            self.algorithm,
            self.states,
            self.demonstrations,
            self.keys,
            jnp.asarray(index),
            self.active,
            self.fused,
            self.given,
            self.asked,
            self.limit,
        )
        self.asked = self.asked + outcome.queries
        return jax.block_until_ready(outcome) if wait else outcome  # type: ignore[no-untyped-call]


def traced(algorithm: Leaves) -> Leaves:
    """Its numbers as arrays: arguments of a compiled program, not constants inside it."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32) if isinstance(x, float) else x, algorithm)


@partial(jax.jit, static_argnames=("spec",))
def _init(algorithm: Algorithm, spec: Spec, demonstrations: Dataset, keys: Key[Array, " runs"]) -> State:
    """The states before the first round, one run after the other.

    Batched, the QR factorisations of several fresh networks share XLA's few CPU threads between them, and on two cores
    they wait for each other for good.
    """

    def one(run: tuple[Int[Array, ""], Key[Array, ""]]) -> State:
        size, key = run
        return algorithm.init(key, spec, demonstrations._replace(size=size))

    return jax.lax.map(one, (demonstrations.size, keys))


@partial(jax.jit, donate_argnames=("states",))
def _round(
    algorithm: Algorithm,
    states: State,
    demonstrations: Dataset,
    keys: Key[Array, " runs"],
    index: Int[Array, ""],
    active: Bool[Array, " runs"],
    fused: Fused | None,
    given: Collected | None,
    asked: Int[Array, " runs"],
    limit: Int[Array, ""],
) -> tuple[State, Bool[Array, " runs"], Outcome]:
    def one(
        state: State,
        size: Int[Array, ""],
        key: Key[Array, ""],
        active: Bool[Array, ""],
        given: Collected | None,
        asked: Int[Array, ""],
    ) -> tuple[State, Bool[Array, ""], Outcome]:
        key = jax.random.fold_in(key, index)
        if fused is not None:
            given = fused.collect(algorithm, state, index, asked, jax.random.fold_in(key, 0))
        data = round_data(demonstrations._replace(size=size), given)
        new, info = algorithm.update(state, data, key)
        numbers = [x for x in jax.tree.leaves((info.metrics, new)) if jnp.issubdtype(x.dtype, jnp.inexact)]
        finite = jnp.stack([jnp.isfinite(x).all() for x in numbers]).all()
        stop, undo = jnp.asarray(info.stop), jnp.asarray(info.undo)
        state = jax.tree.map(lambda n, o: jnp.where(active & finite & ~undo, n, o), new, state)
        queries, metrics = jnp.zeros((), jnp.int32), info.metrics
        if given is not None:
            metrics = metrics | {"return": given.returned}
            if given.asks:
                queries = jnp.where(active, given.rollouts.size, 0)
                metrics = metrics | {"queries": (asked + queries).astype(jnp.float32)}
        going = active & finite & (stop == 0) & (asked + queries < limit)
        return state, going, Outcome(metrics, active, finite, stop, undo, queries)

    return jax.vmap(one)(states, demonstrations.size, keys, active, given, asked)


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
    metrics = {
        name: np.stack(
            [np.where(outcome.active & outcome.finite, outcome.metrics[name], np.nan) for outcome in history], axis=1
        )
        for name in history[0].metrics
    }
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
                status = f"stopped in round {index + 1}: {algorithm.stops[int(outcome.stop[run]) - 1]}"
                status += f", so the policy of round {index} is kept" if outcome.undo[run] else ""
        if status == "finished" and _spent(history, limit)[run]:
            last = max(index for index, outcome in enumerate(history) if outcome.active[run])
            if last + 1 < algorithm.rounds:
                status = f"stopped in round {last + 1}: the budget of {limit} queries is spent"
        statuses.append(status)
    if all(status.startswith("diverged in round 1:") for status in statuses):
        raise DivergedError(f"every run {statuses[0].split(',')[0]}: lower the learning rate, or look at the data")
    return Training(states, metrics, statuses, seconds, interrupted)


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

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
