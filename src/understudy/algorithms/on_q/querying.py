"""Settings of on-Q learners that query the expert after a round's episodes and train on all answers so far.

Round 0 trains on the demonstrations alone. Each later round collects episodes of the learner, queries the expert at
their states, or at some of them (`game.asking`), and adds the answers to the aggregated data.
"""

from typing import Any, ClassVar

import equinox as eqx

from understudy.core.errors import check_layers, check_not_negative, check_positive, check_whole
from understudy.game import Algorithm
from understudy.game.asking import Ask, check_asking

QUICK_SIZES: dict[str, Any] = {"rounds": 5, "gradient_steps": 1_000, "episodes_per_round": 5}
"""The preset "quick"."""
SMALL: dict[str, Any] = {
    "rounds": 2,
    "gradient_steps": 2,
    "batch_size": 8,
    "hidden": (8,),
    "episodes_per_round": 2,
}
"""Settings for the protocol tests."""


class Querying(Algorithm):
    """Abstract base class of on-Q learners that query the expert when a round's episodes have ended."""

    small: ClassVar[dict[str, Any]] = SMALL

    lr: float = 3e-4
    """Learning rate of Adam."""
    weight_decay: float = 0.0
    """Decoupled weight decay of the policy (AdamW): the regulariser of follow the regularised leader."""
    batch_size: int = eqx.field(static=True, default=32)
    """Minibatch size."""
    rounds: int = eqx.field(static=True, default=11)
    """Rounds. The first trains on the demonstrations alone."""
    episodes_per_round: int = eqx.field(static=True, default=10)
    """Episodes collected per round."""
    ask: Ask = eqx.field(static=True, default="all")
    """States at which the expert is queried. all: every one; spread: at random; novel: the least like those before."""
    queries_per_round: int | None = eqx.field(static=True, default=None)
    """Queries per round, at most. None: no limit."""
    gradient_steps: int = eqx.field(static=True, default=2_000)
    """Gradient steps of the policy per round."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64))
    """Hidden layers of the policy."""

    def __check_init__(self) -> None:
        check_positive(lr=self.lr)
        check_not_negative(weight_decay=self.weight_decay)
        check_whole(1, batch_size=self.batch_size, rounds=self.rounds, gradient_steps=self.gradient_steps)
        check_whole(1, episodes_per_round=self.episodes_per_round)
        check_layers(hidden=self.hidden)
        check_asking(self.ask, self.queries_per_round)
