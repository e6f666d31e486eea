"""Rolling out a policy: whole episodes in either kind of environment.

Each of `episodes` copies of the environment runs exactly one episode, so that short episodes are not
over-represented. Episode i of a given seed starts in the same state for every policy.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from understudy.collect.checks import check_actions, check_environment, check_finite
from understudy.collect.gates import Decision, Gate, HostGate
from understudy.collect.recorder import Episodes, Recorder
from understudy.core.errors import SpecError, check_seed, check_whole
from understudy.core.memory import check_episodes
from understudy.core.types import Transition
from understudy.envs import Environment, GymnasiumEnvironment, make
from understudy.envs.base import EnvState
from understudy.envs.gymnasium import VectorStep
from understudy.policies import Policy, step

HostPolicy = Callable[[np.ndarray], np.ndarray]
"""A function from a batch of observations to a batch of actions."""


class Vector(Protocol):
    """A `VectorEnvironment`, in this process or in a worker."""

    def reset(self, seeds: Sequence[int]) -> np.ndarray: ...

    def step(self, actions: np.ndarray, alive: np.ndarray) -> VectorStep: ...

    def close(self) -> None: ...


MakeVector = Callable[[int], Vector]
"""Makes some copies of an environment that step together."""


def rollout(
    env: Any,
    policy: Policy | HostPolicy,
    episodes: int,
    seed: int = 0,
    deterministic: bool = True,
    gate: HostGate | None = None,
    vector: MakeVector | None = None,
    starts: np.ndarray | None = None,
) -> Episodes:
    """Roll out `episodes` episodes. A policy may be a function from a batch of observations to a batch of actions.

    `vector` makes the copies of a Gymnasium environment; by default they step in this process. `starts` are the seeds
    of the states in which the episodes start; a policy finds that of its episode in `Carry.drawn`.
    """
    env = make(env)
    if isinstance(env, GymnasiumEnvironment):
        env = env.without_bounds()
    check_whole(1, episodes=episodes)
    check_seed(seed)
    compiled = isinstance(env, Environment) and isinstance(policy, Policy) and gate is None and starts is None
    check_episodes(env.spec, episodes, env.spec.horizon if compiled else 1)  # a compiled one is padded to the horizon
    if isinstance(env, GymnasiumEnvironment):
        own = episode_seeds(seed, episodes)
        seeds = own if starts is None else starts.tolist()
        if env.maker.only_copy and episodes > 1:
            return _one_by_one(env, policy, seeds, own, deterministic, gate, starts)
        return _in_gymnasium(env, vector or env.vector, policy, seeds, seed, deterministic, gate, starts)
    if not compiled:
        return _stepwise(env, policy, episodes, seed, deterministic, gate, starts)
    keys = jax.random.split(jax.random.key(seed), episodes)
    played = play(env, policy, keys, deterministic)
    steps, rewards, alive, *_, reported = jax.device_get(played)
    check_environment(env.name, seed, "observation", steps.obs[:, :1], alive[:, :1])
    seen = np.isfinite(steps.obs).reshape(*alive.shape, -1).all(-1)  # the policy is not blamed for what it was given
    check_finite(steps.act[alive & seen])
    check_environment(env.name, seed, "observation", steps.next_obs, alive, 0)
    check_environment(env.name, seed, "reward", rewards, alive, 0)
    lengths = alive.sum(axis=1)
    told = np.full(alive.shape, np.nan, np.float32) if reported is None else reported.astype(np.float32)
    success = None if reported is None else told[np.arange(episodes), lengths - 1]
    return Episodes(steps, rewards, lengths, success=success, reported=told)


def episode_seeds(seed: int, episodes: int) -> list[int]:
    """The seeds with which `rollout` resets a Gymnasium environment."""
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(episodes)]


class EpisodeBatch(NamedTuple):
    """Episodes inside a compiled program: (episodes, time, ...) arrays."""

    steps: Transition
    rewards: Array
    alive: Array
    """Which steps are real: those up to an episode's end."""
    decisions: Decision | None
    """The gate's decisions; None without a gate."""
    states: EnvState
    """The environment's states before the steps; None unless `keep_states` is set."""
    success: Array | None = None
    """Whether the task is solved after each step; None if the environment does not say."""


@partial(jax.jit, static_argnames=("deterministic", "keep_states"))
def play(
    env: Environment,
    policy: Policy,
    keys: Key[Array, " n"],
    deterministic: bool,
    gate: Gate | None = None,
    keep_states: bool = False,
    starts: Int[Array, " n"] | None = None,
) -> EpisodeBatch:
    """All episodes at once, each for the whole horizon; steps after an episode's end are masked."""
    horizon = env.spec.horizon

    def episode(key: Key[Array, ""], start: Int[Array, ""] | None) -> EpisodeBatch:
        env_key, policy_key, loop_key = jax.random.split(key, 3)
        state, obs = env.reset(env_key if start is None else jax.random.key(start))
        carry = jax.tree.map(jnp.asarray, policy.reset(policy_key))
        carry = carry if start is None else carry._replace(drawn=start)
        memory = None if gate is None else gate.start(jax.random.fold_in(key, 3))  # 0 to 2 are used by the split

        def advance(loop: Any, inputs: tuple[Array, Array]) -> tuple[Any, EpisodeBatch]:
            (state, obs, carry, memory, alive), (t, k) = loop, inputs
            act_key, step_key = jax.random.split(k)
            act, decision = policy.mode(carry, obs) if deterministic else policy.draw(carry, obs, act_key), None
            if gate is not None:
                memory, act, decision = gate.choose(memory, t, obs, act, jax.random.fold_in(k, 2))
            new = env.step(state, act, step_key)
            last = new.terminal | (t == horizon - 1)
            one = Transition(t, obs, act, new.obs, new.terminal, last, jnp.array(True), jnp.array(0))
            reward, before = jnp.where(alive, new.reward, 0), state if keep_states else None
            kept = EpisodeBatch(one, reward, alive, decision, before, new.success)
            return (new.state, new.obs, step(carry), memory, alive & ~last), kept

        first = (state, obs, carry, memory, jnp.array(True))
        _, out = jax.lax.scan(advance, first, (jnp.arange(horizon), jax.random.split(loop_key, horizon)))
        return out

    return jax.vmap(episode)(keys, starts)


def _stepwise(
    env: Environment,
    policy: Policy | HostPolicy,
    episodes: int,
    seed: int,
    deterministic: bool,
    gate: HostGate | None,
    starts: np.ndarray | None = None,
) -> Episodes:
    """Roll out a Python function in a JAX environment: one compiled step for all episodes, called once a time step."""
    act = _on_host(policy, episodes, seed, deterministic, starts) if isinstance(policy, Policy) else policy
    reset, advance = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    env_keys, step_keys = jax.vmap(lambda k: jax.random.split(k, 3)[:2], out_axes=1)(
        jax.random.split(jax.random.key(seed), episodes)
    )
    state, obs = reset(env_keys if starts is None else jax.vmap(jax.random.key)(starts))
    record = Recorder(episodes)
    check_environment(env.name, seed, "observation", np.asarray(obs)[:, None], record.alive[:, None])
    for t in range(env.spec.horizon):
        actions = check_actions(act(np.asarray(obs)), episodes, env.spec.action.shape)
        actions = record.gated(gate, t, np.asarray(obs), actions)
        new = advance(state, actions, jax.vmap(jax.random.fold_in, (0, None))(step_keys, t))
        terminal = np.asarray(new.terminal)
        last = terminal | (t == env.spec.horizon - 1)
        next_obs, reward = np.asarray(new.obs), np.asarray(new.reward)
        for what, values in (("observation", next_obs), ("reward", reward)):
            check_environment(env.name, seed, what, values[:, None], record.alive[:, None], t)
        success = None if new.success is None else np.asarray(new.success, np.float32)
        record.add(t, np.asarray(obs), actions, next_obs, reward, terminal, last, success)
        state, obs = new.state, new.obs
        if not record.alive.any():
            break
    return record.episodes()


def _in_gymnasium(
    env: GymnasiumEnvironment,
    make_vector: MakeVector,
    policy: Policy | HostPolicy,
    seeds: Sequence[int],
    seed: int,
    deterministic: bool,
    gate: HostGate | None,
    starts: np.ndarray | None = None,
) -> Episodes:
    """An episode for each of `seeds`. The policy draws its actions with `seed`."""
    episodes = len(seeds)
    act = _on_host(policy, episodes, seed, deterministic, starts) if isinstance(policy, Policy) else policy
    vector = make_vector(episodes)
    try:
        obs = vector.reset(seeds)
        if starts is not None:
            _check_starts(env.name, starts, obs)
        record, t = Recorder(episodes), 0
        while record.alive.any():
            actions = check_actions(act(obs), episodes, env.spec.action.shape)
            actions = record.gated(gate, t, obs, actions)
            new = vector.step(actions, record.alive)
            last = new.terminal | new.truncated | (t == env.spec.horizon - 1)
            record.add(t, obs, actions, new.obs, new.reward, new.terminal, last, new.success)
            obs, t = new.obs, t + 1
        return record.episodes()
    finally:
        vector.close()


def _one_by_one(
    env: GymnasiumEnvironment,
    policy: Policy | HostPolicy,
    seeds: Sequence[int],
    own: Sequence[int],
    deterministic: bool,
    gate: HostGate | None,
    starts: np.ndarray | None = None,
) -> Episodes:
    """Episodes one after the other, in an environment that cannot be copied. Actions are drawn with the seeds `own`."""
    if gate is not None:
        raise SpecError(f"{env.name} cannot be copied, and a gate needs all its episodes at once: pass a function")
    alone = [None] * len(seeds) if starts is None else np.split(starts, len(starts))
    runs = [
        _in_gymnasium(env, env.vector, policy, [seed], noise, deterministic, None, start)
        for seed, noise, start in zip(seeds, own, alone, strict=True)
    ]
    if starts is not None:
        _check_starts(env.name, starts, np.concatenate([run.steps.obs[:, 0] for run in runs]))
    longest = max(run.rewards.shape[1] for run in runs)

    def joined(*rows: np.ndarray) -> np.ndarray:
        more = [(0, 0)] * (rows[0].ndim - 2)
        return np.concatenate([np.pad(row, [(0, 0), (0, longest - row.shape[1]), *more]) for row in rows])

    steps = jax.tree.map(joined, *(run.steps for run in runs))
    lengths, success = (
        np.concatenate(column) for column in zip(*((r.lengths, r.outcomes.success) for r in runs), strict=True)
    )
    rewards, reported = (joined(*(getattr(run, name) for run in runs)) for name in ("rewards", "reported"))
    return Episodes(steps, rewards, lengths, success=success, reported=reported)


def _check_starts(name: str, starts: np.ndarray, obs: np.ndarray) -> None:
    """Raise unless episodes with the same seed start with the same observation."""
    for start in np.unique(starts):
        alike = obs[starts == start]
        if not np.allclose(alike, alike[0], rtol=1e-4, atol=1e-6):
            raise SpecError(
                f"{name} returned different observations when it was reset with seed {start} twice: fixed starts need "
                "an environment that draws its start with self.np_random, after super().reset(seed=seed)"
            )


def _on_host(
    policy: Policy, episodes: int, seed: int, deterministic: bool, starts: np.ndarray | None = None
) -> HostPolicy:
    """A policy as a function of batches. It keeps the policy's carry between calls."""
    policy, random = jax.tree.map(np.asarray, policy), np.random.default_rng(seed)
    carry = policy.reset(random, (episodes,))
    carry = carry if starts is None else carry._replace(drawn=starts)

    def act(obs: np.ndarray) -> np.ndarray:
        nonlocal carry
        chosen = policy.mode(carry, obs) if deterministic else policy.draw(carry, obs, random)
        carry = step(carry)
        return np.asarray(chosen)

    return act
