"""The compiled programs of the training loop: rounds and turns of a share of the runs, their states donated.

On a CPU a program is called once for each core, with a share of the runs: a lane. What a round does beside the update
is small: it keeps what was good when a run stops being finite, and reports what the host needs to know.
"""

import os
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.collect.collectors import Collected, Collector, Fused, round_data
from understudy.collect.stepping import (
    Chunk,
    Surroundings,
    finished,
    history,
    played,
    remembered,
    surroundings,
)
from understudy.core.types import Dataset, Info, RoundData, Spec, State
from understudy.envs import Environment
from understudy.game import Algorithm
from understudy.game.schedule import Schedule
from understudy.train.checkpoints import Place

Leaves = TypeVar("Leaves")


class Outcome(NamedTuple):
    """What the host reads of a round, for each run."""

    metrics: dict[str, Float[Array, " runs"]]
    active: Bool[Array, " runs"]
    finite: Bool[Array, " runs"]
    stop: Int[Array, " runs"]
    undo: Bool[Array, " runs"]
    queries: Int[Array, " runs"]
    """Asked of the expert in this round."""


def merged(turns: list[Outcome]) -> Outcome:
    """A round's outcome from those of its turns, (turns, runs) each, on the host.

    A round's numbers are those of the last turn that a run took part in, but for the return: the mean of the turns in
    which episodes ended.
    """
    together: Outcome = jax.tree.map(lambda *parts: np.concatenate(parts), *turns)
    took = np.maximum(together.active.sum(axis=0) - 1, 0)

    def last(values: Any) -> Any:
        return np.take_along_axis(values, took[None], axis=0)[0]

    metrics = {name: last(values) for name, values in together.metrics.items()}
    if "return" in metrics:
        known = np.isfinite(together.metrics["return"])
        total = np.where(known, together.metrics["return"], 0).sum(axis=0)
        metrics["return"] = np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)
    fine = together.finite | ~together.active
    stop, undo = (np.where(together.active, x, 0).max(axis=0) for x in (together.stop, together.undo))
    queries = together.queries.sum(axis=0)
    return Outcome(metrics, together.active[0], fine.all(axis=0), stop, undo.astype(bool), queries)


def shares(runs: int) -> np.ndarray:
    """Which runs go together in one program: a row of indices for each.

    An accelerator takes all of them at once. XLA's CPU programs keep to one core when the networks are small, so there
    the runs are dealt out to the cores, in equal shares (the last run is repeated where they do not divide).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    size = -(-runs // cores) if jax.default_backend() == "cpu" else runs
    count = -(-runs // size)
    return np.minimum(np.arange(count * size), runs - 1).reshape(count, size)


class Lane:
    """A share of the runs: a program's inputs from round to round."""

    def __init__(
        self,
        algorithm: Algorithm,
        spec: Spec,
        demonstrations: Dataset,
        held_out: Dataset | None,
        keys: Key[Array, " runs"],
        runs: np.ndarray,
        collector: Collector | None,
    ):
        init_keys, self.keys = jax.vmap(jax.random.split, out_axes=1)(keys[runs])
        self.algorithm, self.schedule = algorithm, algorithm.schedule
        self.demonstrations = demonstrations.of(runs)
        self.held_out = None if held_out is None else held_out.of(runs)
        self.states = _init(algorithm, spec, self.demonstrations, init_keys)
        jax.block_until_ready(self.states)  # type: ignore[no-untyped-call]
        self.active = jnp.ones(len(runs), bool)
        self.runs = runs
        self.asked = jnp.zeros(len(runs), jnp.int32)
        self.limit = jnp.asarray(np.iinfo(np.int32).max if collector is None else collector.limit, jnp.int32)
        self.fused = collector if isinstance(collector, Fused) else None
        self.given: Any = None
        """What was gathered on the host for the next call: a round's episodes, or a turn's steps."""
        self.around: Surroundings | None = None
        if self.schedule is not None:
            env = None if self.fused is None else self.fused.env
            self.around = _surroundings(algorithm, self.states, spec, self.schedule, env)

    def restore(self, place: Place, asked: np.ndarray) -> None:
        """Go on from a checkpoint, which holds all runs, not only those of the share."""
        self.asked = jnp.asarray(asked[self.runs], jnp.int32)
        leaves = [jnp.asarray(leaf[self.runs]) for leaf in place.leaves]
        self.states = jax.tree.unflatten(jax.tree.structure(self.states), leaves)
        self.active = jnp.asarray(place.active[self.runs])
        if self.around is not None:
            # Rows that nothing was played into were not kept.
            kept = [
                jnp.asarray(leaf[self.runs])
                if leaf.shape[1:] == new.shape[1:]
                else new.at[:, : leaf.shape[1]].set(leaf[self.runs])
                for leaf, new in zip(place.around, jax.tree.leaves(self.around), strict=True)
            ]
            self.around = jax.tree.unflatten(jax.tree.structure(self.around), kept)
            if self.fused is None:  # episodes on the host begin anew
                self.around = self.around._replace(totals=jnp.zeros_like(self.around.totals))

    def kept(self, rounds: int) -> list[Array]:
        """What a checkpoint keeps of the surroundings after so many rounds: of the history, the rows that are real."""
        if self.around is None or self.schedule is None:
            return []
        # In sixteenths of the room: every other size would be another program.
        part = -(-self.schedule.capacity // 16)
        size = min(
            -(-rounds * self.schedule.updates * self.schedule.update_steps // part) * part, self.schedule.capacity
        )
        rows = jax.tree.map(lambda x: x[:, :size], (self.around.steps, self.around.reward))
        return jax.tree.leaves(self.around._replace(steps=rows[0], reward=rows[1]))

    @property
    def calls(self) -> int:
        """Programs that make a round: one, or one for each turn that is gathered on the host."""
        return 1 if self.schedule is None or self.fused is not None else self.schedule.updates

    def policies(self) -> Any:
        """The policies that would play now, stacked, on the host."""
        return jax.device_get(_policies(self.algorithm, self.states))

    def advance(self, index: int, call: int = 0, wait: bool = False) -> Outcome:
        """One call for all runs of the share. Lanes only go side by side if each waits, in its thread, for its own."""
        if self.schedule is None:
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
            outcome = jax.tree.map(lambda x: x[None], outcome)
        else:
            self.states, self.around, self.active, outcome = _turns(
                self.algorithm,
                self.states,
                self.around,
                self.demonstrations,
                self.held_out,
                self.keys,
                jnp.asarray(index),
                jnp.asarray(call),
                self.active,
                None if self.fused is None else self.fused.env,
                self.given,
                self.schedule,
                self.schedule.updates // self.calls,
            )
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

    def one(run: tuple[Dataset, Key[Array, ""]]) -> State:
        data, key = run
        return algorithm.init(key, spec, data._replace(steps=demonstrations.steps))

    none = demonstrations._replace(steps=None)  # type: ignore[arg-type]
    states = jax.lax.map(one, (none, keys))
    # What is of a weak type here comes back from a round without it, for which the next would be compiled again.
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), states)


@partial(jax.jit, static_argnames=("spec", "schedule"))
def _surroundings(
    algorithm: Algorithm, states: State, spec: Spec, schedule: Schedule, env: Environment | None
) -> Surroundings:
    return jax.vmap(lambda state: surroundings(schedule, spec, env, algorithm.acting_policy(state)))(states)


@jax.jit
def _policies(algorithm: Algorithm, states: State) -> Any:
    return jax.vmap(algorithm.acting_policy)(states)


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
    """A round of runs that gather whole episodes, or nothing."""

    def one(
        state: State,
        data: Dataset,
        key: Key[Array, ""],
        active: Bool[Array, ""],
        given: Collected | None,
        asked: Int[Array, ""],
    ) -> tuple[State, Bool[Array, ""], Outcome]:
        key = jax.random.fold_in(key, index)
        if fused is not None:
            given = fused.collect(algorithm, state, index, asked, jax.random.fold_in(key, 0))
        new, info = algorithm.update(state, round_data(data, given), key)
        state, finite = _guarded(state, new, info, active)
        queries, metrics = jnp.zeros((), jnp.int32), info.metrics
        if given is not None:
            metrics = metrics | {"return": given.returned}
            if given.asks:
                queries = jnp.where(active, given.rollouts.size, 0)
                metrics = metrics | {"queries": (asked + queries).astype(jnp.float32)}
        stop, undo = jnp.asarray(info.stop), jnp.asarray(info.undo)
        going = active & finite & (stop == 0) & (asked + queries < limit)
        return state, going, Outcome(metrics, active, finite, stop, undo, queries)

    axes = (0, _by_run(demonstrations), 0, 0, 0, 0)
    return jax.vmap(one, axes)(states, demonstrations, keys, active, given, asked)


@partial(jax.jit, donate_argnames=("states", "around"), static_argnames=("schedule", "count"))
def _turns(
    algorithm: Algorithm,
    states: State,
    around: Surroundings,
    demonstrations: Dataset,
    held_out: Dataset | None,
    keys: Key[Array, " runs"],
    index: Int[Array, ""],
    first: Int[Array, ""],
    active: Bool[Array, " runs"],
    env: Environment | None,
    given: Chunk | None,
    schedule: Schedule,
    count: int,
) -> tuple[State, Surroundings, Bool[Array, " runs"], Outcome]:
    """`count` turns of runs that learn while they play, from turn `first` on.

    The turns are the outer loop and the runs the inner one: all runs are at the same row of their histories, which
    therefore stay where they are.
    """

    def turn(
        carry: tuple[State, Surroundings, Bool[Array, " runs"]], number: Int[Array, ""]
    ) -> tuple[tuple[State, Surroundings, Bool[Array, " runs"]], Outcome]:
        states, around, active = carry
        begins = jnp.asarray(schedule.begins(index, number))
        turn_keys = jax.vmap(lambda k: jax.random.fold_in(jax.random.fold_in(k, index), number))(keys)
        play_keys, update_keys = jax.vmap(jax.random.split, out_axes=1)(turn_keys)
        if env is None:
            assert given is not None
            chunk = given
        else:
            anything = schedule.random_steps_left(index, number)

            def play(state: State, world: Any, key: Key[Array, ""]) -> tuple[Any, Chunk]:
                return played(env, algorithm.acting_policy(state), world, schedule, begins, anything, key)

            world, chunk = jax.vmap(play)(states, around.world, play_keys)
            around = around._replace(world=world)
        around = remembered(around, chunk, schedule, index, number)
        totals, ended, episodes = jax.vmap(finished)(jnp.where(begins, 0, around.totals), chunk)
        around = around._replace(totals=totals)

        def one(
            state: State,
            own: Surroundings,
            data: Dataset,
            kept_aside: Dataset | None,
            chunk: Chunk,
            key: Key[Array, ""],
            active: Bool[Array, ""],
        ) -> tuple[State, Bool[Array, ""], Outcome]:
            seen = RoundData(
                data,
                held_out=kept_aside,
                replay=history(own, schedule, index, number),
                new_steps=chunk.transitions(index),
                task_reward=chunk.reward,
                round=index,
                update=number,
            )
            new, info = algorithm.update(state, seen, key)
            state, finite = _guarded(state, new, info, active)
            stop, undo = jnp.asarray(info.stop), jnp.asarray(info.undo)
            none = jnp.zeros((), jnp.int32)
            return state, active & finite & (stop == 0), Outcome(info.metrics, active, finite, stop, undo, none)

        axes = (0, 0, _by_run(demonstrations), _by_run(held_out), 0, 0, 0)
        states, active, outcome = jax.vmap(one, axes)(
            states, around, demonstrations, held_out, chunk, update_keys, active
        )
        returned = jnp.where(episodes > 0, ended / jnp.maximum(episodes, 1), jnp.nan)
        steps = jnp.full(returned.shape, (index * schedule.updates + number + 1) * schedule.update_steps, jnp.float32)
        metrics = outcome.metrics | {"return": returned, "env_steps": steps}
        return (states, around, active), outcome._replace(metrics=metrics)

    (states, around, active), outcomes = jax.lax.scan(turn, (states, around, active), first + jnp.arange(count))
    return states, around, active, outcomes


def _guarded(state: State, new: State, info: Info, active: Bool[Array, ""]) -> tuple[State, Bool[Array, ""]]:
    """The new state where it may be kept, and whether all of it is finite."""
    numbers = [x for x in jax.tree.leaves((info.metrics, new)) if jnp.issubdtype(x.dtype, jnp.inexact)]
    finite = jnp.stack([jnp.isfinite(x).all() for x in numbers]).all()
    keep = active & finite & ~jnp.asarray(info.undo)
    return jax.tree.map(lambda n, o: jnp.where(keep, n, o), new, state), finite


def _by_run(data: Dataset | None) -> Any:
    """vmap's axes: the steps are shared, sizes are each run's own."""
    return None if data is None else Dataset(None, 0, None if data.episodes is None else 0)  # type: ignore[arg-type]
