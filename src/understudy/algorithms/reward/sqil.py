"""SQIL: soft Q imitation learning, AdRIL with a constant moment function.

It matches reward moments with a fixed f: reward 1 on demonstrated steps and 0 on the learner's steps. In the loop of
`matching`, line 2 returns the same f in every round:

    2.     f(s, a) ← −1 on D_E, 0 elsewhere

A learner that has matched the expert still gets a lower reward on its own steps than on the expert's, so it does not
stay there. SQIL has no guarantee and needs early stopping (section 6.2). Half of each minibatch comes from each side.

Reference: Reddy, Dragan and Levine, "SQIL: Imitation Learning via Reinforcement Learning with Sparse Rewards" (2020),
with the settings of Table 9 of the paper.

The default differs from the preset `paper`, which has the settings of Table 9 and of the released runs, in

    setting                   default       paper
    absorbing                 True          False          absorbing states are ours
    truncation_is_terminal    False         True           this and the others: the released runs, not the text
    reset_each_round          False         True
    random_each_round         False         True           100 random exploration steps in each round
    restart_lr_schedule       False         True
    obs_scaling               scale         none           results do not depend on the units of observations
    rounds × round_steps      400 × 1,250   20 × 25,000

Deviations: SAC replaces soft Q-learning for continuous actions, as in the paper.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from understudy.algorithms.reward.adril import RELEASED_SETTINGS
from understudy.algorithms.reward.defaults import QUICK_PLAYERS, SMALL, STOP_REASONS
from understudy.algorithms.reward.matching import RewardMatching, RewardState
from understudy.algorithms.reward.moments import Counts, Labels
from understudy.core.types import RoundData
from understudy.game import QUICK, Card
from understudy.game.kernels import GaussianKernel


class SQIL(RewardMatching):
    """Soft Q imitation learning: RL with reward 1 on the expert's steps and 0 on the learner's."""

    card: ClassVar[Card] = Card(
        name="sqil",
        title="SQIL",
        moments="reward",
        solver="dual",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, between updates",
        reference="Reddy et al. 2020",
        next_states=True,
        fixed=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {**RELEASED_SETTINGS, "rounds": 20, "round_steps": 25_000},
        QUICK: {**QUICK_PLAYERS, "rounds": 10},
    }
    small: ClassVar[dict[str, Any]] = SMALL

    balanced: bool = eqx.field(static=True, default=True)
    """Draw half of each minibatch from the demonstrations. Otherwise draw uniformly from all steps."""

    def next_moments(self, state: RewardState, data: RoundData, counts: Counts, key: Key[Array, ""]) -> Labels:
        return self.initial_moments(state.kernel, key)  # line 2

    def initial_moments(self, kernel: GaussianKernel, key: Key[Array, ""]) -> Labels:
        return Labels(expert=jnp.ones(()), earlier=jnp.zeros(()), since=jnp.zeros((), jnp.int32))
