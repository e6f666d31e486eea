"""Learning while playing: a round is made of turns, each some steps in the environment and then an update.

Episodes go on from turn to turn, and begin anew by themselves when they end. Every step that was played is kept, on the
device, in rows that say their own time `t` and `round`; all runs are at the same row, so that adding a turn's steps
moves nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.core.types import Continuous, Replay, Spec, Transition
from understudy.game.schedule import Schedule
from understudy.policies import Carry, Policy, step

if TYPE_CHECKING:
    from understudy.envs.base import Environment


class World(NamedTuple):
    """Where a run's episodes are in a JAX environment; the first axis is the environment."""

    state: Any
    obs: Float[Array, "envs obs"]
    t: Int[Array, " envs"]
    carry: Carry


class Chunk(NamedTuple):
    """A turn's steps of a run: (environments, time, ...) arrays."""

    t: Array
    obs: Array
    act: Array
    next_obs: Array
    reward: Array
    terminal: Array
    last: Array

    def transitions(self, index: Int[Array, ""]) -> Transition:
        known = jnp.ones_like(self.terminal)
        round_ = jnp.full(self.t.shape, index, jnp.int32)
        return Transition(self.t, self.obs, self.act, self.next_obs, self.terminal, self.last, known, round_)


class Surroundings(NamedTuple):
    """What a run has beside its state: where its episodes are, and what it has played."""

    world: World | None
    """None where the environment is on the host."""
    totals: Float[Array, " envs"]
    """What the episodes under way have returned so far."""
    steps: Transition
    """The history's rows."""
    reward: Float[Array, " n"]


def surroundings(schedule: Schedule, spec: Spec, env: Environment | None, policy: Policy | None) -> Surroundings:
    """Those of a run that has played nothing."""
    obs = jnp.zeros((schedule.capacity, *spec.obs_shape), jnp.float32)
    continuous = isinstance(spec.action, Continuous)
    act = jnp.zeros((schedule.capacity, *spec.action.shape), jnp.float32 if continuous else jnp.int32)
    count, flag = jnp.zeros(schedule.capacity, jnp.int32), jnp.zeros(schedule.capacity, bool)
    rows = Transition(count, obs, act, jnp.zeros_like(obs), flag, jnp.zeros_like(flag), ~flag, jnp.zeros_like(count))
    world = None
    if env is not None and policy is not None:
        keys = jax.random.split(jax.random.key(0), schedule.envs)  # shapes only: a run's first turn begins anew
        world = _begun(env, policy, keys)
    return Surroundings(world, jnp.zeros(schedule.envs), rows, jnp.zeros(schedule.capacity))


def played(
    env: Environment,
    policy: Policy,
    world: World,
    schedule: Schedule,
    begins: Bool[Array, ""],
    anything: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[World, Chunk]:
    """A turn in a JAX environment."""
    start_key, loop_key = jax.random.split(key)
    fresh = _begun(env, policy, jax.random.split(start_key, schedule.envs))
    world = jax.tree.map(lambda new, old: jnp.where(begins, new, old), fresh, world)

    def one(here: World, left: Bool[Array, ""], k: Key[Array, ""]) -> tuple[World, Chunk]:
        act_key, any_key, step_key, new_key = jax.random.split(k, 4)
        act = policy.draw(here.carry, here.obs, act_key)
        act = jnp.where(left, any_action(env.spec, any_key), act).astype(act.dtype)
        new = env.step(here.state, act, step_key)
        last = new.terminal | (here.t == env.spec.horizon - 1)
        done = Chunk(here.t, here.obs, act, new.obs, new.reward, new.terminal, last)
        going = World(new.state, new.obs, here.t + 1, step(here.carry))
        again = _begin(env, policy, new_key)
        return jax.tree.map(lambda a, b: jnp.where(last, a, b), again, going), done

    def all_(world: World, inputs: tuple[Array, Array]) -> tuple[World, Chunk]:
        number, k = inputs
        keys = jax.random.split(k, schedule.envs)
        return jax.vmap(one, (0, None, 0))(world, number < anything, keys)

    inputs = (jnp.arange(schedule.steps_per_env), jax.random.split(loop_key, schedule.steps_per_env))
    world, chunk = jax.lax.scan(all_, world, inputs)
    return world, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), chunk)


def _begin(env: Environment, policy: Policy, key: Key[Array, ""]) -> World:
    env_key, policy_key = jax.random.split(key)
    state, obs = env.reset(env_key)
    return World(state, obs, jnp.zeros((), jnp.int32), jax.tree.map(jnp.asarray, policy.reset(policy_key)))


def _begun(env: Environment, policy: Policy, keys: Key[Array, " envs"]) -> World:
    return jax.vmap(lambda k: _begin(env, policy, k))(keys)


def any_action(spec: Spec, key: Key[Array, ""]) -> Array:
    """Any action, each alike."""
    if isinstance(spec.action, Continuous):
        low, high = np.asarray(spec.action.low, np.float32), np.asarray(spec.action.high, np.float32)
        return jax.random.uniform(key, spec.action.shape, minval=low, maxval=high)
    return jax.random.randint(key, (), 0, spec.action.n)


def remembered(
    around: Surroundings, chunk: Chunk, schedule: Schedule, index: Int[Array, ""], turn: Int[Array, ""]
) -> Surroundings:
    """With a turn's steps of all runs in the history, over the oldest ones where it is full."""
    place = (index * schedule.updates + turn) * schedule.update_steps % schedule.capacity
    rows = jax.tree.map(lambda x: x.reshape(x.shape[0], schedule.update_steps, *x.shape[3:]), chunk)

    def put(old: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), place, axis=1)

    steps = jax.tree.map(put, around.steps, rows.transitions(index))
    return around._replace(steps=steps, reward=put(around.reward, rows.reward))


def history(around: Surroundings, schedule: Schedule, index: Int[Array, ""], turn: Int[Array, ""]) -> Replay:
    """A run's history after this turn."""
    size = jnp.minimum((index * schedule.updates + turn + 1) * schedule.update_steps, schedule.capacity)
    return Replay(around.steps, around.reward, size)


def finished(
    totals: Float[Array, " envs"], chunk: Chunk
) -> tuple[Float[Array, " envs"], Float[Array, ""], Int[Array, ""]]:
    """The returns under way after a turn, the sum of those of the episodes that ended in it, and their number."""

    def one(carry: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        (totals, ended), (reward, last) = carry, inputs
        totals = totals + reward
        return (jnp.where(last, 0, totals), ended + jnp.where(last, totals, 0).sum()), None

    (totals, ended), _ = jax.lax.scan(one, (totals, jnp.zeros(())), (chunk.reward.T, chunk.last.T))
    return totals, ended, chunk.last.sum()
