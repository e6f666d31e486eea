"""AdRIL: adversarial reward-moment imitation learning, a moment function in closed form and a policy by RL.

It matches reward moments and solves the game from the dual side: the moment function is the running mean of functional
gradients in the space of a kernel K, the policy best-responds by maximum-entropy RL. Nothing but the policy is trained
by gradients. Algorithm 2:

    Input: demonstrations D_E, policy class Π, environment, kernel K, threshold δ
    1. f = 0, D_π = {}
    2. while the payoff is above δ, for round k:
    3.     f ← E_{τ ~ D_π} [Σ_t K(s_t a_t, ·)] − E_{τ ~ D_E} [Σ_t K(s_t a_t, ·)]
    4.     π, D' ← MaxEntRL(environment, r = −f)
    5.     D_π ← D_π ∪ D'

With a Gaussian kernel k over (s, a), where means are over steps,

    −f(x) = (1 − ρ_E) E_{D_E} k(x_E, x) − (1 − ρ_π) E_{D_π} k(x_π, x)

with ρ the share of its time that a side spends in the absorbing state, is the witness of the distance between both
sides (the maximum mean discrepancy): a smooth function, which says of any step whether it is rather like the expert's
or rather like what the learner has done so far, before the learner has taken it. By random features, where k(x, y) is
about φ(x) · φ(y) (`kernels`), it is one vector that all steps ever taken are in:

    −f(x) = w · φ(x),        w = (1 − ρ_E) E_{D_E} φ − (1 − ρ_π) E_{D_π} φ

That is the default (docs/stability.md); kernel="gaussian" is exact, on a sample of `points` steps of each side. Line 4
starts cool, α at 0.01 and not at 1, so that what entropy is worth at first, α H / (1 − γ), does not drown what f is
worth, at most ‖f‖ / (1 − γ). A best response shifts as f does: what is handed over is a moving mean of the policies
that played, π̄ ← π̄ + ν (π − π̄).

With the indicator kernel of the paper's runs, where no state is seen twice, −f is 1/N_E on a demonstrated step (N_E
trajectories), −1/N_π on a step of an earlier round (N_π trajectories so far) and 0 on the steps of this round: labels,
put on when steps are sampled. What they mean for a step that is in no replay is left to the critic. The absorbing state
is the one that is seen more than once, so the labels of its samples are averaged.

Reference: Swamy, Choudhury, Bagnell and Wu, "Of Moments and Matching" (2021), section 6.2, Table 10 and the derivation
in the supplement. The RL player is soft actor-critic, or soft Q-learning where actions are discrete.

Deviations: MaxEntRL goes on from where it was, some steps and gradient steps a round, as in the paper's runs. Stopping
and selection go by a Gaussian-kernel payoff on held-out demonstrations (`matching`), since that of the indicator kernel
is a constant. With Gaussian kernels means are over steps, not sums over a trajectory: f is T times smaller. The paper's
runs have the indicator kernel, α = 1 at the start, and hand over the last policy; in its theory the policies' mean is
over all rounds, and not of their weights. Absorbing states are ours, with a reward of 0 until the learner has played a
round where the kernel is Gaussian, and time limits are not taken for ends. The preset `paper` has the kernel, the start
and the policy of the paper's runs, no absorbing states, and time limits for ends; and it does what the released runs
did at the start of each round: it resets the environment, takes 100 random actions and restarts the learning rate's
schedule. (There the steps of the round before also had reward 0, and the learning rate of a round's last turn was
slightly below 0; here it is 0.)
"""

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from understudy.algorithms.reward.matching import FEATURES, STOP_REASONS, RewardMatching, RewardState
from understudy.algorithms.reward.moments import Labels, Moments, Sides
from understudy.core.errors import check_choice, check_whole
from understudy.core.types import RoundData, Transition
from understudy.game import Card, adjustable
from understudy.game.kernels import GaussianKernel
from understudy.rl.sac import SAC

Kernel = Literal["indicator", "gaussian", "features"]
COOL = SAC(initial_temperature=0.01)
PAPER = {
    "absorbing": False,
    "truncation_is_terminal": True,
    "reset_each_round": True,
    "random_each_round": True,
    "restart_lr_schedule": True,
}
"""What the released runs did beside Table 10."""
LABELS = {**PAPER, "kernel": "indicator", "sac": SAC(), "average_rounds": 0.0}
"""The same with what AdRIL alone has: the kernel, SAC as it comes, and the last policy."""


class AdRIL(RewardMatching):
    """Adversarial reward-moment imitation: rewards from a kernel, a policy from RL."""

    card: ClassVar[Card] = Card(
        name="adril",
        title="AdRIL",
        moments="reward",
        solver="dual",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, while it learns",
        reference="Swamy et al. 2021",
        next_states=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": LABELS, "paper-balanced": {**LABELS, "balanced": True}}

    kernel: Kernel = eqx.field(static=True, default="features")
    """features: Gaussian, by random features, over all steps; gaussian: exact, on some; indicator: labels."""
    points: int = eqx.field(static=True, default=1024)
    """Steps of each side that the exact Gaussian kernel looks at."""
    sac: SAC = eqx.field(default=COOL, converter=adjustable(COOL))
    """The policy player, for continuous actions."""
    average_rounds: float = 5.0
    """Rounds that the policy that is handed over is a moving mean of; 0: it is the last."""

    def __check_init__(self) -> None:
        check_choice(("indicator", "gaussian", "features"), kernel=self.kernel)
        check_whole(1, points=self.points)
        if self.kernel != "indicator" and self.buffer_size is not None:
            # f is of earlier rounds: where none is remembered, it would not know what became of them.
            check_whole(2 * self.schedule.updates * self.schedule.update_steps, buffer_size=self.buffer_size)

    def moves(self, state: RewardState, data: RoundData, sides: Sides, key: Key[Array, ""]) -> Moments:  # line 3
        if self.kernel == "indicator":
            played = jnp.maximum(sides.earlier.episodes, 1)
            return Labels(1 / sides.expert.episodes, -1 / played, jnp.asarray(data.round, jnp.int32))
        if self.kernel == "features":
            return self._by_features(state, data, sides)
        return self._by_points(state, data, sides, key)

    def first(self, kernel: GaussianKernel, key: Key[Array, ""]) -> Moments:
        if self.kernel == "indicator":
            return Labels(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))
        if self.kernel == "features":
            return ByFeatures(kernel, jnp.zeros(FEATURES))
        size = kernel.directions.shape[0]
        none = jnp.zeros((2 * self.points, size))
        return ByPoints(kernel, none, jnp.zeros(2 * self.points))

    def _by_features(self, state: RewardState, data: RoundData, sides: Sides) -> "ByFeatures":
        shown = state.kernel.features(state.kernel.points(data.demonstrations.steps))
        expert = jnp.where(data.demonstrations.mask[:, None], shown, 0).sum(0) / data.demonstrations.size
        # Of all earlier steps, those that the history has let go of included; how many of them rest is of those it has.
        learner = state.tally.before / jnp.maximum(data.round * self.schedule.updates * self.schedule.update_steps, 1)
        alive, they_live = (1 - side.absorbing_share for side in (sides.earlier, sides.expert))
        return ByFeatures(state.kernel, they_live * expert - alive * learner)

    def _by_points(self, state: RewardState, data: RoundData, sides: Sides, key: Key[Array, ""]) -> "ByPoints":
        assert data.replay is not None
        own_key, expert_key = jax.random.split(key)
        place = jax.random.randint(own_key, (self.points,), 0, data.replay.size)
        played = jax.tree.map(lambda x: x[place], data.replay.steps)
        shown = data.demonstrations.sample(expert_key, (self.points,))
        points = jnp.concatenate([state.kernel.points(steps) for steps in (shown, played)])
        earlier = (played.round < data.round).astype(jnp.float32)
        learner = -(1 - sides.earlier.absorbing_share) * earlier / jnp.maximum(earlier.sum(), 1)
        expert = jnp.full(self.points, (1 - sides.expert.absorbing_share) / self.points)
        return ByPoints(state.kernel, points, jnp.concatenate([expert, learner]))


class _ByKernel(Moments):
    """Abstract: −f of a Gaussian kernel. The absorbing state is far from all others and like itself."""

    def at_rest(self, sides: Sides, balanced: bool) -> Float[Array, ""]:
        # Before the learner has played a round, its share is not 0 but unknown.
        apart = sides.expert.absorbing_share - sides.earlier.absorbing_share
        return jnp.where(sides.earlier.steps > 0, apart, 0.0)


class ByFeatures(_ByKernel):
    """−f(x) = w · φ(x)."""

    kernel: GaussianKernel
    weights: Float[Array, " D"]

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        return self.kernel.features(self.kernel.points(steps)) @ self.weights

    def bound(self) -> Float[Array, ""]:
        return jnp.sqrt(2.0) * jnp.linalg.norm(self.weights)  # ‖φ‖ ≤ √2


class ByPoints(_ByKernel):
    """−f(x) = Σ_j w_j k(x_j, x)."""

    kernel: GaussianKernel
    points: Float[Array, "m d"]
    weights: Float[Array, " m"]

    def reward(self, steps: Transition) -> Float[Array, " n"]:
        return self.kernel(self.kernel.points(steps), self.points) @ self.weights

    def bound(self) -> Float[Array, ""]:
        above, below = jnp.maximum(self.weights, 0).sum(), jnp.maximum(-self.weights, 0).sum()
        return jnp.maximum(above, below)  # 0 ≤ k ≤ 1
