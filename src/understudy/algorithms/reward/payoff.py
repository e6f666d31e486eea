"""The payoff that reward-moment algorithms log, stop at and select by.

It is the largest reward payoff over the unit ball of a Gaussian kernel's function space, of a round's steps against
held-out demonstrations. It can be compared across rounds and algorithms, which the payoff of an algorithm's own f
cannot: with an indicator kernel on continuous data that payoff is constant.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from understudy.algorithms.reward.moments import Counts
from understudy.core.types import RoundData, Transition
from understudy.game.kernels import GaussianKernel

NUM_FEATURES = 512
"""Random features of the payoff's kernel."""


class FeatureSums(NamedTuple):
    """Sums of kernel features over the learner's steps."""

    current: Float[Array, " D"]
    """The current round."""
    earlier: Float[Array, " D"]
    """All earlier rounds."""

    def add(self, kernel: GaussianKernel, new_steps: Transition, new_round: Bool[Array, ""]) -> "FeatureSums":
        """With the steps since the last update. A new round first moves the current sum to the earlier ones."""
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), new_steps)
        new = kernel.features(kernel.points(flat)).sum(0)
        earlier = jnp.where(new_round, self.earlier + self.current, self.earlier)
        return FeatureSums(jnp.where(new_round, 0, self.current) + new, earlier)


def kernel_payoff(
    kernel: GaussianKernel, data: RoundData, learner_mean: Float[Array, " D"], counts: Counts
) -> Float[Array, ""]:
    """‖E k(x, ·) over the round's steps − E k(x, ·) over held-out steps‖, absorbing states included.

    `learner_mean` is the mean of the round's kernel features.
    """
    held_out = data.demonstrations if data.held_out is None else data.held_out
    sample = held_out.sample(jax.random.key(0), (NUM_FEATURES,))  # the same steps in every round
    expert_mean = kernel.features(kernel.points(sample)).mean(0)
    return distance(learner_mean, expert_mean, counts.current.absorbing_share, counts.expert.absorbing_share)


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
