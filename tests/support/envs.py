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

    def set_state(self, obs, t):
        return obs, obs

    def expert(self):
        return Categorical.init(jax.random.key(3), 4, 3, (8,))


class Drift(Environment):
    """At most 50 steps; three observed numbers decay and follow the action. Any three numbers are a state."""

    name: ClassVar[str] = "Drift"
    about: ClassVar[str] = "a drift for tests"

    @property
    def spec(self):
        return Spec((3,), us.Continuous((-2.0,), (2.0,)), 50)

    def reset(self, key):
        state = jax.random.normal(key, (3,))
        return state, state

    def step(self, state, act, key):
        new = 0.9 * state + 0.1 * act[0] + 0.1 * jax.random.normal(key, (3,))
        return Timestep(new, new, -jnp.abs(act - self.expert().mode(start(), state)).sum(), jnp.array(False))

    def set_state(self, obs, t):
        return obs, obs

    def expert(self):
        weights = jnp.array([[0.4], [-0.3], [0.2]])
        return Deterministic(MLP((weights,), (jnp.array([0.1]),), "identity"))


class Line(Environment):
    """States are drawn independently of the action; the expert's action is linear in the state.

    With it, every algorithm can be seen to learn in seconds: one that matches moments has to match the actions. For
    algorithms that never see the expert's actions, `shown` adds the last state and action to the observation.
    """

    discrete: bool = eqx.field(static=True, default=False)
    shown: bool = eqx.field(static=True, default=False)
    name: ClassVar[str] = "Line"
    about: ClassVar[str] = "a linear expert for tests"

    @property
    def spec(self):
        space = us.Discrete(3) if self.discrete else us.Continuous((-1.0,), (1.0,))
        return Spec((5 if self.shown else 2,), space, 8)

    def reset(self, key):
        obs = jax.random.uniform(key, (2,), minval=-1, maxval=1)
        return obs, self._observed(obs, jnp.zeros(2), jnp.zeros(1))

    def step(self, state, act, key):
        new = jax.random.uniform(key, (2,), minval=-1, maxval=1)
        wanted = self.expert().mode(start(), self._observed(state, state, jnp.zeros(1)))
        cost = (act != wanted).astype(jnp.float32) if self.discrete else jnp.square(act - wanted).sum()
        return Timestep(new, self._observed(new, state, jnp.ravel(act)), -cost, jnp.array(False))

    def set_state(self, obs, t):
        return obs, obs

    def expert(self):
        if self.discrete:
            weights = jnp.array([[4.0, 0.0, -4.0], [0.0, 0.0, 0.0]])
            return Categorical(self._linear(weights, jnp.array([0.0, 1.0, 0.0])))
        return Deterministic(self._linear(jnp.array([[0.5], [-0.3]]), jnp.array([0.1])))

    def _linear(self, weights, bias):
        return MLP((weights,), (bias,), "identity", (0, 1) if self.shown else None)

    def _observed(self, state, before, act):
        return jnp.concatenate([state, before, act]) if self.shown else state

    def cost(self):
        return distance_on_line


def distance_on_line(obs, act):
    """Minus `Line`'s reward."""
    return jnp.square(act - Line().expert().mode(start(), obs)).sum()
