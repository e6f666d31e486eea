"""FILTER: moment matching with episodes that begin at the expert's states, which need not be found by exploration.

It matches reward moments and solves the dual game, with the f of HyPE (`critic`). A share of the learner's episodes is
set to a demonstrated step and continues from its time on. In the loop of `matching`:

    1. for round k:
    2.     f ← f + η ∇ [ E_π f − E_E f − penalty ],  π on episodes that begin as the environment begins them
    3.     for each update: collect steps, and in between, at the end of each episode, with probability α
               draw (t, s_t) from D_E, set the environment to s_t and continue at time t          (`start_share`)
           D_π ← D_π ∪ D', then improve π on minibatches of all steps, with the reward −f of now
    4.     π̄ ← π̄ + ν (π − π̄)

Without line 3's draw, the best response to f has to find the states where f is low by exploration. That can take
|A|^T episodes (TREE, `tabular.resets`). The expert has been there: from its state at time t only the steps after t are
left to find, and a policy that is good from all of its states is good from the first. Then the search costs a number
of episodes that is polynomial in T. What is lost is a guarantee: a policy that is good where the expert goes may make
errors that lead elsewhere, and these compound. With α between 0 and 1 it also trains where it goes itself.

Line 2 has the two forms of the source's runs:

    preset       f sees the learner's steps of     the game
    default      the last round                    f responds to the newest policy, FILTER(BR)
    no-regret    all rounds before                 f responds to the mixture of all policies, FILTER(NR)

f must compare the visits of π itself with the expert's. So the steps of episodes that begin at demonstrated ones are
left out of line 2, of the counts of absorbing states, of the logged returns and of the payoff. The RL player learns
from them. HyPE puts the expert's steps into the minibatches instead: it needs no settable environment, but critics
learn only what followed the expert's own actions there.

Reference: Swamy, Wu, Choudhury, Bagnell and Wu, "Inverse Reinforcement Learning without Reinforcement Learning" (2023).
α is a half and the SAC settings are those of Table 10 of "Of Moments and Matching", as in its released runs.

Deviations: absorbing states are ours. f moves by Adam with a constant learning rate, several times every 1,250
environment steps, on steps that the policy collected while it changed and explored; in the released runs by one step of
optimistic Adam every 5,000, with a decreasing learning rate, on 4 new episodes of the last policy, or on all such
episodes so far. There the policy's networks also move by optimistic Adam, and a tenth of the actions are random.
The RL player also learns from the demonstrated steps, in proportion to their number, with the rewards of f.
In the source's theory every episode begins at the expert's states: MMDP goes backward in time (PSDP, exact in
`tabular.psdp`), NRMM runs a no-regret policy. This is the practical algorithm of the source, without their guarantees.
"""

from typing import Any, ClassVar

from understudy.algorithms.reward.critic import QUICK_CRITIC, SMALL_CRITIC, CriticMatching
from understudy.algorithms.reward.defaults import STOP_REASONS
from understudy.game import QUICK, Card


class FILTER(CriticMatching):
    """Moment matching with expert resets: a share of the episodes begins at demonstrated states."""

    card: ClassVar[Card] = Card(
        name="filter",
        title="FILTER",
        moments="reward",
        solver="dual",
        needs=("demonstrations", "environment"),
        actions=("continuous", "discrete"),
        collects="steps of the learner, between updates",
        reference="Swamy et al. 2023",
        next_states=True,
    )
    stop_reasons: ClassVar[tuple[str, ...]] = STOP_REASONS
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "no-regret": {"f_rounds": "all"},
        QUICK: QUICK_CRITIC,
    }
    small: ClassVar[dict[str, Any]] = SMALL_CRITIC

    start_share: float = 0.5
    """Share of the episodes that begin at a demonstrated step, α. The environment must have `set_state` if above 0."""
