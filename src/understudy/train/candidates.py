"""Policies of earlier rounds that compete with the last one at the end of training (`train.selection`).

Training is divided into equal parts. Of each part the policy with the lowest score is kept, where a score is the mean
of `Info.score` over about WINDOW rounds: that of a single round is noisy, and the lowest of hundreds would be chance.
Algorithms without scores keep the last policy of each part.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from understudy.core.types import Info, State
from understudy.game import Algorithm

WINDOW = 5
"""Rounds that a score is averaged over."""
PARTS = 3
"""Parts of training, by default, for algorithms with scores."""


class Kept(NamedTuple):
    """The candidates of one run: a policy for each part of training."""

    policies: Any
    """Stacked along the leading axis."""
    scores: Float[Array, " parts"]
    rounds: Int[Array, " parts"]
    """The round after which the policy was kept, from 1; 0: none yet."""
    recent: Float[Array, ""]
    """The mean score of the last rounds."""

    @classmethod
    def init(cls, algorithm: Algorithm, state: State, parts: int) -> "Kept":
        policy = algorithm.policy(state)
        stacked = jax.tree.map(lambda x: jnp.broadcast_to(x, (parts, *jnp.shape(x))), policy)
        return cls(stacked, jnp.zeros(parts), jnp.zeros(parts, jnp.int32), jnp.zeros(()))

    def update(
        self, algorithm: Algorithm, state: State, info: Info, index: Int[Array, ""], valid: Bool[Array, ""]
    ) -> "Kept":
        """With the policy after round `index`, from 0. It is not `valid` if the run has stopped before or diverged."""
        parts = self.rounds.shape[0]
        part = index * parts // algorithm.rounds
        score = jnp.zeros(()) if info.score is None else info.score
        recent = self.recent + (score - self.recent) / jnp.minimum(index + 1, WINDOW)
        better = valid & ((self.rounds[part] == 0) | (recent <= self.scores[part]))

        def keep(old: Array, new: Any) -> Array:
            return old.at[part].set(jnp.where(better, new, old[part]))

        return Kept(
            jax.tree.map(keep, self.policies, algorithm.policy(state)),
            keep(self.scores, recent),
            keep(self.rounds, index + 1),
            jnp.where(valid, recent, self.recent),
        )
