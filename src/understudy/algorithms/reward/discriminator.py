"""GAIL's moment function: the reward of a discriminator's logit g, and the scale of returns."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from understudy.algorithms.reward.moments import Counts, RewardMoments, samples_in
from understudy.core.types import Samples, Transition
from understudy.game.critics import Critic
from understudy.game.kernels import GaussianKernel
from understudy.game.players import Memory

RewardForm = Literal["positive", "negative", "logit"]
FORMS: tuple[RewardForm, ...] = ("positive", "negative", "logit")
MIN_SHARE = 0.01
"""Added to both sides' share of time in the absorbing state, so that its logit is finite."""


class Discriminator(RewardMoments):
    """The reward r(g) / scale."""

    logit: Critic
    """g. Larger values mean that a step looks more like the expert's."""
    memory: Memory
    """Optimizer state of the logit."""
    kernel: GaussianKernel
    """Defines the coordinates of g's inputs."""
    scale: Float[Array, ""]
    """Rewards are divided by this."""
    loss: Float[Array, ""]
    """Mean loss over the gradient steps of the last update."""
    form: RewardForm = eqx.field(static=True)

    def samples(self, steps: Transition, weight: float | Float[Array, ""] = 1.0) -> Samples:
        """Steps in g's coordinates, with actions as vectors and the given total weight."""
        return samples_in(self.kernel, steps, weight)

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        points = self.samples(steps)
        return reward_of(jax.vmap(self.logit)(points.t, points.obs, points.act), self.form) / self.scale

    def absorbing_reward(self, counts: Counts, balanced: bool) -> Float[Array, ""]:
        """The reward at g = log p_E − log p_π, which minimises L in the absorbing state."""
        learner, expert = (side.absorbing_share + MIN_SHARE for side in (counts.learner, counts.expert))
        return reward_of(jnp.log(expert) - jnp.log(learner), self.form) / self.scale

    def metrics(self) -> dict[str, Float[Array, ""]]:
        return {"discriminator_loss": self.loss}


def reward_of(logit: Float[Array, "..."], form: RewardForm) -> Float[Array, "..."]:
    """r(g) = −f: −log(1 − D), log D or their sum, with D = σ(g)."""
    if form == "positive":
        return jax.nn.softplus(logit)
    return -jax.nn.softplus(-logit) if form == "negative" else logit


def returns_std(
    reward: Float[Array, "envs time"], last: Bool[Array, "envs time"], discount: float | Array
) -> Float[Array, ""]:
    """The standard deviation of R_t = r_t + γ R_{t−1} over all steps. R restarts at 0 with each episode."""

    def step(total: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        total = inputs[0] + discount * total
        return jnp.where(inputs[1], 0, total), total

    totals = jax.lax.scan(step, jnp.zeros(reward.shape[0]), (reward.T, last.T))[1]
    return jnp.sqrt(totals.var() + 1e-8)
