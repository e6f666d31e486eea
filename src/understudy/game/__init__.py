"""The game that an imitation algorithm plays: payoff × players × solver, and the `Algorithm` class itself.

Imports core and policies. Public: `Algorithm`, `Card` and their companions below. Building blocks, by module:
`payoffs` (the three games), `critics` and `kernels` (moment functions), `features` and `costs` (functions of the user),
`losses` (supervised losses), `players` (how a side moves), `solvers` (primal and dual rounds), `sampling`
(minibatches), `stopping`, `best` (best policy so far), `schedule` (collecting while learning), `gating` (calls of a
gate), `asking` (states at which the expert is queried), `user_code` (errors of user functions).
"""

from understudy.game.algorithm import (
    BOUNDS,
    DEFAULT,
    INSTEAD,
    NEEDS,
    QUICK,
    Algorithm,
    Card,
    Moments,
    Need,
    adjustable,
    adjusted,
)
from understudy.game.solvers import Payoff, Side, dual, new_side, primal

__all__ = [
    "BOUNDS",
    "DEFAULT",
    "INSTEAD",
    "NEEDS",
    "QUICK",
    "Algorithm",
    "Card",
    "Moments",
    "Need",
    "Payoff",
    "Side",
    "adjustable",
    "adjusted",
    "dual",
    "new_side",
    "primal",
]
