"""SQIL: soft Q imitation learning, AdRIL with a moment function that never moves.

It matches reward moments against one fixed f: reward 1 on demonstrated steps and 0 on the learner's own, whatever it
does. In the loop of `matching`, line 2 returns the same f every round:

    2.     f(s, a) ← −1 on D_E, 0 elsewhere

A learner that has matched the expert is still paid less for its own steps than for the expert's, so nothing holds it
there: the guarantee is lost, and early stopping is needed (section 6.2). Half of a minibatch comes from each side.

Reference: Reddy, Dragan and Levine, "SQIL: Imitation Learning via Reinforcement Learning with Sparse Rewards" (2020),
with the settings of Table 9 of the paper.

Deviations: SAC in place of soft Q-learning where actions are continuous, as in the paper. Absorbing states are ours;
the preset `paper` has none, and does every 25,000 steps what the released runs did (see `adril`).
"""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Key

from understudy.algorithms.reward.adril import PAPER
from understudy.algorithms.reward.matching import STOP_REASONS, RewardMatching, RewardState
from understudy.algorithms.reward.moments import Labels, Sides
from understudy.core.types import RoundData
from understudy.game import Card
from understudy.game.kernels import GaussianKernel


class SQIL(RewardMatching):
    """Reward 1 for the expert's steps, 0 for one's own: AdRIL whose f never moves."""

    card: ClassVar[Card] = Card(
        name="sqil",
        title="SQIL",
        moments="reward",
        solver="dual",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, while it learns",
        reference="Reddy et al. 2020",
        next_states=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {**PAPER, "rounds": 20, "round_steps": 25_000}}

    balanced: bool = eqx.field(static=True, default=True)
    """Half of a minibatch from the demonstrations; else drawn from all steps alike."""

    def moves(self, state: RewardState, data: RoundData, sides: Sides, key: Key[Array, ""]) -> Labels:
        return self.first(state.kernel, key)  # line 2: it never does

    def first(self, kernel: GaussianKernel, key: Key[Array, ""]) -> Labels:
        return Labels(expert=jnp.ones(()), earlier=jnp.zeros(()), since=jnp.zeros((), jnp.int32))
