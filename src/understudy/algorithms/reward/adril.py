"""AdRIL: adversarial reward-moment imitation learning, with f in closed form and a policy trained by RL.

It matches reward moments and solves the dual game: the moment function f is the running mean of functional gradients in
the function space of a kernel K, and the policy best-responds by maximum-entropy RL. Only the policy is trained by
gradient descent. Algorithm 2:

    Input: demonstrations D_E, policy class Π, environment, kernel K, threshold δ
    1. f = 0, D_π = {}
    2. while the payoff is above δ, for round k:
    3.     f ← E_{τ ~ D_π} [Σ_t K(s_t a_t, ·)] − E_{τ ~ D_E} [Σ_t K(s_t a_t, ·)]
    4.     π, D' ← MaxEntRL(environment, r = −f)
    5.     D_π ← D_π ∪ D'

With a Gaussian kernel k over (s, a), and means over steps,

    −f(x) = (1 − ρ_E) E_{D_E} k(x_E, x) − (1 − ρ_π) E_{D_π} k(x_π, x)

where ρ is a side's share of time in the absorbing state. This f is the witness function of the maximum mean discrepancy
between the two sides. It is smooth, so it also rewards new steps: positively if they are similar to the expert's,
negatively if they are similar to earlier steps of the learner. With random features, k(x, y) ≈ φ(x) · φ(y)
(`game.kernels`), a single vector summarizes all steps:

    −f(x) = w · φ(x),        w = (1 − ρ_E) E_{D_E} φ − (1 − ρ_π) E_{D_π} φ

A wide kernel pays most at the centre of the expert's states, where a learner can stand still. So h is half of the
median distance. The kernel of the absorbing state with itself is the mean kernel between demonstrated steps, not 1.
With 1, the reward for staying alive is so much larger than that for acting like the expert that the learner does little
else. Round k counts k² times as much as round 1 (`averages`), because the first rounds, in which episodes end early,
would otherwise decide f for a long time. And f has norm 1: of all f with norm at most 1, g / ‖g‖ has the largest ⟨f,
g⟩, where g is the mean gradient. So rewards keep their size while π nears the expert; then f is mostly the sampling
error of the demonstrations.

The policy starts as a clone, the critics learn before it moves, and its loss keeps a cloning term (`rl.sac`). So at the
start it matches the expert's actions in demonstrated states (off-Q moments), then also the states (reward moments).
Half of each minibatch is demonstrated, with the rewards of f. The initial temperature α is 0.01 instead of 1, so that
the initial value of entropy, α H / (1 − γ), does not dominate the value of f. A best response changes whenever f does,
so the returned policy is a moving average of the acting policies, π̄ ← π̄ + ν (π − π̄). In a quarter of its episodes
the learner acts deterministically, as the returned policy does: with exploration noise it would never visit the states
in which that policy stops moving.
docs/stability.md has what each part does. The preset `plain`, the default before, has none of these but the low
temperature and the average.
kernel="gaussian" is exact, on a sample of `points` steps of each side.

The paper's runs use the indicator kernel, on data where no state repeats. Then −f is 1/N_E on a demonstrated step (N_E
trajectories), −1/N_π on a step of an earlier round (N_π trajectories so far), and 0 on the steps of this round. Steps
get these labels when they are sampled. The rewards of steps outside the replay buffer are left to the critic. Only the
absorbing state repeats; its reward is the mean label of its visits.

Reference: Swamy, Choudhury, Bagnell and Wu, "Of Moments and Matching" (2021), section 6.2, Table 10 and the derivation
in the supplement. The RL player is soft actor-critic, or soft Q-learning for discrete actions.

Deviations: MaxEntRL continues from the last policy, with some environment and gradient steps per round, as in the
paper's runs. Stopping and selection use a Gaussian-kernel payoff on held-out demonstrations (`reward.payoff`), since
the payoff of the indicator kernel is constant. With Gaussian kernels, means are over steps instead of sums over a
trajectory. Round weights k² and the smaller kernel of the absorbing state change f; its norm changes only the size of
rewards, and so the temperature that belongs to a target entropy. These settings (`bandwidth`, `features`, `recency`,
`unit_norm`, `absorbing_kernel`) do nothing in `paper`, whose kernel is the indicator. The cloning term changes the
policy's best response, not the game: at weight λ it is the best response to f plus a multiple of the off-Q loss. The
learner's side of f mixes episodes with and without noise (`deterministic_share`). The paper's theory averages the
policies of all rounds with equal weights, not their networks' weights. With a Gaussian kernel the reward of the
absorbing state is 0 until the learner has completed a round.

The default differs from the preset `paper`, which has the settings of Table 10 and of the released runs, in

    setting                    default       paper
    kernel                     features      indicator    the paper's text allows a Gaussian, its runs have labels
    balanced                   True          False        half of each minibatch is demonstrated
    clone_steps                10,000        0            the policy starts as a clone
    sac.cloning_weight         0.5           0            and stays near one where data are
    sac.critic_warmup          5,000         0            until the critics know something
    sac.layer_norm             True          False        values far from the data stay bounded
    sac.lr                     3e-4          7.3e-4       this and the next two: the usual values of SAC
    sac.discount               0.99          0.98
    sac.tau                    0.005         0.02
    sac.initial_temperature    0.01          1
    sac.bound_values           True          False        no true value is above the bound
    average_rounds             5             0            the last policy is returned
    deterministic_share        0.25          none         all episodes have noise
    absorbing                  True          False        absorbing states are ours
    truncation_is_terminal     False         True         this and the next three: the released runs, not the text
    reset_each_round           False         True
    random_each_round          False         True         100 random exploration steps in each round
    restart_lr_schedule        False         True
    obs_scaling                standardize   none         results do not depend on the units of observations

The preset `observations` is for demonstrations without actions: f compares (s, s') (`match`), the policy starts
untrained, and minibatches have only the learner's steps.

On Ant the paper draws half of each minibatch from the demonstrations: the preset `paper-balanced`. (In the released
code the steps of the previous round also have reward 0, and the learning rate of a round's last update is slightly
negative; here it is 0.)
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from understudy.algorithms.reward.averages import Sums, mean_features
from understudy.algorithms.reward.defaults import QUICK_PLAYERS, SMALL, STOP_REASONS
from understudy.algorithms.reward.expert import expert_steps
from understudy.algorithms.reward.kernel_moments import FeatureMoments, Inner, PointMoments, scaled
from understudy.algorithms.reward.matching import RewardMatching, RewardState
from understudy.algorithms.reward.moments import Counts, Labels, RewardMoments, learner_rows
from understudy.algorithms.reward.payoff import NUM_FEATURES
from understudy.core.errors import SettingError, check_choice, check_not_negative, check_positive, check_whole
from understudy.core.types import Dataset, RoundData, Spec
from understudy.game import QUICK, Card, adjustable
from understudy.game.kernels import GaussianKernel, Match
from understudy.game.sampling import take
from understudy.policies.normalization import Scaling
from understudy.rl.sac import SAC

Kernel = Literal["indicator", "gaussian", "features"]
DEFAULT_SAC = SAC(
    lr=3e-4,
    discount=0.99,
    tau=0.005,
    layer_norm=True,
    cloning_weight=0.5,
    critic_warmup=5000,
    initial_temperature=0.01,
    bound_values=True,
)
RELEASED_SETTINGS = {
    "absorbing": False,
    "truncation_is_terminal": True,
    "reset_each_round": True,
    "random_each_round": True,
    "restart_lr_schedule": True,
    "obs_scaling": "none",
}
"""Settings of the released code that Tables 9 and 10 do not list, for AdRIL and SQIL."""
WITHOUT_CLONING = {"balanced": False, "clone_steps": 0}
PAPER_SETTINGS = {
    **RELEASED_SETTINGS,
    **WITHOUT_CLONING,
    "kernel": "indicator",
    "sac": SAC(),
    "average_rounds": 0.0,
    "deterministic_share": None,
}
"""The paper's AdRIL: also its kernel, its SAC, and the last policy."""
PLAIN_SETTINGS = {
    **WITHOUT_CLONING,
    "bandwidth": 1.0,
    "features": NUM_FEATURES,
    "recency": 0.0,
    "unit_norm": False,
    "absorbing_kernel": "one",
    "deterministic_share": None,
    "obs_scaling": "scale",
    "sac": SAC(initial_temperature=0.01, bound_values=True),
}
"""A Gaussian kernel as it is, and a policy that starts untrained."""

UNCLONED_SAC = replace(DEFAULT_SAC, cloning_weight=0.0, critic_warmup=0)
OBSERVATIONS: dict[str, Any] = {**WITHOUT_CLONING, "match": "obs-next", "sac": UNCLONED_SAC}
"""For demonstrations without actions."""


class AdRIL(RewardMatching):
    """Adversarial reward-moment imitation: rewards from a kernel, a policy trained by RL."""

    card: ClassVar[Card] = Card(
        name="adril",
        title="AdRIL",
        moments="reward",
        solver="dual",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, between updates",
        reference="Swamy et al. 2021",
        next_states=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": PAPER_SETTINGS,
        "paper-balanced": {**PAPER_SETTINGS, "balanced": True},
        "plain": PLAIN_SETTINGS,
        "observations": OBSERVATIONS,
        QUICK: {**QUICK_PLAYERS, "sac": replace(DEFAULT_SAC, hidden=(64, 64)), "rounds": 30},
    }
    small: ClassVar[dict[str, Any]] = {
        **SMALL,
        "features": 64,
        "sac": replace(DEFAULT_SAC, hidden=(8,), gradient_steps=2, critic_warmup=1),
    }
    learning: ClassVar[dict[str, Any]] = {name: value for name, value in PLAIN_SETTINGS.items() if name != "sac"}

    kernel: Kernel = eqx.field(static=True, default="features")
    """features: Gaussian, random features of all steps; gaussian: exact, on a sample of steps; indicator: labels."""
    bandwidth: float = 0.5
    """Bandwidth of a Gaussian kernel, in multiples of the median distance between demonstrated steps."""
    features: int = eqx.field(static=True, default=2048)
    """kernel="features": random features. A sharper kernel needs more."""
    recency: float = 2.0
    """kernel="features": round k counts k^p times as much as round 1, for this power p. 0: all steps count the same."""
    unit_norm: bool = eqx.field(static=True, default=True)
    """Divide f by its norm, so that rewards keep their size. Gaussian kernels only."""
    absorbing_kernel: Literal["mean", "one"] = eqx.field(static=True, default="mean")
    """Gaussian kernel of the absorbing state with itself: the mean between demonstrated steps, or one."""
    points: int = eqx.field(static=True, default=1024)
    """kernel="gaussian": sampled steps of each side."""
    match: Match = eqx.field(static=True, default="obs-act")
    """The part of a step that f compares: obs-act, or without actions obs or obs-next (with the next observation)."""
    replays: int = eqx.field(static=True, default=0)
    """Episodes of a clone that smooth the expert's side of f (replay estimation). 0: demonstrations alone."""
    sac: SAC = eqx.field(default=DEFAULT_SAC, converter=adjustable(DEFAULT_SAC))
    """RL player for continuous actions."""
    balanced: bool = eqx.field(static=True, default=True)
    """Draw half of each minibatch from the demonstrations. Otherwise draw uniformly from all steps."""
    clone_steps: int = eqx.field(static=True, default=10_000)
    """Gradient steps of behavioral cloning before the first update, with SAC. 0: the policy starts untrained."""
    average_rounds: float = 5.0
    """Average the returned policy's weights over this many rounds (0: off)."""
    deterministic_share: float | None = 0.25
    """Share of the episodes in which the learner acts deterministically, as the returned policy does. None: 0."""
    obs_scaling: Scaling = eqx.field(static=True, default="standardize")
    """Scaling of observations: of each number (standardize), by one number (scale), as in the paper, or none."""

    def __check_init__(self) -> None:
        check_choice(("indicator", "gaussian", "features"), kernel=self.kernel)
        check_choice(("mean", "one"), absorbing_kernel=self.absorbing_kernel)
        check_whole(1, points=self.points, features=self.features)
        check_positive(bandwidth=self.bandwidth)
        check_not_negative(recency=self.recency)
        if self.kernel != "indicator" and self.buffer_size is not None:  # f needs the round before in the buffer
            check_whole(2 * self.schedule.updates * self.schedule.update_steps, buffer_size=self.buffer_size)
        for name, unused, why in (
            ("start_share", 0, "whose labels do not tell how an episode began"),
            ("match", "obs-act", "which labels whole steps"),
            ("replays", 0, "which labels demonstrated steps"),
        ):
            value = getattr(self, name)
            if self.kernel == "indicator" and value != unused:
                raise SettingError(
                    f"{name} is {value!r} and kernel is 'indicator', {why}: choose another kernel, or {name}={unused!r}"
                )

    def next_moments(  # line 3
        self, state: RewardState, data: RoundData, counts: Counts, key: Key[Array, ""]
    ) -> RewardMoments:
        if self.kernel == "indicator":
            episodes = jnp.maximum(counts.earlier.episodes, 1)
            return Labels(1 / counts.expert.episodes, -1 / episodes, jnp.asarray(data.round, jnp.int32))
        if self.kernel == "features":
            return self._feature_moments(state, data, counts)
        return self._point_moments(state, data, counts, key)

    def initial_moments(self, kernel: GaussianKernel, key: Key[Array, ""]) -> RewardMoments:
        if self.kernel == "indicator":
            return Labels(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))
        if self.kernel == "features":
            return FeatureMoments(kernel, jnp.zeros(()), jnp.zeros(self.features), Sums.zero(self.features))
        size = kernel.directions.shape[0]
        return PointMoments(kernel, jnp.zeros(()), jnp.zeros((2 * self.points, size)), jnp.zeros(2 * self.points))

    def kernel_of_f(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> GaussianKernel:
        return GaussianKernel.fit(key, spec, demonstrations, self.features, self.bandwidth, self.match)

    def _feature_moments(self, state: RewardState, data: RoundData, counts: Counts) -> FeatureMoments:
        assert data.replay is not None
        assert isinstance(state.moments, FeatureMoments)
        size = self.schedule.round_steps
        rows = ((data.round - 1) * size + jnp.arange(size)) % self.schedule.capacity
        last_round = take(data.replay.steps, rows)
        ordinary = None if data.replay.ordinary is None else data.replay.ordinary[rows]
        learner = state.moments.learner.with_round(
            state.kernel, last_round, state.horizon, data.round, self.recency, ordinary
        )
        expert = mean_features(state.kernel, data.demonstrations)
        weights = (1 - counts.expert.absorbing_share) * expert - learner.mean
        absorbing = counts.expert.absorbing_share - learner.counts.absorbing_share
        # In the first round the learner's share is unknown, not 0.
        absorbing = jnp.where(learner.counts.steps > 0, absorbing, 0.0)
        absorbing, weights = self._scaled(absorbing, weights, jnp.dot, expert)
        return FeatureMoments(state.kernel, absorbing, weights, learner)

    def _point_moments(self, state: RewardState, data: RoundData, counts: Counts, key: Key[Array, ""]) -> PointMoments:
        assert data.replay is not None
        learner_key, expert_key = jax.random.split(key)
        rows = learner_rows(data.replay)
        learner = take(data.replay.steps, rows.sample(learner_key, (self.points,)))
        expert = expert_steps(data.demonstrations, state.expert, expert_key, (self.points,))
        points = jnp.concatenate([state.kernel.points(steps) for steps in (expert, learner)])
        earlier = ((learner.round < data.round) & (rows.size > 0)).astype(jnp.float32)
        learner_weights = -(1 - counts.earlier.absorbing_share) * earlier / jnp.maximum(earlier.sum(), 1)
        expert_weights = jnp.full(self.points, (1 - counts.expert.absorbing_share) / self.points)
        weights = jnp.concatenate([expert_weights, learner_weights])
        absorbing = counts.expert.absorbing_share - counts.earlier.absorbing_share
        absorbing = jnp.where(counts.earlier.steps > 0, absorbing, 0.0)  # in the first round it is unknown, not 0
        uniform = jnp.where(jnp.arange(2 * self.points) < self.points, 1 / self.points, 0.0)

        def inner(a: Array, b: Array) -> Float[Array, ""]:
            return a @ state.kernel.weighted_sums(points, points, b)

        absorbing, weights = self._scaled(absorbing, weights, inner, uniform)
        return PointMoments(state.kernel, absorbing, points, weights)

    def _scaled(
        self, absorbing: Float[Array, ""], weights: Array, inner: Inner, expert: Array
    ) -> tuple[Float[Array, ""], Array]:
        """−f in the absorbing state, where `absorbing` is the difference of the shares of time, and its weights."""
        absorbing = absorbing if self.absorbing else jnp.zeros(())
        return scaled(absorbing, weights, inner, expert, self.absorbing_kernel == "mean", self.unit_norm)
