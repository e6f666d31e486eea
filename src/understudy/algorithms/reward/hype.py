"""HyPE: moment matching whose RL player also learns from the expert's steps (hybrid reinforcement learning).

It matches reward moments and solves the dual game: the moment function f, a network, takes a few gradient steps once a
round, and the policy responds by RL. The payoff is an integral probability metric, not GAIL's logistic loss,

    U(f) = E_π f − E_E f

and a gradient penalty keeps f smooth. In the loop of `matching`:

    1. for round k:
    2.     `discriminator_steps` times, on a minibatch of the last round's steps and one of D_E:
               f ← f + η ∇ [ U(f) − w_g E (‖∇f‖ − t)² ]
    3.     for each update: collect steps, D_π ← D_π ∪ D', then improve π on minibatches of which half are steps of D_E
           and half are steps of D_π, both with the reward −f of now, clipped to ± `clip`

An RL player that starts from nothing has to find the expert's states by exploration. Here half of its minibatch is
already there, so the policy only has to be as good as the expert, not the best one anywhere. SQIL's minibatches are the
same, with fixed rewards.

f, its gradient penalty and its absorbing state are in `critic`, which FILTER shares.

Reference: Ren, Swamy, Wu, Bagnell and Choudhury, "Hybrid Inverse Reinforcement Learning" (2024), the model-free
algorithm. SAC has the settings of its released runs, which are those of Table 10 of "Of Moments and Matching"; the
learning rate of f is theirs too.

Deviations: absorbing states are ours. f moves by Adam with a constant learning rate, several times every 1,250
environment steps; in the released runs by one step of optimistic Adam every 10,000, with a decreasing learning rate and
minibatches of 4,096. f sees the steps of the last round, which the policy collected while it changed and explored;
there it sees new episodes of the last policy. The expert's share of a minibatch is a half; there it changes during
training.
"""

from typing import Any, ClassVar

import equinox as eqx

from understudy.algorithms.reward.critic import QUICK_CRITIC, SMALL_CRITIC, CriticMatching
from understudy.algorithms.reward.defaults import STOP_REASONS
from understudy.game import QUICK, Card


class HyPE(CriticMatching):
    """Hybrid inverse RL: moment matching, with RL on equally many steps of learner and expert."""

    card: ClassVar[Card] = Card(
        name="hype",
        title="HyPE",
        moments="reward",
        solver="dual",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, between updates",
        reference="Ren et al. 2024",
        next_states=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    presets: ClassVar[dict[str, dict[str, Any]]] = {QUICK: QUICK_CRITIC}
    small: ClassVar[dict[str, Any]] = SMALL_CRITIC

    balanced: bool = eqx.field(static=True, default=True)
    """Draw half of each minibatch from the demonstrations. Otherwise draw uniformly from all steps."""
