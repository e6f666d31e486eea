"""The replay buffer of algorithms that update while they collect steps.

All runs write to the same row of their buffers, so that new steps are written in place, without a copy of the buffers.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from understudy.collect.base import Collected, Now
from understudy.core.types import Continuous, Replay, Spec, Transition
from understudy.game.schedule import Schedule


class Chunk(NamedTuple):
    """The steps of a run before an update: (environments, time, ...) arrays."""

    t: Array
    obs: Array
    act: Array
    next_obs: Array
    reward: Array
    terminal: Array
    last: Array
    ordinary: Array | None = None
    """Whether the step's episode began as the environment begins them. None: all did (`collect.starts`)."""

    def transitions(self, index: Int[Array, ""]) -> Transition:
        known = jnp.ones_like(self.terminal)
        round_ = jnp.full(self.t.shape, index, jnp.int32)
        return Transition(self.t, self.obs, self.act, self.next_obs, self.terminal, self.last, known, round_)


def zero_chunk(spec: Spec, envs: int, steps: int, marked: bool = False) -> Chunk:
    """A chunk of zeros, as NumPy arrays. `marked`: with a mark of episodes that begin at demonstrated steps."""

    def zeros(kind: Any, *shape: int) -> Any:
        return np.zeros((envs, steps, *shape), kind)

    act = zeros(np.float32 if isinstance(spec.action, Continuous) else np.int32, *spec.action.shape)
    obs, next_obs = zeros(np.float32, *spec.obs_shape), zeros(np.float32, *spec.obs_shape)
    ordinary = ~zeros(bool) if marked else None
    return Chunk(zeros(np.int32), obs, act, next_obs, zeros(np.float32), zeros(bool), zeros(bool), ordinary)


class ReplayMemory(NamedTuple):
    """A collector's state between updates. The first axis of every array is the run."""

    episodes: Any
    """The unfinished episodes in a JAX environment (`steps.EpisodeState`); None if the environment is on the host."""
    returns: Float[Array, "runs envs"]
    """The returns of the unfinished episodes so far."""
    steps: Transition
    """The rows of the replay buffer."""
    reward: Float[Array, "runs n"]
    ordinary: Bool[Array, "runs n"] | None = None
    """Which steps are of ordinary episodes (`Chunk.ordinary`). None: all are."""


def empty(schedule: Schedule, spec: Spec, runs: int, episodes: Any = None, marked: bool = False) -> ReplayMemory:
    """The memory of runs that have collected nothing. `marked`: episodes may begin at demonstrated steps."""
    rows = (runs, schedule.capacity)
    obs = jnp.zeros((*rows, *spec.obs_shape), jnp.float32)
    continuous = isinstance(spec.action, Continuous)
    act = jnp.zeros((*rows, *spec.action.shape), jnp.float32 if continuous else jnp.int32)
    count, flag = jnp.zeros(rows, jnp.int32), jnp.zeros(rows, bool)
    steps = Transition(count, obs, act, jnp.zeros_like(obs), flag, jnp.zeros_like(flag), ~flag, jnp.zeros_like(count))
    ordinary = jnp.zeros(rows, bool) if marked else None
    return ReplayMemory(episodes, jnp.zeros((runs, schedule.envs)), steps, jnp.zeros(rows), ordinary)


def add(memory: ReplayMemory, chunk: Chunk, schedule: Schedule, now: Now) -> ReplayMemory:
    """Write every run's chunk to its buffer. A full buffer's oldest steps are overwritten."""
    row = (now.round * schedule.updates + now.update) * schedule.update_steps % schedule.capacity
    rows = jax.tree.map(lambda x: x.reshape(x.shape[0], schedule.update_steps, *x.shape[3:]), chunk)

    def put(old: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), row, axis=1)

    steps = jax.tree.map(put, memory.steps, rows.transitions(now.round))
    ordinary = None if memory.ordinary is None else put(memory.ordinary, rows.ordinary)
    return memory._replace(steps=steps, reward=put(memory.reward, rows.reward), ordinary=ordinary)


def collected(memory: ReplayMemory, chunk: Chunk, schedule: Schedule, now: Now) -> tuple[ReplayMemory, Collected]:
    """The memory after adding every run's chunk, and the data for the update."""
    memory = add(memory, chunk, schedule, now)
    begins = jnp.asarray(schedule.begins(*now))
    returns, total, ended = jax.vmap(episode_returns)(jnp.where(begins, 0, memory.returns), chunk)
    steps_so_far = (now.round * schedule.updates + now.update + 1) * schedule.update_steps
    size = jnp.broadcast_to(jnp.minimum(steps_so_far, schedule.capacity), total.shape)
    return memory._replace(returns=returns), Collected(
        replay=Replay(memory.steps, memory.reward, size, memory.ordinary),
        new_steps=chunk.transitions(now.round),
        ordinary=chunk.ordinary,
        task_reward=chunk.reward,
        mean_return=jnp.where(ended > 0, total / jnp.maximum(ended, 1), jnp.nan),
        env_steps=jnp.full(total.shape, steps_so_far, jnp.float32),
    )


def episode_returns(
    returns: Float[Array, " envs"], chunk: Chunk
) -> tuple[Float[Array, " envs"], Float[Array, ""], Int[Array, ""]]:
    """The returns of unfinished episodes after a chunk, the sum of those that ended in it, and their number.

    Episodes that began at a demonstrated step do not count, since they are shorter. Nor does an episode that has not
    ended when the next one starts, because a worker was lost.
    """

    counted = chunk.last if chunk.ordinary is None else chunk.last & chunk.ordinary

    def one(carry: tuple[Array, Array], inputs: tuple[Array, ...]) -> tuple[tuple[Array, Array], None]:
        (returns, total), (t, reward, last, counted) = carry, inputs
        returns = jnp.where(t == 0, 0, returns) + reward
        return (jnp.where(last, 0, returns), total + jnp.where(counted, returns, 0).sum()), None

    inputs = (chunk.t.T, chunk.reward.T, chunk.last.T, counted.T)
    (returns, total), _ = jax.lax.scan(one, (returns, jnp.zeros(())), inputs)
    return returns, total, counted.sum()


def stored(memory: ReplayMemory, schedule: Schedule, rounds: int) -> list[Array]:
    """The arrays of a memory after `rounds` rounds, without buffer rows that are not filled yet.

    Sizes are rounded up to sixteenths of the capacity, because each size compiles another program.
    """
    part = -(-schedule.capacity // 16)
    size = min(-(-rounds * schedule.round_steps // part) * part, schedule.capacity)
    rows = jax.tree.map(lambda x: x[:, :size], (memory.steps, memory.reward, memory.ordinary))
    return jax.tree.leaves(memory._replace(steps=rows[0], reward=rows[1], ordinary=rows[2]))


def restored(memory: ReplayMemory, arrays: list[np.ndarray]) -> ReplayMemory:
    """A fresh memory whose first rows are the stored arrays."""
    leaves = [
        jnp.asarray(old) if old.shape[1:] == new.shape[1:] else new.at[:, : old.shape[1]].set(old)
        for old, new in zip(arrays, jax.tree.leaves(memory), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(memory), leaves)
