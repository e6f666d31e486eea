"""Collecting steps in a JAX environment, inside the compiled round.

Episodes continue from update to update. When one ends, the next one starts.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from understudy.collect import replay
from understudy.collect.base import Collected, Collector, InProgram, Memory, Now, Request
from understudy.collect.replay import Chunk, ReplayMemory
from understudy.collect.starts import Starts
from understudy.core.types import Continuous, MultiDiscrete, Spec, State
from understudy.envs import Environment
from understudy.game import Algorithm
from understudy.game.schedule import Schedule
from understudy.policies import Carry, Policy, step


class EpisodeState(NamedTuple):
    """The state of a run's episodes; the first axis is the environment."""

    state: Any
    obs: Float[Array, "envs obs"]
    t: Int[Array, " envs"]
    carry: Carry
    ordinary: Bool[Array, " envs"] | None = None
    """Whether the episode began as the environment begins them. None: all do (`collect.starts`)."""


class StepsCollector(Collector):
    """The host half of `JaxSteps` with start states: it knows how many of them each run has."""

    def __init__(self, in_program: "JaxSteps", sizes: np.ndarray):
        super().__init__(in_program)
        self.sizes = sizes

    def gather(self, request: Request) -> np.ndarray:
        return self.sizes


class JaxSteps(InProgram):
    """Collects steps in a JAX environment into a replay buffer."""

    env: Environment
    schedule: Schedule = eqx.field(static=True)
    starts: Starts | None = None
    """Start states of all runs; `given` has the number of each run. None: episodes begin as the environment does."""

    def init(self, algorithm: Algorithm, states: State, spec: Spec) -> ReplayMemory:
        # Only shapes matter here: a run's first update starts new episodes.
        keys = jax.random.split(jax.random.key(0), self.schedule.envs)
        starts = None if self.starts is None else self.starts._replace(size=1)
        episodes = jax.vmap(lambda state: start_all(self.env, algorithm.acting_policy(state), keys, starts))(states)
        runs, marked = jax.tree.leaves(states)[0].shape[0], starts is not None
        return replay.empty(self.schedule, spec, runs, episodes, marked)

    def collect(
        self,
        algorithm: Algorithm,
        states: State,
        memory: Memory,
        given: Any,
        now: Now,
        answers_left: Int[Array, " runs"],
        keys: Key[Array, " runs"],
    ) -> tuple[Memory, Collected]:
        begins, random_steps = jnp.asarray(self.schedule.begins(*now)), self.schedule.random_steps_left(*now)

        def play(state: State, episodes: EpisodeState, key: Key[Array, ""], size: Any) -> tuple[EpisodeState, Chunk]:
            policy, starts = algorithm.acting_policy(state), self.starts
            if starts is not None:
                starts = starts._replace(size=size, share=algorithm.start_share)
            return play_steps(self.env, policy, episodes, self.schedule, begins, random_steps, key, starts)

        episodes, chunk = jax.vmap(play)(states, memory.episodes, keys, given)
        return replay.collected(memory._replace(episodes=episodes), chunk, self.schedule, now)

    def stored(self, memory: Memory, rounds: int) -> list[Array]:
        return replay.stored(memory, self.schedule, rounds)

    def restored(self, memory: Memory, arrays: list[np.ndarray]) -> Memory:
        return replay.restored(memory, arrays)


class GivenSteps(InProgram):
    """Adds the steps of worker processes to a replay buffer."""

    schedule: Schedule = eqx.field(static=True)
    marked: bool = eqx.field(static=True, default=False)
    """Whether episodes may begin at demonstrated steps."""

    def init(self, algorithm: Algorithm, states: State, spec: Spec) -> ReplayMemory:
        return replay.empty(self.schedule, spec, jax.tree.leaves(states)[0].shape[0], marked=self.marked)

    def collect(
        self,
        algorithm: Algorithm,
        states: State,
        memory: Memory,
        given: Chunk,
        now: Now,
        answers_left: Int[Array, " runs"],
        keys: Key[Array, " runs"],
    ) -> tuple[Memory, Collected]:
        return replay.collected(memory, given, self.schedule, now)

    def stored(self, memory: Memory, rounds: int) -> list[Array]:
        return replay.stored(memory, self.schedule, rounds)

    def restored(self, memory: Memory, arrays: list[np.ndarray]) -> Memory:
        memory = replay.restored(memory, arrays)
        return memory._replace(returns=jnp.zeros_like(memory.returns))  # resumed runs start new episodes on the host


def play_steps(
    env: Environment,
    policy: Policy,
    episodes: EpisodeState,
    schedule: Schedule,
    begins: Bool[Array, ""],
    random_steps: Int[Array, ""],
    key: Key[Array, ""],
    starts: Starts | None = None,
) -> tuple[EpisodeState, Chunk]:
    """The steps of one run before an update."""
    start_key, loop_key = jax.random.split(key)
    fresh = start_all(env, policy, jax.random.split(start_key, schedule.envs), starts)
    episodes = jax.tree.map(lambda new, old: jnp.where(begins, new, old), fresh, episodes)

    def one(here: EpisodeState, random: Bool[Array, ""], k: Key[Array, ""]) -> tuple[EpisodeState, Chunk]:
        act_key, random_key, step_key, reset_key = jax.random.split(k, 4)
        act = policy.draw(here.carry, here.obs, act_key)
        act = jnp.where(random, random_action(env.spec, random_key), act).astype(act.dtype)
        new = env.step(here.state, act, step_key)
        last = new.terminal | (here.t >= env.spec.horizon - 1)
        taken = Chunk(here.t, here.obs, act, new.obs, new.reward, new.terminal, last, here.ordinary)
        continued = EpisodeState(new.state, new.obs, here.t + 1, step(here.carry), here.ordinary)
        restarted = _start(env, policy, reset_key, starts)
        return jax.tree.map(lambda a, b: jnp.where(last, a, b), restarted, continued), taken

    def all_(episodes: EpisodeState, inputs: tuple[Array, Array]) -> tuple[EpisodeState, Chunk]:
        number, k = inputs
        keys = jax.random.split(k, schedule.envs)
        return jax.vmap(one, (0, None, 0))(episodes, number < random_steps, keys)

    inputs = (jnp.arange(schedule.steps_per_env), jax.random.split(loop_key, schedule.steps_per_env))
    episodes, chunk = jax.lax.scan(all_, episodes, inputs)
    return episodes, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), chunk)


def start_all(
    env: Environment, policy: Policy, keys: Key[Array, " envs"], starts: Starts | None = None
) -> EpisodeState:
    """New episodes in all environments of a run."""
    return jax.vmap(lambda k: _start(env, policy, k, starts))(keys)


def _start(env: Environment, policy: Policy, key: Key[Array, ""], starts: Starts | None) -> EpisodeState:
    """A new episode: an ordinary one, or with probability `starts.share` from a demonstrated step on."""
    env_key, policy_key = jax.random.split(key)
    state, obs = env.reset(env_key)
    carry = jax.tree.map(jnp.asarray, policy.reset(policy_key))
    began = EpisodeState(state, obs, jnp.zeros((), jnp.int32), carry)
    if starts is None:
        return began
    share_key, row_key = (jax.random.fold_in(key, number) for number in (2, 3))  # the split uses 0 and 1
    state, obs, t = starts.drawn(row_key)
    placed = EpisodeState(state, obs, t, carry._replace(t=t))
    demonstrated = jax.random.bernoulli(share_key, starts.share)
    chosen: EpisodeState = jax.tree.map(lambda a, b: jnp.where(demonstrated, a.astype(b.dtype), b), placed, began)
    return chosen._replace(ordinary=~demonstrated)


def random_action(spec: Spec, key: Key[Array, ""]) -> Array:
    """An action drawn uniformly."""
    if isinstance(spec.action, Continuous):
        low, high = np.asarray(spec.action.low, np.float32), np.asarray(spec.action.high, np.float32)
        return jax.random.uniform(key, spec.action.shape, minval=low, maxval=high)
    if isinstance(spec.action, MultiDiscrete):
        return jax.random.randint(key, spec.action.shape, 0, np.array(spec.action.nvec))
    return jax.random.randint(key, (), 0, spec.action.n)
