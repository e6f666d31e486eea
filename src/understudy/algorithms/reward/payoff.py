"""The payoff that reward-moment algorithms log and stop at, and by which rounds become candidates for the final policy.

It is the largest reward payoff over the unit ball of a Gaussian kernel's function space, of a round's steps against
held-out demonstrations. It can be compared across rounds and algorithms, which the payoff of an algorithm's own f
cannot: with an indicator kernel on continuous data that payoff is constant. It sees the same part of a step as the
algorithm's f (`game.kernels.Match`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from understudy.algorithms.reward.moments import Counts
from understudy.core.types import RoundData, Transition
from understudy.game.kernels import GaussianKernel, matched
from understudy.game.sampling import take

NUM_FEATURES = 512
"""Random features of the payoff's kernel."""
MAX_STEPS = 512
"""Held-out steps of the payoff, evenly spaced; with fewer, some count more than once."""


def feature_sum(
    kernel: GaussianKernel, new_steps: Transition, ordinary: Bool[Array, "envs time"] | None = None
) -> Float[Array, " D"]:
    """The sum of a kernel's features over the steps since the last update, or those of ordinary episodes among them."""
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), new_steps)
    features = kernel.features(kernel.points(flat))
    return (features if ordinary is None else jnp.where(ordinary.reshape(-1, 1), features, 0)).sum(0)


class PayoffState(NamedTuple):
    """The payoff's own kernel, and the sum of its features over the learner's steps of the current round."""

    kernel: GaussianKernel
    """Its random features are not those of the algorithm's f, and each run has its own."""
    current: Float[Array, " D"]
    steps: Float[Array, ""]
    """The number of these steps. Steps of episodes that began at a demonstrated step do not count."""

    def add(self, data: RoundData, new_round: Bool[Array, ""]) -> "PayoffState":
        """With the steps since the last update."""
        assert data.new_steps is not None
        features = feature_sum(self.kernel, data.new_steps, data.ordinary)
        count = jnp.asarray(data.new_steps.t.size if data.ordinary is None else data.ordinary.sum(), jnp.float32)
        return self._replace(
            current=jnp.where(new_round, 0, self.current) + features,
            steps=jnp.where(new_round, 0, self.steps) + count,
        )

    def value(self, data: RoundData, counts: Counts) -> Float[Array, ""]:
        """‖E k(x, ·) over the round's steps − E k(x, ·) over held-out steps‖, absorbing states included."""
        held_out = data.demonstrations if data.held_out is None else data.held_out
        rows = held_out.evenly_spaced(MAX_STEPS)
        features = self.kernel.features(self.kernel.points(take(held_out.steps, rows)))
        if self.kernel.match == "obs-next":
            seen = matched(held_out, self.kernel.match)[rows]
            expert_mean = jnp.where(seen[:, None], features, 0).sum(0) / jnp.maximum(seen.sum(), 1)
        else:
            expert_mean = features.mean(0)
        shares = counts.current.absorbing_share, counts.expert.absorbing_share
        return distance(self.current / jnp.maximum(self.steps, 1), expert_mean, *shares)


def distance(
    learner_mean: Float[Array, " D"],
    expert_mean: Float[Array, " D"],
    learner_absorbing: float | Float[Array, ""],
    expert_absorbing: float | Float[Array, ""],
) -> Float[Array, ""]:
    """The distance of the two sides' kernel means, given each side's share of time in the absorbing state.

    The kernel between the absorbing state and any other is 0. It adds the squared difference of the two shares.
    """
    difference = (1 - learner_absorbing) * learner_mean - (1 - expert_absorbing) * expert_mean
    return jnp.sqrt(jnp.sum(difference**2) + (learner_absorbing - expert_absorbing) ** 2)
