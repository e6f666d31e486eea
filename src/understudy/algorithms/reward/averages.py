"""The learner's side of a kernel's moment function: the mean of its features over the steps of all earlier rounds.

Round k counts k^p times as much as round 1, for a power p. With p = 0 all steps count the same, as in fictitious play.
With p > 0 the first rounds are forgotten sooner; weights that do not decrease keep the regret of follow-the-leader
against the weighted average. A terminated episode counts with the time that it spends in the absorbing state.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from understudy.algorithms.reward.payoff import feature_sum
from understudy.core.types import Transition
from understudy.game.kernels import GaussianKernel


class Sums(NamedTuple):
    """Sums over steps."""

    features: Float[Array, " D"]
    steps: Float[Array, ""]
    absorbing_steps: Float[Array, ""]

    @property
    def absorbing_share(self) -> Float[Array, ""]:
        """The share of time in the absorbing state."""
        return self.absorbing_steps / jnp.maximum(self.steps + self.absorbing_steps, 1e-6)

    @property
    def mean(self) -> Float[Array, " D"]:
        """The mean features over time, where those of the absorbing state are 0."""
        return self.features / jnp.maximum(self.steps + self.absorbing_steps, 1e-6)


class LearnerAverage(NamedTuple):
    """The sums of the current round, and the weighted ones of all earlier rounds."""

    current: Sums
    earlier: Sums

    @classmethod
    def init(cls, features: int) -> "LearnerAverage":
        def zero() -> Sums:  # states are donated, so no array may appear twice
            return Sums(jnp.zeros(features), jnp.zeros(()), jnp.zeros(()))

        return cls(zero(), zero())

    def add(
        self,
        kernel: GaussianKernel,
        new_steps: Transition,
        horizon: Int[Array, ""],
        new_round: Bool[Array, ""],
        index: Int[Array, ""] | int,
        power: float | Float[Array, ""],
    ) -> "LearnerAverage":
        """With the steps since the last update. A new round, number `index`, first joins the last one to the earlier.

        Weights are relative to the newest round's: w_k / w_{k-1} = (k / (k - 1))^p.
        """
        number = jnp.maximum(jnp.asarray(index, jnp.float32), 1)
        decay = ((number - 1) / number) ** power
        joined = jax.tree.map(lambda old, new: decay * old + new, self.earlier, self.current)
        earlier, current = jax.tree.map(
            lambda moved, kept: jnp.where(new_round, moved, kept),
            (joined, Sums(*map(jnp.zeros_like, self.current))),
            (self.earlier, self.current),
        )
        remaining = jnp.where(new_steps.terminal, horizon - 1 - new_steps.t, 0).sum()
        new = Sums(
            feature_sum(kernel, new_steps),
            jnp.asarray(new_steps.t.size, jnp.float32),
            remaining.astype(jnp.float32),
        )
        return LearnerAverage(jax.tree.map(jnp.add, current, new), earlier)
