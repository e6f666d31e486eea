"""Collecting whole episodes, and the expert's answers at their states, inside the compiled round.

The expert answers with its action or, if the algorithm's card requests values, with the value of one tried action.
Either is one query for each state. Round 0 collects nothing, because no policy is trained yet.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

from understudy.collect.base import Collected, InProgram, Memory, Now
from understudy.collect.gates import Gate
from understudy.collect.rollouts import EpisodeBatch, play
from understudy.core.arrays import Array, namespace
from understudy.core.types import ActionSpace, ActionValues, Dataset, Discrete, MultiDiscrete, Spec, State
from understudy.envs import Environment
from understudy.envs.values import ActionValueEstimator
from understudy.experts.expert import query_expert
from understudy.game import Algorithm
from understudy.game.asking import chooses, questions
from understudy.policies import Policy


class JaxEpisodes(InProgram):
    """Episodes in a JAX environment, and the answers of an expert that is a policy."""

    env: Environment
    expert: Policy | None
    """None: there is no expert to query."""
    deterministic: bool = eqx.field(static=True, default=False)
    """The expert answers with its mode."""
    values: ActionValueEstimator | None = None
    """Action values under the expert, for algorithms that query them."""

    def init(self, algorithm: Algorithm, states: State, spec: Spec) -> Memory:
        return _no_steps(states)

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
        one = partial(self.collect_run, algorithm, index=now.round)
        collected = jax.vmap(lambda state, left, key: one(state, left, key))(states, answers_left, keys)
        return _counted(memory, collected)

    def collect_run(
        self, algorithm: Algorithm, state: State, left: Int[Array, ""], key: Key[Array, ""], index: Int[Array, ""]
    ) -> Collected:
        """The data of one run in round `index`, with `left` queries left."""
        play_key, answer_key = jax.random.split(key)
        keys = jax.random.split(play_key, algorithm.episodes_per_round)
        gate = None
        if self.expert is not None and algorithm.gated:
            budget = left // algorithm.episodes_per_round
            gate = Gate(algorithm, state, self.expert, index, budget, self.deterministic)
        keep, starts = self.values is not None, algorithm.start_seeds(state)
        episodes = play(self.env, algorithm.acting_policy(state), keys, False, gate, keep, starts)
        order, chosen = _answer_order(episodes, self.env.spec.horizon)
        if self.expert is not None and chooses(algorithm):
            steps, real = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (episodes.steps, episodes.alive))
            # 0 and 1 are used by the split, 2 below
            order, chosen = questions(algorithm, state, steps, real, jax.random.fold_in(key, 3))
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[order], episodes)
        steps = flat.steps._replace(round=jnp.full(order.shape, index, jnp.int32))
        size = jnp.where(index == 0, 0, episodes.alive.sum()).astype(jnp.int32)
        mean_return = jnp.where(index == 0, jnp.nan, episodes.rewards.sum(1).mean())
        success = jnp.full(order.shape, jnp.nan) if flat.success is None else flat.success.astype(jnp.float32)
        collected = Collected(Dataset(steps, size), success=success, mean_return=mean_return)
        if self.expert is None:
            return collected
        answers = jnp.where(index == 0, 0, jnp.minimum(chosen, left)).astype(jnp.int32)
        collected = collected._replace(answered=jnp.arange(order.shape[0]) < answers, answers=answers)
        query = partial(query_expert, self.expert, self.deterministic)
        actions = jax.vmap(query)(steps.t, steps.obs, jax.random.split(answer_key, order.shape[0]))
        if flat.decisions is not None:  # if the expert acted, its action is its answer
            by_expert = flat.decisions.by_expert.reshape(-1, *(1,) * (actions.ndim - 1))
            actions = jnp.where(by_expert, steps.act, actions)
        if self.values is None:
            return collected._replace(expert_actions=actions)
        space, try_key = self.env.spec.action, jax.random.fold_in(key, 2)  # 0 and 1 are used by the split
        uniform_key, value_key = jax.random.split(try_key)
        uniform = jax.random.uniform(uniform_key, (order.shape[0], uniforms_needed(space)))
        tried = tried_actions(space, algorithm.exploring, steps.act, actions, uniform)
        value_keys = jax.random.split(value_key, order.shape[0])
        values = jax.vmap(self.values)(steps.t, flat.states, steps.obs, tried, value_keys)
        return collected._replace(action_values=ActionValues(tried, values))


def _answer_order(episodes: EpisodeBatch, horizon: int) -> tuple[Int[Array, " n"], Int[Array, ""]]:
    """An order of all steps, those to be answered first and padding last, and the number of steps to be answered."""
    alive = episodes.alive
    if episodes.decisions is None:
        return jnp.argsort((~alive).ravel(), stable=True), alive.sum()
    chosen = alive & episodes.decisions.query
    late = jnp.where(chosen, episodes.decisions.rank, jnp.where(alive, horizon, horizon + 1))
    return jnp.argsort(late.ravel(), stable=True), chosen.sum()


class GivenEpisodes(InProgram):
    """Episodes and answers that were collected on the host."""

    def init(self, algorithm: Algorithm, states: State, spec: Spec) -> Memory:
        return _no_steps(states)

    def collect(
        self,
        algorithm: Algorithm,
        states: State,
        memory: Memory,
        given: Collected,
        now: Now,
        answers_left: Int[Array, " runs"],
        keys: Key[Array, " runs"],
    ) -> tuple[Memory, Collected]:
        return _counted(memory, given)


def _no_steps(states: State) -> Int[Array, " runs"]:
    """The memory of episode collectors: the environment steps of each run so far."""
    return jnp.zeros(jax.tree.leaves(states)[0].shape[0], jnp.int32)


def _counted(memory: Memory, collected: Collected) -> tuple[Memory, Collected]:
    """With the steps of this round counted."""
    assert collected.rollouts is not None
    steps = memory + collected.rollouts.size
    return steps, collected._replace(env_steps=steps.astype(jnp.float32))


def uniforms_needed(space: ActionSpace) -> int:
    """How many uniform numbers `tried_actions` needs for a state."""
    return 1 + (1 if isinstance(space, Discrete) else space.shape[0])


def tried_actions(
    space: ActionSpace, share: float | Array, learner: Array, expert: Array, uniform: Float[Array, "... k"]
) -> Array:
    """The action whose value is queried: drawn uniformly with probability `share`, else the learner's or the expert's.

    `uniform` holds uniform numbers: the first chooses among the three, the others draw the action.
    """
    xp = namespace(uniform)
    which, anywhere = uniform[..., 0], uniform[..., 1:]
    if isinstance(space, Discrete):
        random = xp.minimum(anywhere[..., 0] * space.n, space.n - 1)
    elif isinstance(space, MultiDiscrete):
        counts = np.asarray(space.nvec, np.float32)
        random, which = xp.minimum(anywhere * counts, counts - 1), which[..., None]
    else:
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        random, which = low + anywhere * (high - low), which[..., None]
    own = xp.where(which < (1 + share) / 2, learner, expert)
    return xp.where(which < share, random.astype(learner.dtype), own)
