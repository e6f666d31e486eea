"""What a round collects: the learner's own episodes, and what the expert says of their states.

The expert says which action it would take or, where an algorithm's card asks for values, what an action that is tried
is worth under it. Either is one query for each state. An algorithm may let the expert act in some steps (`mixing`).

`Fused` plays in a JAX environment, inside the compiled round. `Hosted` plays on the host, before it, and hands the
round plain arrays. Either way a round sees the same `RoundData`: the real steps of the round's episodes in front, as
many of them as the expert may still be asked about. In round 0 nothing is collected: there is no policy to play yet.

`Stepped` serves algorithms that learn while they play: a turn's steps at a time, from workers that hold the policy.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from understudy.collect.mixing import HostMixing, Mixing
from understudy.collect.playing import Order
from understudy.collect.rollouts import Episodes, play, rollout
from understudy.collect.stepping import Chunk
from understudy.collect.workers import WorkerPool
from understudy.core.arrays import Array, namespace
from understudy.core.types import ActionSpace, Dataset, Discrete, RoundData, State, Transition, ActionValues
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.envs.values import Values
from understudy.experts.expert import Expert, answer
from understudy.game import Algorithm
from understudy.game.schedule import Schedule
from understudy.policies import Policy


class Collected(NamedTuple):
    """A run's round: its steps, padded to the most there can be, and what the expert would have done."""

    rollouts: Dataset
    expert_actions: Array | None
    returned: Array
    """The mean return of its episodes; NaN where there are none."""
    action_values: ActionValues | None = None

    @property
    def asks(self) -> bool:
        """Whether the expert was asked about its states."""
        return self.expert_actions is not None or self.action_values is not None


class Fused(eqx.Module):
    """Episodes and answers inside the compiled program."""

    env: Environment
    expert: Policy | None
    """None: nobody is asked."""
    limit: Int[Array, ""]
    """Queries that a run may make; a large number where there is no budget."""
    deterministic: bool = eqx.field(static=True, default=False)
    """The expert answers with its mode."""
    values: Values | None = None
    """What actions are worth under the expert, for algorithms that ask."""

    def collect(self, algorithm: Algorithm, state: State, index: Array, asked: Array, key: Key[Array, ""]) -> Collected:
        play_key, ask_key = jax.random.split(key)
        keys = jax.random.split(play_key, algorithm.episodes_per_round)
        left = self.limit - asked
        mixing = self._mixing(algorithm, index, left)
        valued = self.values is not None
        played = play(self.env, algorithm.acting_policy(state), keys, False, mixing, keep_states=valued)
        alive = played.alive
        # The real steps in front; where the expert may act, those of the first time steps, which the budget covers.
        late = ~alive if mixing is None else jnp.where(alive, played.steps.t, self.env.spec.horizon)
        order = jnp.argsort(late.ravel(), stable=True)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[order], played)
        steps = flat.steps._replace(round=jnp.full(order.shape, index, jnp.int32))
        size = jnp.where(index == 0, 0, jnp.minimum(alive.sum(), left)).astype(jnp.int32)
        returned = jnp.where(index == 0, jnp.nan, played.rewards.sum(1).mean())
        found = Collected(Dataset(steps, size), None, returned)
        if self.expert is None:
            return found
        ask = partial(answer, self.expert, self.deterministic)
        answers = jax.vmap(ask)(steps.t, steps.obs, jax.random.split(ask_key, order.shape[0]))
        if flat.by_expert is not None:  # what it did there is its answer
            told = flat.by_expert.reshape(-1, *(1,) * (answers.ndim - 1))
            answers = jnp.where(told, steps.act, answers)
        if self.values is None:
            return found._replace(expert_actions=answers)
        space, try_key = self.env.spec.action, jax.random.fold_in(key, 2)
        chance_key, value_key = jax.random.split(try_key)
        chance = jax.random.uniform(chance_key, (order.shape[0], chances(space)))
        acts = explored(space, algorithm.exploring, steps.act, answers, chance)
        value_keys = jax.random.split(value_key, order.shape[0])
        values = jax.vmap(self.values)(steps.t, flat.states, steps.obs, acts, value_keys)
        return found._replace(action_values=ActionValues(acts, values))

    def _mixing(self, algorithm: Algorithm, index: Array, left: Array) -> Mixing | None:
        share = algorithm.expert_share(index)
        if share is None or self.expert is None:
            return None
        return Mixing(self.expert, self.deterministic, share, left // algorithm.episodes_per_round)


class Hosted:
    """Episodes and answers on the host: any environment, any expert."""

    def __init__(self, env: Environment | GymnasiumEnvironment, expert: Expert | None, seeds: list[int]):
        self.env, self.expert, self.seeds = env, expert, seeds
        self.limit = np.iinfo(np.int32).max if expert is None or expert.limit is None else expert.limit

    def gather(
        self, algorithm: Algorithm, states: State, index: int, asked: np.ndarray, active: np.ndarray
    ) -> Collected:
        """All runs' rounds, stacked. A run that has stopped collects nothing."""
        room = algorithm.episodes_per_round * self.env.spec.horizon
        policies = jax.device_get(jax.vmap(algorithm.acting_policy)(states)) if index else None
        runs = []
        for run, seed in enumerate(self.seeds):
            sequence = np.random.SeedSequence([seed, index])
            if policies is None or not active[run]:
                runs.append(self._nothing(algorithm, room))
                continue
            policy: Any = jax.tree.map(lambda x, i=run: x[i], policies)
            mixing = self._mixing(algorithm, index, self.limit - int(asked[run]), seed)
            start = int(sequence.generate_state(1)[0])
            played = rollout(self.env, policy, algorithm.episodes_per_round, start, deterministic=False, mixing=mixing)
            random = np.random.default_rng(sequence)
            runs.append(self._one(algorithm, played, room, index, int(asked[run]), random))
        return jax.tree.map(lambda *parts: np.stack(parts), *runs)

    def _one(
        self,
        algorithm: Algorithm,
        played: Episodes,
        room: int,
        index: int,
        asked: int,
        random: np.random.Generator,
    ) -> Collected:
        real = Transition(*(np.asarray(played.flat(column)) for column in played.steps))
        told = np.zeros(len(real.t), bool) if played.by_expert is None else played.flat(played.by_expert)
        if played.by_expert is not None:  # those of the first time steps in front, as in `Fused`
            order = np.argsort(real.t, kind="stable")
            real, told = Transition(*(column[order] for column in real)), told[order]
        size = min(len(real.t), self.limit - asked)
        real, told = Transition(*(column[:size] for column in real)), told[:size]
        steps = Transition(*(_padded(column, room) for column in real))._replace(round=np.full(room, index, np.int32))
        found = Collected(Dataset(steps, np.int32(size)), None, np.float32(played.returns.mean()))
        if self.expert is None:
            return found
        answers = np.array(real.act)
        if not told.all():  # where it acted it has answered
            answers[~told] = self.expert.ask(real.obs[~told], self.env.spec, random, real.t[~told])
        if not algorithm.card.values:
            return found._replace(expert_actions=_padded(answers, room))
        space = self.env.spec.action
        acts = explored(space, algorithm.exploring, real.act, answers, random.random((size, chances(space))))
        values = self.expert.appraise(real.obs, acts)
        return found._replace(action_values=ActionValues(_padded(acts, room), _padded(values, room)))

    def _mixing(self, algorithm: Algorithm, index: int, left: int, seed: int) -> HostMixing | None:
        share = algorithm.expert_share(index)
        if share is None or self.expert is None:
            return None
        expert, random = self.expert, np.random.default_rng(np.random.SeedSequence([seed, index, 1]))

        def ask(obs: np.ndarray, t: np.ndarray) -> np.ndarray:
            return expert.ask(obs, self.env.spec, random, t)

        return HostMixing(ask, float(share), left // algorithm.episodes_per_round, random)

    def _nothing(self, algorithm: Algorithm, room: int) -> Collected:
        spec = self.env.spec
        obs = np.zeros((room, *spec.obs_shape), np.float32)
        act = np.zeros((room, *spec.action.shape), np.float32 if spec.action.shape else np.int32)
        flag, count = np.zeros(room, bool), np.zeros(room, np.int32)
        steps = Transition(count, obs, act, obs, flag, flag, flag, count)
        found = Collected(Dataset(steps, np.int32(0)), None, np.float32("nan"))
        if self.expert is None:
            return found
        if algorithm.card.values:
            return found._replace(action_values=ActionValues(act, np.zeros(room, np.float32)))
        return found._replace(expert_actions=act)


def chances(space: ActionSpace) -> int:
    """Random numbers that `explored` takes for a state."""
    return 1 + (1 if isinstance(space, Discrete) else space.shape[0])


def explored(
    space: ActionSpace, share: float | Array, learner: Array, expert: Array, chance: Float[Array, "... k"]
) -> Array:
    """The action to try in a state: any, each alike, in a `share` of them; else the learner's or the expert's own.

    `chance` holds uniform random numbers: the first says which of the three, the others any action.
    """
    xp = namespace(chance)
    which, anywhere = chance[..., 0], chance[..., 1:]
    if isinstance(space, Discrete):
        anything = xp.minimum(anywhere[..., 0] * space.n, space.n - 1)
    else:
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        anything, which = low + anywhere * (high - low), which[..., None]
    own = xp.where(which < (1 + share) / 2, learner, expert)
    return xp.where(which < share, anything.astype(learner.dtype), own)


def _padded(column: np.ndarray, room: int) -> np.ndarray:
    column = np.asarray(column)
    kind = np.int32 if column.dtype == np.int64 else np.float32 if column.dtype == np.float64 else column.dtype
    out = np.zeros((room, *column.shape[1:]), kind)
    out[: len(column)] = column
    return out


class Stepped:
    """Steps on the host, a turn at a time. What is played depends on seeds and policies, never on who is faster.

    With staleness 0 a turn is played by the policy as it is after the update before. With staleness 1 by the one before that: the
    steps of the next turn are asked for before this turn's update, so that environments and updates work at once.
    """

    limit = np.iinfo(np.int32).max

    def __init__(self, env: GymnasiumEnvironment, seeds: list[int], schedule: Schedule, rounds: int, workers: int):
        self.env, self.seeds, self.schedule, self.rounds, self.workers = env, seeds, schedule, rounds, workers
        self._crew: WorkerPool | None = None
        self._asked = False

    @contextmanager
    def working(self, first: int) -> Iterator[None]:
        """With workers at hand, from round `first` on: a run that goes on begins new episodes, from other seeds."""
        entropy = [(seed, first) for seed in self.seeds]
        with WorkerPool(self.env, entropy, self.schedule.envs, self.schedule.steps_per_env, self.workers) as self._crew:
            self._asked = False
            yield

    @property
    def crew(self) -> WorkerPool:
        """Who plays, and the time they spend on what."""
        assert self._crew is not None
        return self._crew

    def turn(self, policies: Callable[[], Any], index: int, turn: int, active: np.ndarray) -> Chunk:
        """All runs' steps of a turn, stacked. `policies` returns those that would play now."""
        if not self._asked:
            self._ask(policies(), index, turn, active)
        chunks = self.crew.answers()
        self._asked = False
        following = divmod(index * self.schedule.updates + turn + 1, self.schedule.updates)
        if self.schedule.staleness and following[0] < self.rounds:
            self._ask(policies(), *following, active)
        return jax.tree.map(lambda *parts: np.stack(parts), *chunks)

    def _ask(self, policies: Any, index: int, turn: int, active: np.ndarray) -> None:
        begins, anything = bool(self.schedule.begins(index, turn)), int(self.schedule.random_steps_left(index, turn))
        orders = [
            Order(jax.tree.map(lambda x, i=run: x[i], policies), begins, anything) if active[run] else None
            for run in range(len(self.seeds))
        ]
        self.crew.ask(orders)
        self._asked = True


Collector = Fused | Hosted | Stepped


def round_data(demonstrations: Dataset, collected: Collected | None) -> RoundData:
    if collected is None:
        return RoundData(demonstrations)
    return RoundData(demonstrations, collected.rollouts, collected.expert_actions, collected.action_values)
