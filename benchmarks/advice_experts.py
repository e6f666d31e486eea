"""The scripted experts of the tasks in advice_envs.py: rules on batches of observations, for NumPy and JAX."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from understudy.core.arrays import Source, namespace
from understudy.policies import Carry, Policy

Chooser = Callable[[Any, Any], Any]
"""An action from observations and uniform random numbers, one for each observation."""


class Scripted(Policy):
    """An expert: `rule(obs, u)`, with a number u of each step, or of each episode (`per_episode`)."""

    rule: Chooser = eqx.field(static=True)
    per_episode: bool = eqx.field(static=True, default=False)

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        if isinstance(source, np.random.Generator):
            return Carry(np.zeros(shape, np.int32), source.integers(1000, size=shape, dtype=np.int32))
        return Carry(jnp.zeros(shape, jnp.int32), jax.random.randint(source, shape, 0, 1000))

    def mode(self, carry: Carry, obs: Array) -> Array:
        return self.rule(obs, namespace(obs).zeros(obs.shape[:-1]))

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        if self.per_episode:
            return self.rule(obs, carry.drawn / 1000.0)
        if isinstance(source, np.random.Generator):
            return self.rule(obs, source.random(obs.shape[:-1]))
        return self.rule(obs, jax.random.uniform(source, obs.shape[:-1]))

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        raise TypeError("a scripted expert has no density")

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        return self.draw(carry, obs, source)[None], jnp.ones(1)


def pass_boulder(obs: Any, u: Any) -> Any:
    """Steers for 1.5 beside the boulder, on a random side while it heads for its middle."""
    xp = namespace(obs)
    ahead, beside, speed = obs[..., 3] - obs[..., 0], obs[..., 1] - obs[..., 4], obs[..., 2]
    heading = beside + 4.0 * speed
    side = xp.where(xp.abs(heading) < 0.3, xp.where(u < 0.5, -1.0, 1.0), xp.sign(heading))
    force = xp.clip(2.0 * (1.5 * side - beside) - 8.0 * speed, -1.0, 1.0)
    return xp.where((ahead < 3.5) & (ahead > -1.0), force, xp.clip(-10.0 * speed, -1.0, 1.0))[..., None].astype(
        np.float32
    )


def keep_to_ledge(obs: Any, u: Any) -> Any:
    xp = namespace(obs)
    lean = obs[..., 0] + 2.0 * obs[..., 1] + 6.0 * obs[..., 2]
    return xp.where(lean > 0.08, 0, xp.where(lean < -0.08, 2, 1))


STIFF = np.array([[1.0, -0.6], [-0.6, 1.0]], np.float32)
"""How the two legs of `Stilts` move each other."""


def balance(obs: Any, u: Any) -> Any:
    xp = namespace(obs)
    wanted = -(4.0 * obs[..., :2] + 1.6 * obs[..., 2:])
    return xp.clip(wanted @ np.linalg.inv(STIFF).astype(np.float32), -1.0, 1.0).astype(np.float32)


def follow(obs: Any, u: Any) -> Any:
    xp = namespace(obs)
    cos, sin = obs[..., 4], obs[..., 5]
    moves = xp.stack([0.12 * cos, 0.12 * (cos**2 - sin**2)], -1)  # of the light, per step
    return xp.clip(6.0 * obs[..., :2] + 16.0 * (moves - obs[..., 2:4]) + 2.0 * moves, -1.0, 1.0).astype(np.float32)


BELT = np.random.default_rng(5).normal(size=(6, 8)).astype(np.float32)
BINS = np.random.default_rng(6).normal(size=(8, 5)).astype(np.float32)
"""What decides which of 5 bins an item with 6 features belongs in."""


def sort(obs: Any, u: Any) -> Any:
    xp = namespace(obs)
    return xp.argmax(xp.tanh(obs @ BELT) @ BINS, axis=-1)


def stride(obs: Any, u: Any) -> Any:
    """The left leg with the rhythm and the right one against it, or the other way round."""
    xp = namespace(obs)
    lead = xp.where(u < 0.5, 1.0, -1.0) * obs[..., 1]
    return xp.stack([lead, -lead], -1).astype(np.float32)


def run_errands(obs: Any, u: Any) -> Any:
    """To the nearest corner that is left, along a random side of the way; between two equally near, either."""
    xp = namespace(obs)
    x, y = obs[..., 0], obs[..., 1]
    first, second = x + (6.0 - y), (6.0 - x) + y  # ways to (0, 6) and to (6, 0)
    to_first = xp.where(obs[..., 2] > 0, False, xp.where(obs[..., 3] > 0, True, (first < second)))
    to_first = to_first | ((obs[..., 2] == 0) & (obs[..., 3] == 0) & (first == second) & (u < 0.5))
    sideways, upright = xp.where(to_first, x > 0, x < 6), xp.where(to_first, y < 6, y > 0)
    across = sideways & (~upright | (u * 4.0 % 1.0 < 0.5))
    return xp.where(across, xp.where(to_first, 1, 0), xp.where(to_first, 2, 3))


def heat(obs: Any, u: Any) -> Any:
    """The room that is colder than it should be next, if any is."""
    xp = namespace(obs)
    lacks = xp.stack([20.0 - obs[..., 0], 17.0 - obs[..., 1]], -1) + 0.06 * (17.0 - obs[..., 2:3])
    return xp.where(lacks.max(-1) < 0.0, 2, xp.argmax(lacks, axis=-1))


def keep_to_road(obs: Any, u: Any) -> Any:
    xp = namespace(obs)
    steering = obs[..., 2] + 0.3 * (obs[..., 3] - obs[..., 2]) - 2.0 * obs[..., 0] - 2.5 * xp.sin(obs[..., 1])
    return xp.clip(steering, -1.0, 1.0)[..., None].astype(np.float32)
