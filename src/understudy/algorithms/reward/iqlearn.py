"""IQ-Learn: inverse soft Q-learning, one problem in Q instead of a game between a reward and a policy.

It matches reward moments. A soft Q-function determines both players: its policy is the soft best response, π ∝
exp(Q/α), and its reward r = Q(s, a) − γ V(s') is the one that this policy is optimal for, so f = −r needs no network of
its own. In the loop of `matching`:

    2.     f stays implicit in Q; only its value in the absorbing state is set, from counts of both sides
    3.     for each update: collect steps, D_π ← D_π ∪ D', then for each gradient step, on a minibatch of both sides:
           max_Q  E_{D_E} [ r ] − E_μ [ V(s) − γ V(s') ] − 1/(4β) E_μ [ r² ],  and π follows Q     (`rl.inverse_q`)

The expert's reward minus the policy's is a payoff, and the last term is the χ² regulariser ψ(r). μ is half expert, half
learner. For a fixed policy the best reward is, with densities d_E and d_π,

    r(s, a) = 4β (d_E − d_π) / (d_E + d_π)

So rewards are between −4β and 4β, and the absorbing state, a single one, needs no network: its reward is 4β (p_E − p_π)
/ (p_E + p_π), where p is a side's share of time there. The other steps of a side are weighted by 1 − p: the expert's
fraction of a minibatch is (1 − p_E) / (2 − p_E − p_π), a half if no episode terminates.

Reference: Garg, Chakraborty, Cundy, Song and Ermon, "IQ-Learn: Inverse soft-Q Learning for Imitation" (2021), the
online form with the χ² divergence. `iqlearn_offline` is the offline form. The reward of the absorbing state is that of
Al-Hafez et al., "LS-IQ: Implicit Reward Regularization for Inverse Reinforcement Learning" (2023).

Deviations: the absorbing state and its weights (`absorbing`); in the source the value after termination is 0. The value
of the next state comes from target networks, without a gradient (`target_networks`). Minibatches have both sides, as in
the source, and updates come in blocks of `frequency` environment steps. The source's runs on MuJoCo have a learning
rate of 3e-5 for the policy, which is all that the preset `source` changes, and a temperature of 0.001 on Ant and of 1
on Humanoid. Here all networks have 3e-4, which on Pendulum is better in few steps (docs/results/iqlearn-rates.csv).
"""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from understudy.algorithms.reward.defaults import SMALL, STOP_REASONS
from understudy.algorithms.reward.matching import RewardMatching, RewardState
from understudy.algorithms.reward.moments import Counts, RewardMoments
from understudy.core.errors import SettingError, check_positive
from understudy.core.types import RoundData, Transition
from understudy.game import QUICK, Card, adjustable
from understudy.game.kernels import GaussianKernel
from understudy.game.sampling import Rows, sample_share
from understudy.policies.normalization import Normalization, Scaling
from understudy.rl.inverse_q import InverseQ
from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ

DEFAULT_SAC = SAC(lr=3e-4, lr_schedule="constant", discount=0.99, tau=0.005, temperature=0.01)
DEFAULT_SOFT_Q = SoftQ(lr=3e-4, discount=0.99, tau=0.005, temperature=0.01)
MIN_SHARE = 0.01
"""Added to both sides' share of time in the absorbing state, so that its reward is 0 where neither side is."""


class IQLearn(RewardMatching):
    """Inverse soft Q-learning: a Q-function that is both the reward and its value."""

    card: ClassVar[Card] = Card(
        name="iqlearn",
        title="IQ-Learn",
        moments="reward",
        solver="primal",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, between updates",
        reference="Garg et al. 2021",
        next_states=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    every_update: ClassVar[bool] = True
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "source": {"sac": replace(DEFAULT_SAC, policy_lr=3e-5)},
        QUICK: {
            "sac": replace(DEFAULT_SAC, hidden=(64, 64)),
            "soft_q": replace(DEFAULT_SOFT_Q, hidden=(64, 64)),
            "rounds": 16,
        },
    }
    small: ClassVar[dict[str, Any]] = {**SMALL, "sac": replace(DEFAULT_SAC, hidden=(8,), gradient_steps=2)}

    regularization: float = 0.5
    """Weight of the χ² regulariser, β: rewards are between −4β and 4β."""
    target_networks: bool = eqx.field(static=True, default=True)
    """Take the value of the next state from target networks, without a gradient."""
    sac: SAC = eqx.field(default=DEFAULT_SAC, converter=adjustable(DEFAULT_SAC))
    """Networks and policy for continuous actions."""
    soft_q: SoftQ = eqx.field(default=DEFAULT_SOFT_Q, converter=adjustable(DEFAULT_SOFT_Q))
    """Networks for discrete actions."""
    balanced: bool = eqx.field(static=True, default=True)
    """Compare equally many steps of both sides. Always on."""
    obs_scaling: Scaling = eqx.field(static=True, default="standardize")
    """Scaling of observations: of each number (standardize), by one number (scale), as in the paper, or none."""

    def __check_init__(self) -> None:
        check_positive(regularization=self.regularization)
        if self.start_share:
            raise SettingError(
                f"start_share is {self.start_share}: IQ-Learn's f is about all of its minibatches, so its episodes "
                "must begin as the environment begins them, leave it out"
            )
        if not self.balanced:
            raise SettingError("balanced is False: IQ-Learn compares both sides in every minibatch, leave it out")

    def next_moments(self, state: RewardState, data: RoundData, counts: Counts, key: Key[Array, ""]) -> "Implicit":
        share = counts.alive_weights[1] / 2 if self.absorbing else jnp.asarray(0.5)
        return Implicit(jnp.asarray(4.0 * self.regularization), share)  # line 2

    def initial_moments(self, kernel: GaussianKernel, key: Key[Array, ""]) -> "Implicit":
        return Implicit(jnp.asarray(4.0 * self.regularization), jnp.asarray(0.5))

    def _minibatch(self, state: RewardState, data: RoundData, key: Key[Array, ""]) -> Transition:
        """Steps of both sides, in the ratio of their time outside the absorbing state."""
        assert data.replay is not None
        assert isinstance(state.moments, Implicit)
        sides = (data.demonstrations.steps, state.usable), (data.replay.steps, Rows(None, data.replay.size))
        return sample_share(key, self.batch_size, state.moments.expert_share, *sides)

    def _player(self, normalization: Normalization) -> InverseQ:
        return InverseQ(super()._player(normalization), self.regularization, 0.5, self.target_networks)  # line 3


class Implicit(RewardMoments):
    """The reward that Q determines. It is 0 here, except in the absorbing state, where Q has no network."""

    largest: Float[Array, ""]
    """4β."""
    expert_share: Float[Array, ""]
    """The expert's fraction of a minibatch."""

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        return jnp.zeros(steps.t.shape)

    def absorbing_reward(self, counts: Counts, balanced: bool) -> Float[Array, ""]:
        """4β (p_E − p_π) / (p_E + p_π)."""
        learner, expert = (side.absorbing_share + MIN_SHARE for side in (counts.learner, counts.expert))
        return self.largest * (expert - learner) / (expert + learner)

    def bound(self) -> Float[Array, ""]:
        return self.largest
