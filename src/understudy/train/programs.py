"""The compiled programs of the training loop: one round, or one update, of a share of the runs.

On a CPU the runs are split into shares, one program call for each core. Besides the algorithm's
update, a program calls the collector, keeps the last good state of a run whose numbers are not finite any more, and
returns a record for the host. While it is traced, it checks the algorithm's return values.
"""

import os
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from understudy.collect.base import Collected, Collector, InProgram, Memory, Now
from understudy.collect.episodes import GivenEpisodes
from understudy.core.types import Dataset, Info, RoundData, Spec, State
from understudy.game import Algorithm
from understudy.game.schedule import Schedule
from understudy.game.user_code import calling
from understudy.train.candidates import Kept
from understudy.train.checkpoints import SavedLoop
from understudy.train.contract import check_update
from understudy.train.divergence import Data, cause
from understudy.train.records import RoundRecord

Leaves = TypeVar("Leaves")


def shares(runs: int) -> np.ndarray:
    """The runs of each program, as a row of indices.

    An accelerator takes all runs at once. On a CPU, XLA keeps small networks on one core, so the runs are split evenly
    over the cores. If the runs do not divide evenly, the last one is repeated.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    size = -(-runs // cores) if jax.default_backend() == "cpu" else runs
    count = -(-runs // size)
    return np.minimum(np.arange(count * size), runs - 1).reshape(count, size)


class RunKeys(NamedTuple):
    """The two random streams of each run. They have no key in common."""

    update: Key[Array, " runs"]
    collect: Key[Array, " runs"]

    def at(self, schedule: Schedule | None, now: Now) -> "RunKeys":
        """The keys of one update."""

        def of_round(key: Key[Array, ""]) -> Key[Array, ""]:
            return jax.random.fold_in(key, now.round)

        if schedule is None:
            return RunKeys(jax.vmap(of_round)(self.update), jax.vmap(of_round)(self.collect))
        keys = jax.vmap(lambda key: jax.random.fold_in(of_round(key), now.update))(self.update)
        collect, update = jax.vmap(jax.random.split, out_axes=1)(keys)
        return RunKeys(update, collect)


class Program:
    """A share of the runs: the inputs of the compiled round, carried from call to call."""

    def __init__(
        self,
        algorithm: Algorithm,
        spec: Spec,
        demonstrations: Dataset,
        held_out: Dataset | None,
        keys: Key[Array, " runs"],
        runs: np.ndarray,
        collector: Collector,
        parts: int = 0,
    ):
        """`parts` of training each keep a candidate for the final policy (`candidates`)."""
        init_keys, update_keys = jax.vmap(jax.random.split, out_axes=1)(keys[runs])
        collect_keys = jax.vmap(jax.random.fold_in, (0, None))(keys[runs], 2)  # 0 and 1 are used by the split
        self.algorithm, self.spec, self.collector, self.runs = algorithm, spec, collector, runs
        self.keys = RunKeys(update_keys, collect_keys)
        self.demonstrations = demonstrations.of(runs)
        self.held_out = None if held_out is None else jax.tree.map(lambda x: x[runs], held_out)
        self.states = _init(algorithm, spec, self.demonstrations, init_keys)
        jax.block_until_ready(self.states)  # type: ignore[no-untyped-call]
        self.memory = _memory(collector.in_program, algorithm, self.states, spec)
        self.kept = _kept(algorithm, self.states, parts) if parts else None
        self.active = jnp.ones(len(runs), bool)
        self.queries = jnp.zeros(len(runs), jnp.int32)
        self.given: Any = None
        """The collector's data from the host for the next call."""

    def restore(self, saved: SavedLoop, queries: np.ndarray) -> None:
        """Continue from a checkpoint, which holds all runs."""
        self.queries = jnp.asarray(queries[self.runs], jnp.int32)
        leaves = [jnp.asarray(leaf[self.runs]) for leaf in saved.leaves]
        self.states = jax.tree.unflatten(jax.tree.structure(self.states), leaves)
        self.active = jnp.asarray(saved.active[self.runs])
        arrays = [leaf[self.runs] for leaf in saved.collector]
        count = len(jax.tree.leaves(self.kept))
        self.kept = jax.tree.unflatten(jax.tree.structure(self.kept), map(jnp.asarray, arrays[:count]))
        self.memory = self.collector.in_program.restored(self.memory, arrays[count:])

    def stored_memory(self, rounds: int) -> list[Array]:
        """The candidates and the collector's arrays that a checkpoint stores after `rounds` rounds."""
        return [*jax.tree.leaves(self.kept), *self.collector.in_program.stored(self.memory, rounds)]

    def cause_of_divergence(self, run: int, index: int, records: list[RoundRecord]) -> str:
        """What was not finite when one of the runs diverged in a round. Measured on the state that it has kept."""
        at = int(np.flatnonzero(self.runs == run)[0])
        size = int(self.demonstrations.size[at])
        demonstrated = jax.tree.map(lambda x: np.asarray(x)[:size], self.demonstrations.steps)
        schedule, update = self.algorithm.schedule, None
        state = jax.tree.map(lambda x: np.asarray(x[at]), self.states)
        if schedule is not None:
            rows = min((index + 1) * schedule.round_steps, schedule.capacity)
            data = Data.of_replay(demonstrated, self.memory, at, rows, index)
        else:
            collected = self._collected_again(at, index, sum(int(record.queries[run]) for record in records[:index]))
            data = Data.of_episodes(demonstrated, collected)
            update = None if collected is None else partial(self._updated_again, at, index, collected)
        return cause(self.algorithm, self.spec, state, records[index], run, data, update)

    def _collected_again(self, at: int, index: int, queries: int) -> Collected | None:
        """The episodes that a run collected in a round, from the state that it had before. Repeats the random numbers.

        None if they came from the host and are not there any more.
        """
        if isinstance(self.collector.in_program, GivenEpisodes) and self.given is None:
            return None
        mine = (self.states, self.memory, self.keys, self.given)
        states, memory, keys, given = jax.tree.map(lambda x: x[at : at + 1], mine)
        now, left = Now(jnp.asarray(index), jnp.asarray(0)), jnp.asarray([self.collector.limit - queries], jnp.int32)
        collect_keys = keys.at(None, now).collect
        found = _collect(self.algorithm, self.collector.in_program, states, memory, given, now, left, collect_keys)
        collected: Collected = jax.tree.map(lambda x: x[0], jax.device_get(found))
        return collected

    def _updated_again(self, at: int, index: int, collected: Collected) -> State:
        """The state that the update of a round returned, with NaN or infinity, computed again on the host's request."""
        now = Now(jnp.asarray(index), jnp.asarray(0))
        state, key = jax.tree.map(lambda x: x[at], (self.states, self.keys.at(None, now).update))
        data = _round_data(self.demonstrations.of(at), None, collected, now)
        return jax.device_get(_update(self.algorithm, state, data, key))

    def policies(self) -> Any:
        """The acting policies of the runs, stacked, on the device."""
        return _policies(self.algorithm, self.states)

    def advance(self, index: int, call: int, wait: bool) -> RoundRecord:
        """One call for all runs of the share. Programs run in parallel only if each waits in its own thread."""
        schedule, calls = self.algorithm.schedule, self.collector.calls_per_round
        count = 1 if schedule is None else schedule.updates // calls
        self.states, self.memory, self.kept, self.active, self.queries, records = _advance(
            self.algorithm,
            self.collector.in_program,
            self.states,
            self.memory,
            self.kept,
            self.demonstrations,
            self.held_out,
            self.keys,
            Now(jnp.asarray(index), jnp.asarray(call)),
            self.active,
            self.queries,
            jnp.asarray(self.collector.limit, jnp.int32),
            self.given,
            count,
        )
        return jax.block_until_ready(records) if wait else records  # type: ignore[no-untyped-call]


def traced(algorithm: Leaves) -> Leaves:
    """The algorithm with its floats as arrays: arguments of a compiled program, not constants inside it."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32) if isinstance(x, float) else x, algorithm)


@partial(jax.jit, static_argnames=("spec",))
def _init(algorithm: Algorithm, spec: Spec, demonstrations: Dataset, keys: Key[Array, " runs"]) -> State:
    """The states before round 0, one run after the other.

    Batched QR factorisations of several fresh networks deadlock on two cores (jaxlib 0.10.2).
    """

    def one(run: tuple[Dataset, Key[Array, ""]]) -> State:
        data, key = run
        with calling(f"{algorithm.card.name}.init", type(algorithm).init):
            return algorithm.init(key, spec, data._replace(steps=demonstrations.steps))

    sizes = demonstrations._replace(steps=None)  # type: ignore[arg-type]
    states = jax.lax.map(one, (sizes, keys))
    # A weakly typed leaf comes back from a round strongly typed, and the next round would compile again.
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), states)


@partial(jax.jit, static_argnames=("spec",))
def _memory(collector: InProgram, algorithm: Algorithm, states: State, spec: Spec) -> Memory:
    return collector.init(algorithm, states, spec)


@partial(jax.jit, static_argnames=("parts",))
def _kept(algorithm: Algorithm, states: State, parts: int) -> Kept:
    return jax.vmap(lambda state: Kept.init(algorithm, state, parts))(states)


@jax.jit
def _policies(algorithm: Algorithm, states: State) -> Any:
    # A copy: the next update overwrites the states, and jit returns an unchanged array itself.
    return jax.tree.map(jnp.copy, jax.vmap(algorithm.acting_policy)(states))


@jax.jit
def _collect(algorithm: Algorithm, collector: InProgram, *inputs: Any) -> Collected:
    return collector.collect(algorithm, *inputs)[1]


@jax.jit
def _update(algorithm: Algorithm, state: State, data: RoundData, key: Key[Array, ""]) -> State:
    return algorithm.update(state, data, key)[0]


@partial(jax.jit, donate_argnames=("states", "memory", "kept"), static_argnames=("count",))
def _advance(
    algorithm: Algorithm,
    collector: InProgram,
    states: State,
    memory: Memory,
    kept: Kept | None,
    demonstrations: Dataset,
    held_out: Dataset | None,
    keys: RunKeys,
    first: Now,
    active: Bool[Array, " runs"],
    queries: Int[Array, " runs"],
    limit: Int[Array, ""],
    given: Any,
    count: int,
) -> tuple[State, Memory, Kept | None, Bool[Array, " runs"], Int[Array, " runs"], RoundRecord]:
    """`count` updates, each after collecting. Updates are the outer loop and runs the inner one (`collect.replay`)."""
    schedule = algorithm.schedule

    def update(carry: Any, number: Int[Array, ""]) -> tuple[Any, RoundRecord]:
        states, memory, kept, active, queries = carry
        now = Now(first.round, number)
        round_ends = schedule is None or number == schedule.updates - 1
        update_keys, collect_keys = keys.at(schedule, now)
        memory, collected = collector.collect(algorithm, states, memory, given, now, limit - queries, collect_keys)

        def one(
            state: State,
            kept: Kept | None,
            data: Dataset,
            held_out: Dataset | None,
            collected: Collected,
            key: Key[Array, ""],
            active: Bool[Array, ""],
            queries: Int[Array, ""],
        ) -> tuple[State, Kept | None, Bool[Array, ""], Int[Array, ""], RoundRecord]:
            round_data = _round_data(data, held_out, collected, now)
            with calling(f"{algorithm.card.name}.update", type(algorithm).update):
                returned = algorithm.update(state, round_data, key)
            new, info = check_update(algorithm, state, returned)
            state, finite = _guarded(state, new, info, active)
            if kept is not None:
                valid = active & finite & ~jnp.asarray(info.undo) & round_ends
                kept = kept.update(algorithm, state, info, now.round, valid)
            new_queries, metrics = jnp.zeros((), jnp.int32), info.metrics
            if collected.mean_return is not None:
                metrics = metrics | {"return": collected.mean_return}
            if collected.answers is not None:
                new_queries = jnp.where(active, collected.answers, 0)
                metrics = metrics | {"queries": (queries + new_queries).astype(jnp.float32)}
            if collected.env_steps is not None:
                metrics = metrics | {"env_steps": collected.env_steps}
            stop, undo = jnp.asarray(info.stop), jnp.asarray(info.undo)
            going = active & finite & (stop == 0) & (queries + new_queries < limit)
            record = RoundRecord(metrics, active, finite, stop, undo, new_queries)
            return state, kept, going, queries + new_queries, record

        axes = (0, 0, Dataset(None, 0, 0), 0, 0, 0, 0, 0)  # type: ignore[arg-type]
        states, kept, active, queries, record = jax.vmap(one, axes)(
            states, kept, demonstrations, held_out, collected, update_keys, active, queries
        )
        return (states, memory, kept, active, queries), record

    carry = (states, memory, kept, active, queries)
    if schedule is None:
        carry, record = update(carry, first.update)
        return *carry, jax.tree.map(lambda x: x[None], record)
    carry, records = jax.lax.scan(update, carry, first.update + jnp.arange(count))
    return *carry, records


def _round_data(data: Dataset, held_out: Dataset | None, collected: Collected, now: Now) -> RoundData:
    shared = {name: getattr(collected, name) for name in RoundData._fields if name in Collected._fields}
    return RoundData(data, held_out=held_out, round=now.round, update=now.update, **shared)


def _guarded(state: State, new: State, info: Info, active: Bool[Array, ""]) -> tuple[State, Bool[Array, ""]]:
    """The new state, or the old one if the new one must not be kept, and whether all new numbers are finite."""
    numbers = [x for x in jax.tree.leaves((info.metrics, new)) if jnp.issubdtype(x.dtype, jnp.inexact)]
    finite = jnp.stack([jnp.isfinite(x).all() for x in numbers]).all()
    keep = active & finite & ~jnp.asarray(info.undo)
    return jax.tree.map(lambda n, o: jnp.where(keep, n, o), new, state), finite
