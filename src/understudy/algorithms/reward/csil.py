"""CSIL: a clone becomes the reward, and the policy improves on it by RL without leaving the clone.

It matches reward moments. A clone q is a soft-optimal policy of some reward, and soft policy inversion has it in closed
form: with a prior p and temperature α, q is optimal for

    r(s, a) = α (log q(a | s) − log p(a | s))                                         the coherent reward

because exp(r / α) p = q, so that all soft values are 0. So f = −r needs no adversary: it is large where the clone is
sure of another action, and 0 far from the demonstrations, if the clone falls back to the prior there. In the loop of
`matching`:

    2.     in round 0: q ← the clone of D_E, and π becomes a clone as well, in `clone_steps` steps
    3.     for each update: collect steps, then improve π on E [ r − β log (π / q) ]

Line 3 regularizes towards the clone, not towards the prior. Then acting like the clone has the value α KL(q ‖ p) per
step, which is positive on the demonstrated states and 0 away from them, and the policy returns to them. It is SAC, or
soft Q-learning, with the fixed temperature β and the reward r + β log q.

The clone is stationary: it depends on distances to demonstrated states s_i, by a Gaussian kernel k.

    continuous    q = N(μ, σ² + ν²), a Gaussian process' prediction with noise ν; p = N(0, 1 + ν²) in units of the range
    discrete      q(a) = (c p(a) + Σ_i k(s, s_i) 1[a_i = a]) / (c + Σ_i k(s, s_i)), p uniform

The absorbing state is far from all demonstrated states, so r = 0 there.

Reference: Watson, Huang and Heess, "Coherent Soft Imitation Learning" (2023). It solves the problem as a best response
to a fixed f, so the game is dual, with a moment function that moves once.

Deviations: the clone is a kernel method in closed form; in the source a network with stationary features, a
heteroscedastic one, learns it. The policy's network is cloned by the squared error, so that it starts near q, not at
it. There is no refinement of the reward, and critics learn alone at first (`critic_warmup`) instead of from the
demonstrations before the first step. Rewards are clipped.
"""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from understudy.algorithms.reward.defaults import SMALL, STOP_REASONS
from understudy.algorithms.reward.matching import RewardMatching, RewardState
from understudy.algorithms.reward.moments import Counts, RewardMoments
from understudy.core.errors import SettingError, check_positive, check_whole
from understudy.core.types import RoundData, Transition
from understudy.game import QUICK, Card, adjustable
from understudy.game.kernels import GaussianKernel, squared_distances
from understudy.policies.normalization import Scaling
from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ

DEFAULT_SAC = SAC(lr=3e-4, discount=0.99, tau=0.005, temperature=0.01, critic_warmup=1000)
DEFAULT_SOFT_Q = SoftQ(lr=3e-4, discount=0.99, tau=0.005, temperature=0.01)
REPEATED = 1e6
"""Variance of the noise of a step that is listed again, which leaves it without weight."""


class CSIL(RewardMatching):
    """Coherent soft imitation learning: RL on a reward for which a clone is already optimal."""

    card: ClassVar[Card] = Card(
        name="csil",
        title="CSIL",
        moments="reward",
        solver="dual",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, between updates",
        reference="Watson et al. 2023",
        next_states=True,
        fixed=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        QUICK: {
            "sac": replace(DEFAULT_SAC, hidden=(64, 64)),
            "soft_q": replace(DEFAULT_SOFT_Q, hidden=(64, 64)),
            "rounds": 16,
            "clone_steps": 2_000,
        },
    }
    small: ClassVar[dict[str, Any]] = {
        **SMALL,
        "points": 32,
        "sac": replace(DEFAULT_SAC, hidden=(8,), gradient_steps=2, critic_warmup=0),
        "soft_q": replace(DEFAULT_SOFT_Q, hidden=(8,), gradient_steps=2, temperature=1.0),
    }
    learning: ClassVar[dict[str, Any]] = {"rounds": 16, "round_steps": 128}

    scale: float = 0.1
    """α, the scale of the coherent reward. The players' temperature is β, the weight of the distance to the clone."""
    points: int = eqx.field(static=True, default=512)
    """Demonstrated steps that the clone in the reward uses, at most."""
    bandwidth: float = 0.5
    """Bandwidth of the clone's kernel, in multiples of the median distance between demonstrated steps."""
    noise: float = 0.1
    """ν, the expert's noise that the clone assumes, in half ranges of the actions."""
    prior_count: float = 0.1
    """Discrete actions: c, the number of steps that the uniform prior counts as."""
    clip: float = 10.0
    """Clip rewards to ± this."""
    clone_steps: int = eqx.field(static=True, default=10_000)
    """Gradient steps of behavioral cloning before the first update, with SAC. 0: the policy starts untrained."""
    balanced: bool = eqx.field(static=True, default=True)
    """Draw half of each minibatch from the demonstrations. Otherwise draw uniformly from all steps."""
    obs_scaling: Scaling = eqx.field(static=True, default="standardize")
    """Scaling of observations: of each number (standardize), by one number (scale), as in the paper, or none."""
    sac: SAC = eqx.field(default=DEFAULT_SAC, converter=adjustable(DEFAULT_SAC))
    """RL player for continuous actions. Its fixed temperature is β."""
    soft_q: SoftQ = eqx.field(default=DEFAULT_SOFT_Q, converter=adjustable(DEFAULT_SOFT_Q))
    """RL player for discrete actions. Its fixed temperature is β."""

    def __check_init__(self) -> None:
        check_positive(scale=self.scale, bandwidth=self.bandwidth, noise=self.noise, clip=self.clip)
        check_positive(prior_count=self.prior_count)
        check_whole(1, points=self.points)
        if self.sac.temperature is None or self.soft_q.target_entropy is not None:
            raise SettingError(
                "CSIL's players have a fixed temperature, the weight of the distance to the clone: give "
                "sac.temperature a number, and leave out soft_q.target_entropy"
            )

    def initial_moments(self, kernel: GaussianKernel, key: Key[Array, ""]) -> "Coherent":
        obs = kernel.normalization.obs_mean.shape[0]  # hidden numbers (`critic_obs`) are 0, not left out
        weight = self.soft_q.temperature if kernel.actions is not None else self.sac.temperature
        return Coherent(
            kernel,
            jnp.zeros((self.points, obs)),
            jnp.zeros((self.points, self.points)),
            jnp.zeros((self.points, kernel.directions.shape[0] - obs)),
            *(jnp.asarray(x, jnp.float32) for x in (self.bandwidth, self.noise, self.prior_count)),
            *(jnp.asarray(x, jnp.float32) for x in (self.scale, weight, self.clip)),
        )

    def next_moments(self, state: RewardState, data: RoundData, counts: Counts, key: Key[Array, ""]) -> "Coherent":
        moments = state.moments
        assert isinstance(moments, Coherent)

        def fit() -> Coherent:
            row = data.demonstrations.evenly_spaced(self.points)
            repeated = jnp.concatenate([jnp.zeros(1, bool), row[1:] == row[:-1]])
            return moments.fitted(jax.tree.map(lambda x: x[row], data.demonstrations.steps), repeated)

        return jax.lax.cond(jnp.asarray(data.round) == 0, fit, lambda: moments)  # line 2


class Coherent(RewardMoments):
    """The reward of line 3, from a clone in closed form."""

    kernel: GaussianKernel
    """Defines the coordinates and the bandwidth."""
    states: Float[Array, "k obs"]
    """s_i."""
    inverse: Float[Array, "k k"]
    """(K + ν² I)⁻¹ of the Gaussian process, or for discrete actions the identity without repeated steps."""
    answers: Float[Array, "k act"]
    """What the kernel is multiplied with: (K + ν² I)⁻¹ a, or the actions one-hot."""
    bandwidth: Float[Array, ""]
    noise: Float[Array, ""]
    prior_count: Float[Array, ""]
    scale: Float[Array, ""]
    weight: Float[Array, ""]
    """β."""
    clip: Float[Array, ""]

    def fitted(self, steps: Transition, repeated: Array) -> "Coherent":
        """The clone of some demonstrated steps. Those that are listed again have no weight."""
        states, acts = self._split(steps)
        if self.kernel.actions is not None:
            once = (~repeated).astype(acts.dtype)
            return replace(self, states=states, inverse=jnp.diag(once), answers=once[:, None] * acts)
        variance = self.noise**2 + REPEATED * repeated
        inverse = jnp.linalg.inv(self._near(states, states) + jnp.diag(variance))
        return replace(self, states=states, inverse=inverse, answers=inverse @ acts)

    def log_ratio(self, steps: Transition) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """log q(a | s) and log p(a | s)."""
        states, acts = self._split(steps)
        near = self._near(states, self.states)
        if self.kernel.actions is not None:
            prior = 1 / self.kernel.actions
            counts = near @ self.answers
            q = (self.prior_count * prior + counts) / (self.prior_count + counts.sum(-1, keepdims=True))
            return jnp.log((q * acts).sum(-1)), jnp.full(len(acts), jnp.log(prior))
        explained = ((near @ self.inverse) * near).sum(-1, keepdims=True)
        variance = jnp.clip(1 - explained, 0.0, 1.0) + self.noise**2
        return _log_normal(acts, near @ self.answers, variance), _log_normal(acts, 0.0, 1 + self.noise**2)

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        log_q, log_p = self.log_ratio(steps)
        return jnp.clip(self.scale * (log_q - log_p) + self.weight * log_q, -self.clip, self.clip)

    def absorbing_reward(self, counts: Counts, balanced: bool) -> Float[Array, ""]:
        return jnp.zeros(())

    def bound(self) -> Float[Array, ""]:
        return self.clip

    def _split(self, steps: Transition) -> tuple[Float[Array, "n obs"], Float[Array, "n act"]]:
        points, size = self.kernel.points(steps), self.states.shape[1]
        return points[:, :size], points[:, size:]

    def _near(self, x: Float[Array, "n obs"], y: Float[Array, "k obs"]) -> Float[Array, "n k"]:
        return jnp.exp(-squared_distances(x, y) / (2 * (self.bandwidth * self.kernel.bandwidth) ** 2))


def _log_normal(
    x: Float[Array, "n act"], mean: float | Float[Array, "n act"], variance: float | Float[Array, "..."]
) -> Float[Array, " n"]:
    """log N(x; mean, variance), summed over the numbers of an action."""
    return (-0.5 * jnp.square(x - mean) / variance - 0.5 * jnp.log(2 * jnp.pi * variance)).sum(-1)
