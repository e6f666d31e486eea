"""Fly a drone through a forest: the paper's example of a task where matching the mean action fails (figure 4).

A field of 100 × 100 m holds 100 trees on a jittered 10 × 10 grid. The drone starts at (50, 0), heading straight up the
field. In each step it picks a heading in [0, π] and moves 5 m along it. A perception flag is on if the middle or the
end of the next step along the *current* heading lies inside a tree. Hitting a tree, at either of these two points, ends
the episode; so does leaving the field. The score is the distance up the field, at most 100, or 0 if the drone left
sideways.

The expert keeps its heading while the flag is off. Otherwise it turns to a random clear heading at least π/4 away, left
or right. The average of left and right leads straight into the tree.

One environment can hold several forests. Each episode then uses one of them, and the observation ends with its index,
for experts and critics. `policy_obs=(0, 1, 2, 3)` hides the index from the policy.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Key

from understudy.core.arrays import Array, Source, categorical, namespace
from understudy.core.types import Continuous, Spec
from understudy.envs.base import Environment, Timestep
from understudy.policies import Carry, Policy, start

SIZE, STRIDE = 100.0, 5.0
HORIZON = 50


class ForestState(NamedTuple):
    x: Float[Array, ""]
    y: Float[Array, ""]
    heading: Float[Array, ""]
    layout: Int[Array, ""]


class Forest(Environment):
    """Observation (flag, x, y, heading), action: the next heading in [0, π]. `Forest.plant(key)` makes another."""

    trees: Float[Array, "... trees 3"]
    """x, y and radius of each tree. A leading axis holds several forests."""
    name: ClassVar[str] = "Forest"
    about: ClassVar[str] = (
        "fly a drone through a forest; the expert dodges left or right at random (the paper's figure 4)"
    )

    def __init__(self, trees: Float[Array, "... trees 3"] | None = None):
        self.trees = plant(jax.random.key(0)) if trees is None else trees

    @classmethod
    def plant(cls, key: Key[Array, ""], layouts: int | None = None) -> "Forest":
        """A random forest, or an environment of several."""
        return cls(plant(key) if layouts is None else jax.vmap(plant)(jax.random.split(key, layouts)))

    @property
    def spec(self) -> Spec:
        return Spec((4 if self.trees.ndim == 2 else 5,), Continuous((0.0,), (float(np.float32(np.pi)),)), HORIZON)

    def reset(self, key: Key[Array, ""]) -> tuple[ForestState, Float[Array, " obs"]]:
        layout = jnp.array(0) if self.trees.ndim == 2 else jax.random.randint(key, (), 0, len(self.trees))
        state = ForestState(jnp.array(SIZE / 2), jnp.array(0.0), jnp.array(jnp.pi / 2), layout)
        return state, self._observe(state)

    def step(self, state: ForestState, act: Array, key: Key[Array, ""]) -> Timestep:
        heading = jnp.clip(act[0], 0.0, jnp.pi)
        crash = blocked(self._trees(state), state.x, state.y, heading)
        new = ForestState(
            state.x + STRIDE * jnp.cos(heading), state.y + STRIDE * jnp.sin(heading), heading, state.layout
        )
        sideways = (new.x < 0) | (new.x > SIZE)
        score = jnp.where(sideways, 0.0, jnp.minimum(new.y, SIZE))
        across = new.y >= SIZE
        # The rewards of an episode add up to its score.
        terminal, success = crash | sideways | across, across & ~crash & ~sideways
        return Timestep(new, self._observe(new), score - state.y, terminal, success)

    def set_state(self, obs: Float[Array, " obs"], t: Int[Array, ""]) -> tuple[ForestState, Float[Array, " obs"]]:
        layout = jnp.array(0) if self.trees.ndim == 2 else obs[4].astype(int)
        state = ForestState(obs[1], obs[2], obs[3], layout)
        return state, self._observe(state)

    def expert(self) -> Policy:
        return Dodge(self.trees)

    def _observe(self, state: ForestState) -> Float[Array, " obs"]:
        flag = blocked(self._trees(state), state.x, state.y, state.heading)
        obs = [flag.astype(jnp.float32), state.x, state.y, state.heading]
        return jnp.stack(obs if self.trees.ndim == 2 else [*obs, state.layout.astype(jnp.float32)])

    def _trees(self, state: ForestState) -> Float[Array, "trees 3"]:
        return self.trees if self.trees.ndim == 2 else self.trees[state.layout]


def plant(key: Key[Array, ""]) -> Float[Array, "trees 3"]:
    """100 trees of radius 2 to 3 m, 10 m apart in rows from y = 5 m on, each shifted by 0 to 5 m in x and y."""
    position_key, radius_key = jax.random.split(key)
    column, row = jnp.meshgrid(jnp.arange(10) * 10.0, jnp.arange(10) * 10.0 + 5.0)
    centers = jnp.stack([column.ravel(), row.ravel()], axis=1) + jax.random.uniform(position_key, (100, 2), maxval=5.0)
    return jnp.concatenate([centers, jax.random.uniform(radius_key, (100, 1), minval=2.0, maxval=3.0)], axis=1)


def blocked(trees: Array, x: Array, y: Array, heading: Array) -> Bool[Array, "..."]:
    """Whether the middle or the end of a step from (x, y) along `heading` lies inside a tree."""
    xp = namespace(x, heading)
    hit = False
    for reach in (STRIDE / 2, STRIDE):
        dx = (x + reach * xp.cos(heading))[..., None] - trees[..., 0]
        dy = (y + reach * xp.sin(heading))[..., None] - trees[..., 1]
        hit = hit | (dx**2 + dy**2 < trees[..., 2] ** 2).any(-1)
    return hit


def depth(trees: Array, x: Array, y: Array, heading: Array) -> Float[Array, ""]:
    """How deep inside a tree, in metres, the middle or the end of a step would be; 0 if the way is clear."""
    inside = jnp.zeros(())
    for reach in (STRIDE / 2, STRIDE):
        dx, dy = x + reach * jnp.cos(heading) - trees[:, 0], y + reach * jnp.sin(heading) - trees[:, 1]
        # 1e-6: the square root has no derivative at a tree's centre.
        inside = jnp.maximum(inside, (trees[:, 2] - jnp.sqrt(dx**2 + dy**2 + 1e-6)).max())
    return inside


def trees_of(trees: Array, obs: Array) -> Float[Array, "... trees 3"]:
    """The trees of the forest in which an observation was made."""
    return trees if trees.ndim == 2 else trees[obs[..., 4].astype(int)]


class Dodge(Policy):
    """The scripted expert: keep the heading while the flag is off, else turn to a random clear heading ≥ π/4 away."""

    trees: Float[Array, "... trees 3"]
    choices: int = eqx.field(static=True, default=181)
    """Headings to choose from: one per degree."""

    def reset(self, source: Source, shape: tuple[int, ...] = ()) -> Carry:
        return start(shape)

    def logits(self, obs: Array) -> Float[Array, "... choices"]:
        """0 for headings that the expert may turn to, −∞ for others. If none is clear, any turn of at least π/4."""
        xp = namespace(obs)
        headings = xp.linspace(0.0, np.pi, self.choices, dtype=obs.dtype)
        x, y, heading = (obs[..., i, None] for i in (1, 2, 3))
        trees = self.trees if self.trees.ndim == 2 else trees_of(self.trees, obs)[..., None, :, :]
        away = xp.abs(headings - heading) >= np.pi / 4
        clear = away & ~blocked(trees, x, y, headings)
        return xp.where(xp.where(clear.any(-1, keepdims=True), clear, away), 0.0, -xp.inf)

    def mode(self, carry: Carry, obs: Array) -> Array:
        return self._turn(obs, namespace(obs).argmax(self.logits(obs), axis=-1))

    def draw(self, carry: Carry, obs: Array, source: Source) -> Array:
        return self._turn(obs, categorical(source, self.logits(obs)))

    def _turn(self, obs: Array, choice: Array) -> Array:
        xp = namespace(obs)
        heading = choice * np.float32(np.pi / (self.choices - 1))
        return xp.where(obs[..., 0] > 0.5, heading, obs[..., 3])[..., None].astype(obs.dtype)

    def log_prob(self, carry: Carry, obs: Array, act: Array) -> Float[Array, "..."]:
        raise TypeError("Forest's scripted expert has no density: log_prob is not available")

    def support(self, carry: Carry, obs: Array, source: Source) -> tuple[Array, Float[Array, " k"]]:
        weights = jax.nn.softmax(self.logits(obs))
        return jax.vmap(lambda choice: self._turn(obs, choice))(jnp.arange(self.choices)), weights
