"""Small JAX environments for tests."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

import understudy as us
from understudy.core.types import Spec
from understudy.envs.base import Environment, Timestep
from understudy.policies import MLP, Categorical, Deterministic, start


class Walk(Environment):
    """At most five steps; the state drifts by the action's row of a table. Three actions, four observed numbers."""

    drift: jax.Array
    name: ClassVar[str] = "Walk"
    about: ClassVar[str] = "a walk for tests"

    @property
    def spec(self):
        return Spec((4,), us.Discrete(3), 5)

    def reset(self, key):
        state = jax.random.normal(key, (4,))
        return state, state

    def step(self, state, act, key):
        new = state + self.drift[act]
        return Timestep(new, new, -jnp.abs(new).sum(), jnp.abs(new).max() > 3)

    def expert(self):
        return Categorical.init(jax.random.key(3), 4, 3, (8,))


class Line(Environment):
    """States are drawn independently of the action; the expert's action is linear in the state.

    With it, every algorithm can be seen to learn in seconds: one that matches moments has to match the actions.
    """

    discrete: bool = eqx.field(static=True, default=False)
    name: ClassVar[str] = "Line"
    about: ClassVar[str] = "a linear expert for tests"

    @property
    def spec(self):
        return Spec((2,), us.Discrete(3) if self.discrete else us.Continuous((-1.0,), (1.0,)), 8)

    def reset(self, key):
        obs = jax.random.uniform(key, (2,), minval=-1, maxval=1)
        return obs, obs

    def step(self, state, act, key):
        new = jax.random.uniform(key, (2,), minval=-1, maxval=1)
        wanted = self.expert().mode(start(), state)
        cost = (act != wanted).astype(jnp.float32) if self.discrete else jnp.square(act - wanted).sum()
        return Timestep(new, new, -cost, jnp.array(False))

    def expert(self):
        if self.discrete:
            weights = jnp.array([[4.0, 0.0, -4.0], [0.0, 0.0, 0.0]])
            return Categorical(MLP((weights,), (jnp.array([0.0, 1.0, 0.0]),), "identity"))
        return Deterministic(MLP((jnp.array([[0.5], [-0.3]]),), (jnp.array([0.1]),), "identity"))

    def cost(self):
        return distance_on_line


def distance_on_line(obs, act):
    """Minus `Line`'s reward."""
    return jnp.square(act - Line().expert().mode(start(), obs)).sum()
