"""The paper's theory on finite MDPs, computed exactly in float64: games, gaps and bounds, without sampling.

mdp, compiling   finite MDPs; float64 and batches
planning         values, occupancies, responses, mixtures       section 3
examples         LOOP, CLIFF, UNICYCLE, TREE                    sections 4.1, 7.2, supplement
moments          classes of moment functions                    section 3.2
games            U1, U2, U3 and the policy's responses          section 3.3
bounds           upper bounds, learners of the lower bounds     section 4
recoverability   H, classification errors                       section 4.5
solvers          certified equilibria, primal and dual          section 5
classical        MaxEnt IOC, MMP, LEARCH, Abbeel and Ng         section 7.1
daequil          the two on-Q losses and their assumptions      supplement
ifail            games on next states, forward in time          table 2
mixed, psdp      mixed moments, reward-plus-Q, PSDP             supplement
survival         early termination and the sign of a reward     section 6.2
resets           search with and without expert resets          section 7.2

Imports core, policies and game. The names below are the public ones; import others from their modules.
"""

from understudy.tabular.compiling import exact
from understudy.tabular.games import Game
from understudy.tabular.mdp import FiniteMDP, stack
from understudy.tabular.moments import induced, kernel_ball, q_box, reward_box, span
from understudy.tabular.planning import (
    advantages,
    best_response,
    causal_entropy,
    collapse,
    imitation_gap,
    mixture,
    occupancy,
    performance,
    q_values,
    samples,
    soft_response,
    uniform,
    values,
)
from understudy.tabular.solvers import Solution, solve
from understudy.tabular.survival import stay_or_end, survival_game, survival_table

__all__ = [
    "FiniteMDP",
    "Game",
    "Solution",
    "advantages",
    "best_response",
    "causal_entropy",
    "collapse",
    "exact",
    "imitation_gap",
    "induced",
    "kernel_ball",
    "mixture",
    "occupancy",
    "performance",
    "q_box",
    "q_values",
    "reward_box",
    "samples",
    "soft_response",
    "solve",
    "span",
    "stack",
    "stay_or_end",
    "survival_game",
    "survival_table",
    "uniform",
    "values",
]
