"""An algorithm that counts its rounds, to test the training loop without learning."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from understudy.core.types import Info
from understudy.game import Algorithm, Card
from understudy.policies import Categorical, Policy
from understudy.policies.networks import MLP


class Count(NamedTuple):
    rounds: jax.Array
    limit: jax.Array


class Counting(Algorithm):
    """Counts its rounds. Each run draws a limit from its seed, and stops or diverges in that round."""

    card: ClassVar[Card] = Card(
        "counting", "Counting", "off-Q", "-", ("demonstrations",), ("continuous", "discrete"), "nothing", ""
    )
    stop_reasons: ClassVar[tuple[str, ...]] = ("it has counted far enough",)
    ends: str = eqx.field(static=True, default="done")
    rounds: int = eqx.field(static=True, default=12)
    earliest: int = eqx.field(static=True, default=3)

    def init(self, key, spec, demonstrations):
        return Count(jnp.zeros(()), jax.random.randint(key, (), self.earliest, 10))

    def update(self, state, data, key):
        state = state._replace(rounds=state.rounds + 1)
        over = state.rounds >= state.limit
        loss = jnp.where((self.ends == "nan") & over, jnp.nan, state.rounds)
        return state, Info({"loss": loss}, jnp.where((self.ends == "done") & over, 1, 0))

    def policy(self, state) -> Policy:
        """A linear policy of one number and two actions, whose biases are the count and the limit."""
        counts = jnp.stack([jnp.asarray(state.rounds), jnp.asarray(state.limit, float)])
        return Categorical(MLP((jnp.zeros((1, 2)),), (counts,), "relu"))


def counted(result):
    """(rounds, limit) of each run."""
    return np.stack([actor.policy.net.biases[0] for actor in result.policies])


def seed_with_limit(limit):
    """A seed whose run has this limit."""
    for seed in range(200):
        init_key, _ = jax.random.split(jax.random.key(seed))
        if int(jax.random.randint(init_key, (), 1, 10)) == limit:
            return seed
    raise AssertionError("no seed")
