"""Swing up a pendulum and hold it: the dynamics of Gymnasium's `Pendulum-v1` in JAX, with a scripted expert."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Key

from understudy.core.arrays import Array, Source, namespace
from understudy.core.types import Continuous, Spec
from understudy.envs.base import Environment, Timestep
from understudy.game.costs import Cost
from understudy.policies import Carry, Policy, start

GRAVITY, MASS, LENGTH, DT = 10.0, 1.0, 1.0, 0.05
MAX_TORQUE, MAX_SPEED = 2.0, 8.0


class PendulumState(NamedTuple):
    angle: Float[Array, ""]
    """0 is upright."""
    speed: Float[Array, ""]


class Pendulum(Environment):
    """Observation (cos θ, sin θ, θ̇), one torque in [-2, 2], reward −(θ² + 0.1 θ̇² + 0.001 u²), 200 steps."""

    name: ClassVar[str] = "Pendulum"
    about: ClassVar[str] = "swing up a pendulum and hold it; the dynamics of Gymnasium's Pendulum-v1"

    @property
    def spec(self) -> Spec:
        return Spec((3,), Continuous((-MAX_TORQUE,), (MAX_TORQUE,)), 200)

    def reset(self, key: Key[Array, ""]) -> tuple[PendulumState, Float[Array, " obs"]]:
        angle, speed = jax.random.uniform(key, (2,), minval=-1.0) * jnp.array([jnp.pi, 1.0])
        state = PendulumState(angle, speed)
        return state, _observe(state)

    def step(self, state: PendulumState, act: Array, key: Key[Array, ""]) -> Timestep:
        torque = jnp.clip(act[0], -MAX_TORQUE, MAX_TORQUE)
        angle = (state.angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        cost = angle**2 + 0.1 * state.speed**2 + 0.001 * torque**2
        push = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(state.angle) + 3 / (MASS * LENGTH**2) * torque
        speed = jnp.clip(state.speed + push * DT, -MAX_SPEED, MAX_SPEED)
        new = PendulumState(state.angle + speed * DT, speed)
        return Timestep(new, _observe(new), -cost, jnp.array(False))

    def set_state(self, obs: Float[Array, " obs"], t: Int[Array, ""]) -> tuple[PendulumState, Float[Array, " obs"]]:
        state = PendulumState(jnp.arctan2(obs[1], obs[0]), obs[2])
        return state, _observe(state)

    def expert(self) -> Policy:
        return SwingUp()

    def cost(self) -> Cost:
        return swing_up_cost


def swing_up_cost(obs: Float[Array, " obs"], act: Float[Array, " act"]) -> Float[Array, ""]:
    """Minus the reward, from what is observed."""
    return jnp.arctan2(obs[1], obs[0]) ** 2 + 0.1 * obs[2] ** 2 + 0.001 * act[0] ** 2


def _observe(state: PendulumState) -> Float[Array, " obs"]:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])


class SwingUp(Policy):
    """The scripted expert: pump energy until the pendulum can stand, then hold it with a linear controller.

    The energy is 0 for standing still upright: E = θ̇²/6 + 5 (cos θ − 1), for a rod of unit mass and length. Pumping
    pushes in the direction of the speed while E < 0. The two controllers are blended around |θ| = 0.7.
    """

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def mode(self, carry: Carry, obs: Array) -> Array:
        xp = namespace(obs)
        cos, sin, speed = obs[..., 0], obs[..., 1], obs[..., 2]
        angle = xp.arctan2(sin, cos)
        energy = speed**2 / 6 + GRAVITY / 2 * (cos - 1)
        pump = xp.clip(-2.0 * energy * xp.tanh(speed / 2), -MAX_TORQUE, MAX_TORQUE)
        hold = xp.clip(-8.0 * angle - 2.0 * speed, -MAX_TORQUE, MAX_TORQUE)
        near = 1 / (1 + xp.exp(20.0 * (xp.abs(angle) - 0.7)))
        torque = near * hold + (1 - near) * pump
        return torque[..., None].astype(obs.dtype)

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        return self.mode(carry, obs)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        raise TypeError("Pendulum's scripted expert has no density: log_prob is not available")

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.mode(carry, obs)[None], jnp.ones(1)
