"""Small environments and scripted experts for the planted cases of benchmarks/hidden_cases.py."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

import understudy as us

Act = Callable[[np.ndarray], np.ndarray]
"""An expert: a function of a batch of observations."""


class ReachState(NamedTuple):
    position: Float[Array, " 2"]
    velocity: Float[Array, " 2"]
    goal: Float[Array, " 2"]
    previous: Float[Array, " 2"]


class Reach(us.Environment):
    """Push a mass in the plane to a goal: observation (position, velocity, goal), action: a force in each direction."""

    limit: float = eqx.field(static=True, default=3.0)
    """The largest force."""
    dt: float = eqx.field(static=True, default=0.1)
    """Seconds per step."""
    horizon: int = eqx.field(static=True, default=60)
    shows_previous: bool = eqx.field(static=True, default=False)
    """Whether the observation ends with the previous action."""
    distractors: int = eqx.field(static=True, default=0)
    """Numbers of pure noise at the end of the observation."""

    @property
    def spec(self) -> us.Spec:
        size = 6 + 2 * self.shows_previous + self.distractors
        return us.Spec((size,), us.Continuous((-self.limit,) * 2, (self.limit,) * 2), self.horizon)

    def reset(self, key: Key[Array, ""]) -> tuple[ReachState, Float[Array, " obs"]]:
        place_key, noise_key = jax.random.split(key)
        position, goal = jax.random.uniform(place_key, (2, 2), minval=-1.0)
        state = ReachState(position, jnp.zeros(2), goal, jnp.zeros(2))
        return state, self._observe(state, noise_key)

    def step(self, state: ReachState, act: Array, key: Key[Array, ""]) -> us.Timestep:
        force = jnp.clip(act, -self.limit, self.limit)
        velocity = state.velocity + self.dt * force
        position = state.position + self.dt * velocity
        new = ReachState(position, velocity, state.goal, force)
        cost = jnp.sum((position - state.goal) ** 2) + 0.05 * jnp.sum(velocity**2)
        return us.Timestep(new, self._observe(new, key), -cost * self.dt, jnp.array(False))

    def _observe(self, state: ReachState, key: Key[Array, ""]) -> Float[Array, " obs"]:
        parts = [state.position, state.velocity, state.goal]
        parts += [state.previous] if self.shows_previous else []
        parts += [jax.random.normal(key, (self.distractors,))] if self.distractors else []
        return jnp.concatenate(parts)


def reach(stiffness: float = 4.0, damping: float = 3.0, limit: float = 3.0, goal: float = 1.0) -> Act:
    """The expert of `Reach`: a spring to the goal, and a damper. With `goal` -1 it goes to the opposite place."""

    def pull_to_goal(obs: np.ndarray) -> np.ndarray:
        force = stiffness * (goal * obs[:, 4:6] - obs[:, 0:2]) - damping * obs[:, 2:4]
        return np.clip(force, -limit, limit)

    return pull_to_goal


class RidgeState(NamedTuple):
    phase: Float[Array, ""]
    error: Float[Array, ""]


class Ridge(us.Environment):
    """Walk along a winding ridge: observation (cos, sin of the phase, sideways place), action: a push sideways.

    The expert never leaves the middle, so its demonstrations do not show how to come back to it.
    """

    growth: float = eqx.field(static=True, default=1.15)
    """The factor by which a distance from the middle grows in a step without a correction."""
    fatal: bool = eqx.field(static=True, default=True)
    """Whether a distance of 1 from the middle ends the episode. Otherwise only distances cost reward."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((3,), us.Continuous((-4.0,), (4.0,)), 150)

    def reset(self, key: Key[Array, ""]) -> tuple[RidgeState, Float[Array, " obs"]]:
        state = RidgeState(jax.random.uniform(key, (), maxval=2 * jnp.pi), jnp.zeros(()))
        return state, self._observe(state)

    def step(self, state: RidgeState, act: Array, key: Key[Array, ""]) -> us.Timestep:
        push = jnp.clip(act[0], -4.0, 4.0) - _feedforward(state.phase)
        error = jnp.clip(self.growth * state.error + 0.1 * push, -5.0, 5.0)
        new = RidgeState(state.phase + 0.1, error)
        if self.fatal:
            return us.Timestep(new, self._observe(new), jnp.ones(()), jnp.abs(error) > 1.0)
        return us.Timestep(new, self._observe(new), 1.0 - jnp.minimum(error**2, 1.0), jnp.array(False))

    def _observe(self, state: RidgeState) -> Float[Array, " obs"]:
        return jnp.stack([jnp.cos(state.phase), jnp.sin(state.phase), _middle(state.phase) + state.error])


def _middle(phase: Any) -> Any:
    return 0.7 * jnp.sin(2.0 * phase)


def _feedforward(phase: Any) -> Any:
    return jnp.cos(3.0 * phase)


def balance_on_ridge(obs: np.ndarray) -> np.ndarray:
    """The expert of `Ridge`: follow the path, and correct distances from its middle in about two steps."""
    phase = np.arctan2(obs[:, 1], obs[:, 0])
    push = np.cos(3.0 * phase) - 6.0 * (obs[:, 2] - 0.7 * np.sin(2.0 * phase))
    return np.clip(push, -4.0, 4.0)[:, None]


class Fork(us.Environment):
    """Pass a rock on either side: observation (distance along the way, sideways place), action: sideways speed."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((2,), us.Continuous((-1.0,), (1.0,)), 40)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 2"], Float[Array, " obs"]]:
        state = jnp.stack([jnp.zeros(()), 0.05 * jax.random.normal(key)])
        return state, state

    def step(self, state: Float[Array, " 2"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        new = state + jnp.stack([jnp.array(0.5), 0.4 * jnp.clip(act[0], -1.0, 1.0)])
        crash = (new[0] >= 10.0) & (new[0] < 12.0) & (jnp.abs(new[1]) < 1.0)
        return us.Timestep(new, new, jnp.ones(()), crash | (jnp.abs(new[1]) > 3.0))


def pass_rock(seed: int) -> Act:
    """The expert of `Fork`: near the rock it turns left or right, at random if it is in the middle."""
    random = np.random.default_rng(seed)

    def choose_side(obs: np.ndarray) -> np.ndarray:
        side = np.where(np.abs(obs[:, 1]) < 0.3, random.choice([-1.0, 1.0], len(obs)), np.sign(obs[:, 1]))
        wanted = np.where((obs[:, 0] >= 8.5) & (obs[:, 0] < 12.0), 1.8 * side, 0.0)
        return np.clip((wanted - obs[:, 1]) / 0.8, -1.0, 1.0)[:, None]

    return choose_side


class Orbit(us.Environment):
    """Circle the origin, in either direction: observation: the position, action: the velocity. It has no inertia."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((2,), us.Continuous((-1.0, -1.0), (1.0, 1.0)), 60)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 2"], Float[Array, " obs"]]:
        angle_key, radius_key = jax.random.split(key)
        angle = jax.random.uniform(angle_key, (), maxval=2 * jnp.pi)
        radius = jax.random.uniform(radius_key, (), minval=0.7, maxval=1.3)
        state = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        return state, state

    def step(self, state: Float[Array, " 2"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        velocity = jnp.clip(act, -1.0, 1.0)
        new = jnp.clip(state + 0.15 * velocity, -3.0, 3.0)
        around = jnp.abs(state[0] * velocity[1] - state[1] * velocity[0]) / (jnp.linalg.norm(state) + 0.1)
        return us.Timestep(new, new, around - jnp.abs(jnp.linalg.norm(new) - 1.0), jnp.array(False))


def circle(direction: float) -> Act:
    """An expert of `Orbit`: counterclockwise for direction 1, clockwise for -1."""

    def go_round(obs: np.ndarray) -> np.ndarray:
        radius = np.linalg.norm(obs, axis=1, keepdims=True) + 1e-6
        tangent = direction * np.stack([-obs[:, 1], obs[:, 0]], axis=1) / radius
        return np.clip(0.8 * tangent + 2.0 * (1.0 - radius) * obs / radius, -1.0, 1.0)

    return go_round


class Thermostat(us.Environment):
    """Keep a room at a set temperature: observation (inside, outside, set, in degrees), action: heating or cooling."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((3,), us.Continuous((-1.0,), (1.0,)), 80)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 3"], Float[Array, " obs"]]:
        low, high = jnp.array([12.0, -5.0, 18.0]), jnp.array([28.0, 30.0, 23.0])
        state = jax.random.uniform(key, (3,), minval=low, maxval=high)
        return state, state

    def step(self, state: Float[Array, " 3"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        inside, outside, wanted = state
        inside = inside + 0.02 * (outside - inside) + 1.2 * jnp.clip(act[0], -1.0, 1.0)
        outside = jnp.clip(outside + 0.2 * jax.random.normal(key), -10.0, 35.0)
        new = jnp.stack([inside, outside, wanted])
        return us.Timestep(new, new, -jnp.abs(inside - wanted), jnp.array(False))


def heat(obs: np.ndarray) -> np.ndarray:
    """The expert of `Thermostat`: replace the heat that is lost, and close half of the difference."""
    inside, outside, wanted = obs.T
    return np.clip((0.02 * (inside - outside) + 0.5 * (wanted - inside)) / 1.2, -1.0, 1.0)[:, None]


class CartState(NamedTuple):
    position: Float[Array, ""]
    velocity: Float[Array, ""]


class Cart(us.Environment):
    """Bring a cart to rest at 0: observation (position, velocity) or only the position, action: a force."""

    hides_velocity: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> us.Spec:
        return us.Spec((1 if self.hides_velocity else 2,), us.Continuous((-1.0,), (1.0,)), 100)

    def reset(self, key: Key[Array, ""]) -> tuple[CartState, Float[Array, " obs"]]:
        position, velocity = jax.random.uniform(key, (2,), minval=-1.0)
        state = CartState(position, 0.2 * velocity)
        return state, self._observe(state)

    def step(self, state: CartState, act: Array, key: Key[Array, ""]) -> us.Timestep:
        velocity = state.velocity + 0.1 * jnp.clip(act[0], -1.0, 1.0)
        position = jnp.clip(state.position + 0.1 * velocity, -5.0, 5.0)
        new = CartState(position, velocity)
        return us.Timestep(new, self._observe(new), -jnp.abs(position) - 0.2 * jnp.abs(velocity), jnp.array(False))

    def _observe(self, state: CartState) -> Float[Array, " obs"]:
        return jnp.stack([state.position] if self.hides_velocity else [state.position, state.velocity])


def stop_cart(obs: np.ndarray) -> np.ndarray:
    """The expert of `Cart`, which needs the velocity."""
    return np.clip(-1.5 * obs[:, :1] - 2.0 * obs[:, 1:2], -1.0, 1.0)


def pump_car(obs: np.ndarray) -> np.ndarray:
    """An expert of MountainCarContinuous-v0: push in the direction of the speed."""
    return np.clip(200.0 * (obs[:, 1:2] + 0.0005), -1.0, 1.0)


def balance_pole(obs: np.ndarray) -> np.ndarray:
    """An expert of CartPole-v1."""
    return (obs @ np.array([0.05, 0.15, 1.0, 0.6], obs.dtype) > 0).astype(np.int64)
