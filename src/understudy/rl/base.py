"""What a policy player that best-responds in an environment is: from experience and rewards to a better policy.

A player never sees where rewards come from. Whoever plays it labels the steps: with −f in a game, with the reward of
the environment when it is used by itself (`rl.learn`). It works in the learner's coordinates (`frames.Normalization`).

    init(key, spec)                                  the state before the first step
    improve(state, experience, progress, key)        one turn: its gradient steps are a scan inside
    policy(state)                                    the policy as it is now
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from understudy.core.errors import check_names
from understudy.core.types import Spec, Transition
from understudy.policies import Policy

PlayerState = Any
"""A pytree of arrays: everything the next turn needs of a player."""


class Batch(NamedTuple):
    """Labelled steps. The value of what follows one is continues · V(s') + after."""

    obs: Float[Array, "... obs"]
    act: Array
    next_obs: Float[Array, "... obs"]
    reward: Float[Array, "..."]
    continues: Float[Array, "..."]
    """1 where the next state's value counts, 0 where nothing follows or `after` says what does."""
    after: Float[Array, "..."]
    """What an absorbing state is worth, where the step ends in it; 0 elsewhere."""
    most: Float[Array, "..."]
    """What no state is worth more than, nor less than its negative, entropy aside; infinite: not known."""


class Experience(NamedTuple):
    """What a player may learn from in a turn."""

    sample: Callable[[Key[Array, ""]], Batch]
    """A minibatch, drawn from everything there is."""
    new_steps: Batch
    """This turn's own steps, in order: (environments, time)."""
    last: Bool[Array, "envs time"]
    """Where an episode's record ends among them."""


class RLPlayer(eqx.Module):
    """Abstract: see the module's table of methods. Every subclass is final."""

    def __new__(cls, *_: Any, **settings: Any) -> Self:
        check_names(cls, settings)
        return super().__new__(cls)

    @abstractmethod
    def init(self, key: Key[Array, ""], spec: Spec) -> PlayerState: ...

    @abstractmethod
    def improve(
        self, state: PlayerState, experience: Experience, progress: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[PlayerState, dict[str, Float[Array, ""]]]:
        """The state after a turn, and what a person would plot. `progress` runs from 0 to 1, for schedules."""

    @abstractmethod
    def policy(self, state: PlayerState) -> Policy: ...


def labelled(
    steps: Transition,
    reward: Float[Array, "..."],
    truncation_is_terminal: bool,
    rest: float | Float[Array, ""] = 0.0,
    most: float | Float[Array, ""] = jnp.inf,
) -> Batch:
    """Steps in the learner's coordinates with their rewards.

    `rest` is what an absorbing state is worth. Nothing but it follows a terminal state, and nothing at all a time limit
    that is taken for an end. `most` is what any state is worth at the most.
    """
    ends = steps.terminal | (steps.last & truncation_is_terminal)
    after = jnp.where(steps.terminal, rest, 0.0)
    continues, most = 1.0 - ends.astype(jnp.float32), jnp.full(reward.shape, most, jnp.float32)
    return Batch(steps.obs, steps.act, steps.next_obs, reward, continues, after, most)


def update_when_ready(
    player: RLPlayer,
    state: PlayerState,
    experience: Experience,
    progress: Float[Array, ""],
    warm: Bool[Array, ""],
    key: Key[Array, ""],
) -> tuple[PlayerState, dict[str, Float[Array, ""]]]:
    """A turn of a player, which waits until it is `warm`: with its metrics at zero, and nothing learned."""

    def improve() -> tuple[PlayerState, dict[str, Float[Array, ""]]]:
        return player.improve(state, experience, progress, key)

    def wait() -> tuple[PlayerState, dict[str, Float[Array, ""]]]:
        return state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(improve)[1])

    return jax.lax.cond(warm, improve, wait)
