"""The interface of RL players: from experience and rewards to a better policy.

A player does not see where rewards come from. The caller labels the steps: with −f in a game, or with the task reward
in `understudy.learn`. Players work in normalized coordinates (`policies.Normalization`).

    init(key, spec)                                  the state before the first update
    improve(state, experience, progress, key)        one update; its gradient steps are a scan inside
    policy(state)                                    the current policy
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from understudy.core.errors import check_names
from understudy.core.types import Spec, Transition
from understudy.policies import Policy

DRAWN_TOGETHER = 16
"""Minibatches that are drawn and labelled at the same time."""
PlayerState = Any
"""A pytree of arrays: everything that the next update of a player needs."""


class Batch(NamedTuple):
    """Steps with rewards. The value after a step is bootstrap · V(s') + terminal_value."""

    obs: Float[Array, "... obs"]
    act: Array
    next_obs: Float[Array, "... obs"]
    reward: Float[Array, "..."]
    bootstrap: Float[Array, "..."]
    """1 to bootstrap from V(s'), 0 after a terminal step."""
    terminal_value: Float[Array, "..."]
    """The value of the absorbing state if the step ends in it, else 0."""
    value_bound: Float[Array, "..."]
    """A bound on |V| without entropy, known for bounded rewards. Infinite if there is none."""
    demonstrated: Float[Array, "..."]
    """1 if the step is the expert's, else 0."""


class Experience(NamedTuple):
    """The data of one update."""

    sample: Callable[[Key[Array, ""]], Batch] | None
    """Draws a minibatch from all steps."""
    new_steps: Batch | None
    """The steps since the last update, in order: (environments, time)."""
    last: Bool[Array, "envs time"] | None
    """Where an episode ends or is cut off among `new_steps`."""

    def batches(self, keys: Key[Array, " n"]) -> Batch:
        """A minibatch for each key, stacked. Several are drawn together: small operations leave an accelerator idle."""
        assert self.sample is not None
        drawn: Batch = jax.lax.map(self.sample, keys, batch_size=DRAWN_TOGETHER)
        return drawn


class RLPlayer(eqx.Module):
    """Abstract base class; the module docstring describes the methods. Subclasses are final."""

    def __new__(cls, *_: Any, **settings: Any) -> Any:
        check_names(cls, settings)
        return super().__new__(cls)

    @abstractmethod
    def init(self, key: Key[Array, ""], spec: Spec) -> PlayerState: ...

    @abstractmethod
    def improve(
        self, state: PlayerState, experience: Experience, progress: Float[Array, ""], key: Key[Array, ""]
    ) -> tuple[PlayerState, dict[str, Float[Array, ""]]]:
        """The state after one update, and its metrics. `progress` runs from 0 to 1, for learning rate schedules."""

    @abstractmethod
    def policy(self, state: PlayerState) -> Policy: ...

    def clone(
        self, state: PlayerState, sample: Callable[[Key[Array, ""]], Batch], steps: int, key: Key[Array, ""]
    ) -> PlayerState:
        """The state whose policy is a clone of the steps that `sample` draws. Default: the state as it is."""
        return state


def make_batch(
    steps: Transition,
    reward: Float[Array, "..."],
    truncation_is_terminal: bool,
    absorbing_value: float | Float[Array, ""] = 0.0,
    value_bound: float | Float[Array, ""] = jnp.inf,
) -> Batch:
    """Steps in normalized coordinates with their rewards.

    `absorbing_value` is the value after a terminal step. The value after a truncated step is V(s'), or 0 with
    `truncation_is_terminal`.
    """
    done = steps.terminal | (steps.last & truncation_is_terminal)
    terminal_value = jnp.where(steps.terminal, absorbing_value, 0.0)
    bound = jnp.full(reward.shape, value_bound, jnp.float32)
    bootstrap = 1.0 - done.astype(jnp.float32)
    demonstrated = (steps.round < 0).astype(jnp.float32)
    return Batch(steps.obs, steps.act, steps.next_obs, reward, bootstrap, terminal_value, bound, demonstrated)


def update_when_ready(
    player: RLPlayer,
    state: PlayerState,
    experience: Experience,
    progress: Float[Array, ""],
    ready: Bool[Array, ""],
    key: Key[Array, ""],
) -> tuple[PlayerState, dict[str, Float[Array, ""]]]:
    """One update of a player if it is `ready`; otherwise the state is unchanged and all metrics are 0."""

    def improve() -> tuple[PlayerState, dict[str, Float[Array, ""]]]:
        return player.improve(state, experience, progress, key)

    def skip() -> tuple[PlayerState, dict[str, Float[Array, ""]]]:
        return state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(improve)[1])

    return jax.lax.cond(ready, improve, skip)
