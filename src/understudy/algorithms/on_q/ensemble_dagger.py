"""EnsembleDAgger: the expert acts, and answers, where an ensemble of policies is in doubt.

It matches on-Q moments, as DAgger does, with fewer answers: where the members agree nobody is asked. Follow the leader
over the aggregated data, with a gate in the episodes:

    Input: queryable expert π_E, demonstrations D_E, threshold χ
    1. D ← D_E, π_1, ..., π_K ← clones of bootstraps of D             (`on_q.gated`)
    2. for each round:
    3.     roll out: π = mean of π_k acts where its doubt d(s) is at most χ, elsewhere π_E acts
    4.     D ← D ∪ {(s, π_E(s))} where π_E acted
    5.     continue training π_1, ..., π_K on bootstraps of D

χ is a setting in units that all tasks share: d(s) is the members' standard deviation of actions in [-1, 1], or of
probabilities. A quantile of the doubts in D would need no units, but it asks at a fixed share of the steps even when
the members agree everywhere; with a fixed χ the questions end by themselves.

Reference: Menda, Driggs-Campbell and Kochenderfer, "EnsembleDAgger: A Bayesian Approach to Safe Imitation Learning"
(2019). "Of Moments and Matching" does not run it, so no settings of this module are that paper's.

Deviations: the paper's rule has a second half, that the learner's action is close to the expert's. To compare them the
expert has to be asked first, at every step; here the doubt alone decides, so only doubtful states cost an answer. In
the paper the expert labels every visited state, and the gate decides who acts. Members are trained on Poisson
bootstraps and continue from round to round. The mean of discrete actions is that of the probabilities.
"""

from typing import Any, ClassVar

from jaxtyping import Array, Bool, Key

from understudy.algorithms.on_q.gated import SMALL, Cloned, GatedCloning, expert_share
from understudy.algorithms.on_q.querying import QUICK_SIZES
from understudy.core.errors import check_not_negative
from understudy.core.types import Dataset, Info, RoundData, Spec
from understudy.game import QUICK, Card
from understudy.policies import Policy


class EnsembleDAgger(GatedCloning):
    """DAgger with an ensemble: the expert acts and answers only where the members disagree."""

    card: ClassVar[Card] = Card(
        name="ensemble_dagger",
        title="EnsembleDAgger",
        moments="on-Q",
        solver="primal",
        needs=("demonstrations", "environment", "expert"),
        actions=("continuous", "discrete"),
        collects="episodes, in which the expert acts and answers where the ensemble is in doubt",
        reference="Menda et al. 2019",
        fixed=True,
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {QUICK: QUICK_SIZES}
    small: ClassVar[dict[str, Any]] = SMALL

    doubt: float = 0.1
    """χ: the expert acts where the members' standard deviation is above this. Actions are in [-1, 1]."""

    def __check_init__(self) -> None:
        check_not_negative(doubt=self.doubt)

    def init(self, key: Key[Array, ""], spec: Spec, demonstrations: Dataset) -> Cloned:
        return self.new_ensemble(key, spec, demonstrations)

    def update(self, state: Cloned, data: RoundData, key: Key[Array, ""]) -> tuple[Cloned, Info]:
        cloned, loss = self.fit(state, data, key)  # lines 1, 4 and 5
        return cloned, Info({"loss": loss, "expert_share": expert_share(data)})

    def policy(self, state: Cloned) -> Policy:
        return state.policy

    def gate(
        self, state: Cloned, carry: Any, obs: Array, act: Array, key: Key[Array, ""]
    ) -> tuple[Any, Bool[Array, ""], Bool[Array, ""]]:
        """The expert acts and answers where the doubt is above χ (line 3)."""
        doubtful = state.doubt(obs) > self.doubt
        return carry, doubtful, doubtful
