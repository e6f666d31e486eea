"""Gates: at which states the expert is queried, and where it acts instead of the learner.

An algorithm's `gate` decides at each step of an episode. The classes here apply it, inside a compiled program and on
the host, within the budget of queries. If the expert acts at a step, this counts as a query, and its action is the
answer.

For the steps at which the expert acts, a round's budget is split evenly over its episodes, so that they never exceed
it. States where the expert is queried without acting are answered after the episodes, in the order of their `rank`:
the number of chosen states before them in the same episode.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Key

from understudy.core.arrays import Array
from understudy.core.types import State
from understudy.experts.expert import query_expert
from understudy.game import Algorithm
from understudy.game.gating import decide, start_gate, tell
from understudy.policies import Policy


class Decision(NamedTuple):
    """A gate's decision at one step, or at a batch of steps."""

    query: Bool[Array, "..."]
    """Whether to query the expert at this step."""
    rank: Int[Array, "..."]
    """How many earlier states of this episode the gate chose."""
    by_expert: Bool[Array, "..."]
    """Whether the expert acted at this step."""


class GateMemory(NamedTuple):
    """A gate's memory within an episode."""

    carry: Any
    """The memory of the algorithm's `gate`."""
    queries: Int[Array, ""]


class Gate(eqx.Module):
    """An algorithm's gate inside a compiled program, for one episode."""

    algorithm: Algorithm
    state: State
    expert: Policy
    round: Int[Array, ""]
    budget: Int[Array, ""]
    """The expert may act until an episode has this many queries."""
    deterministic: bool = eqx.field(static=True)
    """The expert answers with its mode."""

    def start(self, key: Key[Array, ""]) -> GateMemory:
        carry = start_gate(self.algorithm, self.state, self.round, key)
        return GateMemory(carry, jnp.zeros((), jnp.int32))

    def choose(
        self, memory: GateMemory, t: Int[Array, ""], obs: Array, act: Array, key: Key[Array, ""]
    ) -> tuple[GateMemory, Array, Decision]:
        """The memory, the action to take (the learner's or the expert's), and the decision."""
        gate_key, answer_key = jax.random.split(key)
        carry, query, expert_acts = decide(self.algorithm, self.state, memory.carry, obs, act, gate_key)
        may_ask = memory.queries < _most(self.algorithm)
        by_expert = expert_acts & may_ask & (memory.queries < self.budget)
        query = (query & may_ask) | by_expert
        answer = query_expert(self.expert, self.deterministic, t, obs, answer_key)
        carry = tell(self.algorithm, self.state, carry, obs, act, answer, by_expert)
        act = jnp.where(by_expert, answer, act)
        decision = Decision(query, memory.queries, by_expert)
        return GateMemory(carry, memory.queries + query.astype(jnp.int32)), act, decision


class HostGate:
    """An algorithm's gate on the host, for a batch of episodes that step together."""

    def __init__(
        self,
        algorithm: Algorithm,
        state: State,
        index: int,
        episodes: int,
        budget: int,
        query: Callable[[np.ndarray, np.ndarray], np.ndarray],
        key: Key[Array, ""],
    ):
        """`query` maps observations and their time steps to the expert's actions."""
        self.algorithm, self.state, self.budget, self.query = algorithm, state, budget, query
        start_key, self.key = jax.random.split(key)
        self.carry = _start(algorithm, state, jnp.asarray(index), jax.random.split(start_key, episodes))
        self.queries = np.zeros(episodes, np.int32)

    def choose(self, t: int, obs: np.ndarray, actions: np.ndarray, alive: np.ndarray) -> tuple[np.ndarray, Decision]:
        """The actions to take, and the decisions. The expert is not queried in episodes that have ended."""
        keys = jax.random.split(jax.random.fold_in(self.key, t), len(obs))
        self.carry, query, expert_acts = _decide(self.algorithm, self.state, self.carry, obs, actions, keys)
        may_ask = alive & (self.queries < _most(self.algorithm))
        by_expert = np.asarray(expert_acts) & may_ask & (self.queries < self.budget)
        query = (np.asarray(query) & may_ask) | by_expert
        if by_expert.any():
            own, actions = actions, np.array(actions)
            actions[by_expert] = self.query(obs[by_expert], np.full(int(by_expert.sum()), t, np.int32))
            self.carry = _tell(self.algorithm, self.state, self.carry, obs, own, actions, by_expert)
        decision = Decision(query, self.queries, by_expert)
        self.queries = self.queries + query
        return actions, decision


def _most(algorithm: Algorithm) -> int:
    """The most queries of an episode."""
    limit = algorithm.answers_per_episode
    return int(np.iinfo(np.int32).max) if limit is None else limit


@jax.jit
def _start(algorithm: Algorithm, state: State, index: Array, keys: Key[Array, " n"]) -> Any:
    return jax.vmap(partial(start_gate, algorithm, state, index))(keys)


@jax.jit
def _decide(
    algorithm: Algorithm, state: State, carry: Any, obs: Array, act: Array, keys: Key[Array, " n"]
) -> tuple[Any, Array, Array]:
    return jax.vmap(partial(decide, algorithm, state))(carry, obs, act, keys)


@jax.jit
def _tell(
    algorithm: Algorithm, state: State, carry: Any, obs: Array, act: Array, answer: Array, acted: Bool[Array, " n"]
) -> Any:
    return jax.vmap(partial(tell, algorithm, state))(carry, obs, act, answer, acted)
