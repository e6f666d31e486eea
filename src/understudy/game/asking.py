"""Asking: at which states of a round's episodes the expert is queried, chosen when the episodes have ended.

A setting of every on-Q algorithm, for an expert whose answers are expensive, such as a person. The choice depends on
the states alone, never on the expert's answers:

    all      every state, in the order of the episodes
    spread   states drawn uniformly from all episodes
    novel    one state after the other: the one farthest from all states queried so far, in this round and before

Distances are Euclidean, between standardized observations. A state that was queried before is not novel, so an episode
that repeats another one costs no answers. `queries_per_round` limits a round. If the budget ends within a round, the
first states in this order are answered. A `gate` decides during the episode instead, and can let the expert act.
"""

from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Key

from understudy.core.arrays import Array
from understudy.core.errors import AlgorithmError, check_choice, check_whole
from understudy.core.types import Dataset, Transition
from understudy.game.algorithm import Algorithm
from understudy.policies.normalization import Normalization

Ask = Literal["all", "spread", "novel"]
REASONS: dict[Ask, str] = {
    "all": "every state of an episode is asked about",
    "spread": "a random state of the newest episodes",
    "novel": "the state least like those answered so far",
}
"""Why a state is asked about, for the person who answers."""
SAME = 1e-3
"""States that are closer than this, in standard deviations, count as the same state."""


@runtime_checkable
class Asking(Protocol):
    """The part of an on-Q algorithm's state that tells which states were queried."""

    @property
    def normalization(self) -> Normalization: ...

    @property
    def aggregated(self) -> Dataset: ...


class Questions(NamedTuple):
    """The states of a round to be answered: the first `count` of `order`."""

    order: Int[Array, " n"]
    """All steps: those to be answered, then other real steps, then padding."""
    count: Int[Array, ""]


def check_asking(ask: str, queries_per_round: int | None) -> None:
    """Raise unless these settings fit together."""
    check_choice(get_args(Ask), ask=ask)
    if queries_per_round is not None:
        check_whole(1, queries_per_round=queries_per_round)


def chooses(algorithm: Algorithm) -> bool:
    """Whether the algorithm queries the expert at some states only, chosen after the episodes."""
    chosen = algorithm.ask != "all" or algorithm.queries_per_round is not None
    if chosen and algorithm.gated:
        name = algorithm.card.name
        raise AlgorithmError(f"{name} has a gate, and ask or queries_per_round is set: use one of the two")
    return chosen


def most_answers(algorithm: Algorithm, horizon: int) -> int:
    """The most answers that a run can get, at least 1: the capacity of its aggregated dataset."""
    steps = algorithm.episodes_per_round * min(horizon, algorithm.answers_per_episode or horizon)
    return max((algorithm.rounds - 1) * min(steps, algorithm.queries_per_round or steps), 1)


def questions(
    algorithm: Algorithm, state: Asking, steps: Transition, real: Bool[Array, " n"], key: Key[Array, ""]
) -> Questions:
    """The states to be answered, among the real steps of a round."""
    if algorithm.ask == "novel":
        return _novel(state, steps.obs, real, algorithm.queries_per_round)
    late = jax.random.uniform(key, real.shape) if algorithm.ask == "spread" else jnp.zeros(real.shape)
    order = jnp.argsort(jnp.where(real, late, 1.0), stable=True).astype(jnp.int32)  # a uniform number is below 1
    return Questions(order, jnp.minimum(real.sum(), algorithm.queries_per_round or len(real)).astype(jnp.int32))


def _novel(state: Asking, obs: Array, real: Bool[Array, " n"], limit: int | None) -> Questions:
    """Farthest first: each state is as far as possible from those queried in earlier rounds and chosen before it."""
    rows = state.normalization.encode_obs(obs).reshape(len(obs), -1)
    answered = state.normalization.encode_obs(state.aggregated.steps.obs).reshape(-1, rows.shape[1])

    def nearer(distance: Float[Array, " n"], to: Array) -> Float[Array, " n"]:
        return jnp.minimum(distance, jnp.linalg.norm(rows - to, axis=1))

    far = jnp.where(real, jnp.inf, -1.0)
    far = jax.lax.fori_loop(0, state.aggregated.size, lambda i, far: nearer(far, answered[i]), far)

    def choose(i: Int[Array, ""], loop: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        far, place, count = loop
        best = jnp.argmax(far)
        new = far[best] > SAME
        place = jnp.where(new, place.at[best].set(i), place)
        return nearer(far, rows[best]), place, count + new.astype(jnp.int32)

    place = jnp.where(real, len(obs), len(obs) + 1)
    start = (far, place, jnp.zeros((), jnp.int32))
    _, place, count = jax.lax.fori_loop(0, min(limit or len(obs), len(obs)), choose, start)
    return Questions(jnp.argsort(place, stable=True).astype(jnp.int32), count)
