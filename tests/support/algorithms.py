"""Algorithms of other people: what a package beside this one would define."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from understudy.core.types import Info
from understudy.game import Algorithm, Card
from understudy.game.players import gradient, repeat
from understudy.policies import Carry, Categorical, Normalization, Normalized


class ClassifierState(NamedTuple):
    policy: Categorical
    memory: optax.OptState
    normalization: Normalization


class Classifier(Algorithm):
    """Cross-entropy on the demonstrations, for discrete actions only.

    Deviations: none, it is a test's own.
    """

    card: ClassVar[Card] = Card(
        "classifier", "Classifier", "off-Q", "-", ("demonstrations",), ("discrete",), "nothing", "-"
    )
    small: ClassVar[dict] = {"rounds": 2, "gradient_steps": 2, "hidden": (8,)}
    lr: float = 1e-2
    """Adam's learning rate."""
    rounds: int = eqx.field(static=True, default=4)
    """Rounds."""
    gradient_steps: int = eqx.field(static=True, default=50)
    """Gradient steps in a round."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(32,))
    """Hidden layers."""

    def init(self, key, spec, demonstrations):
        policy = Categorical.init(key, spec.obs_size, spec.action_size, self.hidden)
        return ClassifierState(policy, self._player().init(policy), Normalization.fit(spec, demonstrations))

    def update(self, state, data, key):
        def loss(policy, k):
            batch = state.normalization.encode(data.demonstrations.sample(k, (64,)))
            carry = Carry(batch.t, jnp.zeros_like(batch.t))
            return -policy.log_prob(carry, batch.obs, batch.act).mean()

        policy, memory, value = self._player().move(key, state.policy, state.memory, loss)
        return state._replace(policy=policy, memory=memory), Info({"loss": value})

    def policy(self, state):
        return Normalized(state.policy, state.normalization)

    def _player(self):
        return repeat(gradient(optax.adam(jax.lax.stop_gradient(self.lr))), self.gradient_steps)
