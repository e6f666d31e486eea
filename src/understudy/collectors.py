"""What a round collects: the learner's own episodes, and the expert's answers at their states.

`Fused` plays in a JAX environment, inside the compiled round. `Hosted` plays on the host, before it, and hands the
round plain arrays. Either way a round sees the same `RoundData`: the real steps of the round's episodes in front, as
many of them as the expert may still be asked about. In round 0 nothing is collected: there is no policy to play yet.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Key

from understudy.arrays import Array
from understudy.envs import Environment, HostEnvironment
from understudy.experts import Expert
from understudy.game import Algorithm
from understudy.policies import Carry, Policy
from understudy.rollouts import Episodes, play, rollout
from understudy.types import Dataset, RoundData, State, Transition


class Collected(NamedTuple):
    """A run's round: its steps, padded to the most there can be, and what the expert would have done."""

    rollouts: Dataset
    expert_actions: Array | None
    returned: Array
    """The mean return of its episodes; NaN where there are none."""


class Fused(eqx.Module):
    """Episodes and answers inside the compiled program."""

    env: Environment
    expert: Policy | None
    """None: nobody is asked."""
    limit: Int[Array, ""]
    """Queries that a run may make; a large number where there is no budget."""

    def collect(self, algorithm: Algorithm, state: State, index: Array, asked: Array, key: Key[Array, ""]) -> Collected:
        play_key, ask_key = jax.random.split(key)
        keys = jax.random.split(play_key, algorithm.rollouts)
        steps, rewards, alive = play(self.env, algorithm.policy(state), keys, deterministic=False)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        order = jnp.argsort(~alive.ravel(), stable=True)  # the real steps in front
        flat = jax.tree.map(lambda x: x[order], flat)._replace(round=jnp.full(order.shape, index, jnp.int32))
        size = jnp.where(index == 0, 0, jnp.minimum(alive.sum(), self.limit - asked)).astype(jnp.int32)
        answers = None
        if self.expert is not None:
            expert = self.expert

            def ask(t: Array, obs: Array, k: Array) -> Array:
                return jnp.asarray(expert.draw(Carry(t, jnp.zeros_like(t)), obs, k))

            answers = jax.vmap(ask)(flat.t, flat.obs, jax.random.split(ask_key, order.shape[0]))
        returned = jnp.where(index == 0, jnp.nan, rewards.sum(1).mean())
        return Collected(Dataset(flat, size), answers, returned)


class Hosted:
    """Episodes and answers on the host: any environment, any expert."""

    def __init__(self, env: Environment | HostEnvironment, expert: Expert | None, seeds: list[int]):
        self.env, self.expert, self.seeds = env, expert, seeds
        self.limit = np.iinfo(np.int32).max if expert is None or expert.limit is None else expert.limit

    def gather(
        self, algorithm: Algorithm, states: State, index: int, asked: np.ndarray, active: np.ndarray
    ) -> Collected:
        """All runs' rounds, stacked. A run that has stopped collects nothing."""
        room = algorithm.rollouts * self.env.spec.horizon
        policies = jax.device_get(jax.vmap(algorithm.policy)(states)) if index else None
        runs = []
        for run, seed in enumerate(self.seeds):
            sequence = np.random.SeedSequence([seed, index])
            if policies is None or not active[run]:
                runs.append(self._nothing(room))
                continue
            policy: Any = jax.tree.map(lambda x, i=run: x[i], policies)
            played = rollout(
                self.env, policy, algorithm.rollouts, int(sequence.generate_state(1)[0]), deterministic=False
            )
            runs.append(self._one(played, room, index, int(asked[run]), np.random.default_rng(sequence)))
        return jax.tree.map(lambda *parts: np.stack(parts), *runs)

    def _one(self, played: Episodes, room: int, index: int, asked: int, random: np.random.Generator) -> Collected:
        real = Transition(*(played.flat(column) for column in played.steps))
        size = min(len(real.t), self.limit - asked)
        steps = Transition(*(_padded(column[:size], room) for column in real))
        steps = steps._replace(round=np.full(room, index, np.int32))
        answers = None
        if self.expert is not None:
            answers = _padded(self.expert.ask(np.asarray(real.obs[:size]), self.env.spec, random), room)
        return Collected(Dataset(steps, np.int32(size)), answers, np.float32(played.returns.mean()))

    def _nothing(self, room: int) -> Collected:
        spec = self.env.spec
        obs = np.zeros((room, *spec.obs_shape), np.float32)
        act = np.zeros((room, *spec.action.shape), np.float32 if spec.action.shape else np.int32)
        flag, count = np.zeros(room, bool), np.zeros(room, np.int32)
        steps = Transition(count, obs, act, obs, flag, flag, flag, count)
        return Collected(Dataset(steps, np.int32(0)), None if self.expert is None else act, np.float32("nan"))


def _padded(column: np.ndarray, room: int) -> np.ndarray:
    column = np.asarray(column)
    kind = np.int32 if column.dtype == np.int64 else np.float32 if column.dtype == np.float64 else column.dtype
    out = np.zeros((room, *column.shape[1:]), kind)
    out[: len(column)] = column
    return out


Collector = Fused | Hosted


def round_data(demonstrations: Dataset, collected: Collected | None) -> RoundData:
    if collected is None:
        return RoundData(demonstrations)
    return RoundData(demonstrations, collected.rollouts, collected.expert_actions)
