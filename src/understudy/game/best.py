"""The best policy so far by its payoff, for algorithms that return it in place of the last one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

NO_PAYOFF = 1e30
"""The payoff before any policy was judged: above any real one, and finite."""


class Best(NamedTuple):
    """The policy with the smallest payoff so far."""

    policy: Any
    payoff: Float[Array, ""]

    @classmethod
    def init(cls, policy: Any) -> "Best":
        """No policy has been judged; `policy` fixes the shapes."""
        return cls(policy, jnp.asarray(NO_PAYOFF))

    def update(self, policy: Any, payoff: Float[Array, ""], judged: Bool[Array, ""]) -> "Best":
        """With a new policy, which counts only if it was `judged`."""
        better = judged & (payoff < self.payoff)
        chosen = jax.tree.map(lambda new, old: jnp.where(better, new, old), policy, self.policy)
        return Best(chosen, jnp.where(better, payoff, self.payoff))

    def policy_or(self, default: Any) -> Any:
        """The best policy, or `default` if none was judged."""
        judged = self.payoff < NO_PAYOFF
        return jax.tree.map(lambda best, other: jnp.where(judged, best, other), self.policy, default)
