"""Pendulum in other units: observations times a number, and with a number that never changes."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

import understudy as us
from understudy.envs.base import Environment


class OtherUnits(Environment):
    """Pendulum whose observations are multiplied by `scale`; `constant` is appended if it is not None."""

    name: ClassVar[str] = "OtherUnits"
    scale: float = 1.0
    constant: float | None = None

    @property
    def spec(self):
        plain = us.Pendulum().spec
        return us.Spec((3 if self.constant is None else 4,), plain.action, plain.horizon)

    def reset(self, key):
        state, obs = us.Pendulum().reset(key)
        return state, self.changed(obs)

    def step(self, state, act, key):
        new = us.Pendulum().step(state, act, key)
        return new._replace(obs=self.changed(new.obs))

    def changed(self, obs, xp=jnp):
        obs = obs * self.scale
        if self.constant is None:
            return obs
        return xp.concatenate([obs, xp.full((*obs.shape[:-1], 1), self.constant, obs.dtype)], axis=-1)

    def demonstrations(self, episodes):
        """Pendulum's bundled demonstrations in these units."""
        plain = us.load("Pendulum", episodes=episodes)
        return us.Demonstrations.from_arrays(
            self.changed(plain.observations, np),
            plain.actions,
            plain.lengths,
            next_observations=self.changed(plain.next_observations, np),
            rewards=plain.rewards,
            action_space=plain.action_space,
            horizon=plain.horizon,
        )
