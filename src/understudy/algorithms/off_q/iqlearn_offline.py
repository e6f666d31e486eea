"""IQ-Learn from demonstrations alone: inverse soft Q-learning in the demonstrated states.

It matches off-Q moments: Q compares the expert's action with the policy's in demonstrated states, as AdVIL's f does,
and its regulariser alone knows where they lead. A soft Q-function determines its policy, π ∝ exp(Q/α), and the reward
that the policy is optimal for, r = Q(s, a) − γ V(s'). With all steps from the expert (μ = D_E) the objective of
`rl.inverse_q` is

    max_Q  E_{D_E} [ Q(s, a) − V(s) − 1/(4β) r² ]

For discrete actions Q(s, a) − V(s) = α log π(a | s). So this is α times the log-likelihood of behavioral cloning, with
a regulariser that asks for small rewards along the expert's episodes.

    Input: demonstrations D_E with next states
    1. for each gradient step:
    2.     draw (s, a, s') ~ D_E
    3.     Q ← Q + η ∇_Q [ the objective ]; with continuous actions, π ← π − η ∇ E [ α log π(x | s) − Q(s, x) ]

The value after a terminal step is 0. In the absorbing state the expert and the policy do the same, so only the
regulariser would count there, and it asks for the reward 0. A last step without a recorded next state is left out.

Reference: Garg, Chakraborty, Cundy, Song and Ermon, "IQ-Learn: Inverse soft-Q Learning for Imitation" (2021), the
offline form with the χ² divergence.

Deviations: the value of the next state comes from target networks, without a gradient (`target_networks`). The source
has a learning rate for the policy of its own and settings for each task; here all networks share one learning rate.
"""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from understudy.core.errors import check_kind, check_positive, check_whole
from understudy.core.types import Dataset, Info, RoundData, Spec
from understudy.game import QUICK, Algorithm, Card, adjustable
from understudy.game.sampling import Rows, take
from understudy.policies import Normalized, Policy
from understudy.policies.normalization import Normalization, Scaling, check_scaling
from understudy.rl.base import Batch, Experience, PlayerState, make_batch
from understudy.rl.inverse_q import InverseQ
from understudy.rl.sac import SAC
from understudy.rl.soft_q import SoftQ

DEFAULT_SAC = SAC(lr=3e-4, lr_schedule="constant", discount=0.99, tau=0.005, temperature=0.01, gradient_steps=500)
DEFAULT_SOFT_Q = SoftQ(lr=3e-4, discount=0.99, tau=0.005, temperature=0.01, gradient_steps=500)


class IQLearnOfflineState(NamedTuple):
    player: PlayerState
    normalization: Normalization
    usable: Rows
    """Demonstrated steps with a known next state."""


class IQLearnOffline(Algorithm):
    """Inverse soft Q-learning from demonstrations alone."""

    card: ClassVar[Card] = Card(
        name="iqlearn_offline",
        title="IQ-Learn, offline",
        moments="off-Q",
        solver="primal",
        needs=("demonstrations",),
        actions=("continuous", "discrete"),
        collects="nothing",
        reference="Garg et al. 2021",
        next_states=True,
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        QUICK: {
            "sac": replace(DEFAULT_SAC, hidden=(64, 64)),
            "soft_q": replace(DEFAULT_SOFT_Q, hidden=(64, 64)),
            "rounds": 20,
        },
    }
    small: ClassVar[dict[str, Any]] = {
        "rounds": 2,
        "batch_size": 8,
        "sac": replace(DEFAULT_SAC, hidden=(8,), gradient_steps=2),
        "soft_q": SoftQ(hidden=(8,), gradient_steps=2, temperature=1.0),  # so high that no probability is 0
    }
    learning: ClassVar[dict[str, Any]] = {
        "sac": SAC(hidden=(32, 32), gradient_steps=300, lr=3e-3, discount=0.0, temperature=0.01),
        "soft_q": SoftQ(hidden=(32, 32), gradient_steps=300, lr=3e-3, discount=0.0),
    }

    regularization: float = 0.5
    """Weight of the χ² regulariser, β: rewards are smaller with a smaller β."""
    target_networks: bool = eqx.field(static=True, default=True)
    """Take the value of the next state from target networks, without a gradient."""
    sac: SAC = eqx.field(default=DEFAULT_SAC, converter=adjustable(DEFAULT_SAC))
    """Networks and policy for continuous actions, and the gradient steps of a round."""
    soft_q: SoftQ = eqx.field(default=DEFAULT_SOFT_Q, converter=adjustable(DEFAULT_SOFT_Q))
    """Networks for discrete actions, and the gradient steps of a round."""
    batch_size: int = eqx.field(static=True, default=256)
    """Minibatch size."""
    rounds: int = eqx.field(static=True, default=100)
    """Training rounds. Metrics are logged once a round."""
    obs_scaling: Scaling = eqx.field(static=True, default="standardize")
    """Scaling of observations: of each number (standardize), by one number (scale), as in the paper, or none."""

    def __check_init__(self) -> None:
        check_positive(regularization=self.regularization)
        check_kind(SAC, sac=self.sac)
        check_kind(SoftQ, soft_q=self.soft_q)
        check_whole(1, batch_size=self.batch_size, rounds=self.rounds)
        check_scaling(self.obs_scaling)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> IQLearnOfflineState:
        normalization = Normalization.fit(spec, demonstrations, self.obs_scaling)
        known = demonstrations.steps.known_next | demonstrations.steps.terminal
        player = self._player(normalization).init(key, spec)
        return IQLearnOfflineState(player, normalization, Rows.where(demonstrations.mask & known))

    def update(
        self, state: IQLearnOfflineState, data: RoundData, key: Key[Array, ""]
    ) -> tuple[IQLearnOfflineState, Info]:
        def sample(k: Key[Array, ""]) -> Batch:
            steps = take(data.demonstrations.steps, state.usable.sample(k, (self.batch_size,)))  # line 2
            return make_batch(state.normalization.encode(steps), jnp.zeros(self.batch_size), False)

        progress = (jnp.asarray(data.round, jnp.float32) + 1) / self.rounds
        player, metrics = self._player(state.normalization).improve(  # lines 1 and 3
            state.player, Experience(sample, None, None), progress, key
        )
        return state._replace(player=player), Info(metrics)

    def policy(self, state: IQLearnOfflineState) -> Policy:
        return Normalized(self._player(state.normalization).policy(state.player), state.normalization)

    def _player(self, normalization: Normalization) -> InverseQ:
        player = self.soft_q if normalization.act_scale is None else self.sac
        return InverseQ(player, self.regularization, 1.0, self.target_networks)
