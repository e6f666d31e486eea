"""Rolling out β π_E + (1 − β) π: at each step a coin decides whether the expert acts, or the learner.

Where the expert acts, it was asked about that state: what it did is its answer there, the same draw, and costs no
second question. A budget must cover every state of the time steps in which the expert may act, so it may only act in
the first few of a round that the budget cuts short.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Key

from understudy.core.arrays import Array
from understudy.experts.expert import answer
from understudy.policies import Policy


class Mixing(eqx.Module):
    """Inside a compiled program, for one episode."""

    expert: Policy
    deterministic: bool = eqx.field(static=True)
    """The expert answers with its mode."""
    share: Float[Array, ""]
    """β."""
    until: Int[Array, ""]
    """The expert acts in the time steps before this one."""

    def choose(self, t: Int[Array, ""], obs: Array, act: Array, key: Key[Array, ""]) -> tuple[Array, Bool[Array, ""]]:
        """The learner's action or the expert's, and whether it is the expert's."""
        coin_key, ask_key = jax.random.split(key)
        told = (jax.random.uniform(coin_key) < self.share) & (t < self.until)
        return jnp.where(told, answer(self.expert, self.deterministic, t, obs, ask_key), act), told


@dataclass(frozen=True)
class HostMixing:
    """On the host, for a batch of episodes."""

    ask: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """Observations and their time steps to the expert's actions."""
    share: float
    until: int
    random: np.random.Generator

    def choose(self, t: int, obs: np.ndarray, actions: np.ndarray, alive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As above. Nobody is asked about episodes that are over."""
        told = alive & (self.random.random(len(obs)) < self.share) & (t < self.until)
        if told.any():
            actions = np.array(actions)
            actions[told] = self.ask(obs[told], np.full(int(told.sum()), t, np.int32))
        return actions, told
