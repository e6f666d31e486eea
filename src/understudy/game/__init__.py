"""The game that an imitation algorithm plays: its payoffs, its players, and what an algorithm is.

Imports core and policies. Public: `Algorithm`, `Card`, and what algorithms are built from.
"""

from understudy.game.algorithm import (
    BOUNDS,
    DEFAULT,
    NEEDS,
    Algorithm,
    Card,
    Moments,
    Need,
    adjustable,
    adjusted,
)
from understudy.game.solvers import Payoff, Play, dual, primal

__all__ = [
    "BOUNDS",
    "DEFAULT",
    "NEEDS",
    "Algorithm",
    "Card",
    "Moments",
    "Need",
    "Payoff",
    "Play",
    "adjustable",
    "adjusted",
    "dual",
    "primal",
]
