"""Small environments and scripted experts for the planted cases of benchmarks/unseen_cases.py."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

import understudy as us
from hidden_envs import Act

MASSES, PUSHED = 6, (0, 2, 5)
"""The masses of `Chain`, and those that the action pushes."""


def _chain(dt: float) -> tuple[np.ndarray, np.ndarray]:
    """A and B of the linear dynamics of `Chain`: springs between neighbours that push apart from the middle."""
    spring = 2.0 * (np.eye(MASSES, k=1) + np.eye(MASSES, k=-1) - 2.0 * np.eye(MASSES)) + 0.5 * np.eye(MASSES)
    forces = np.concatenate([spring, -0.1 * np.eye(MASSES)], axis=1)
    slow = np.concatenate([np.zeros((MASSES, MASSES)), np.eye(MASSES)], axis=1)
    pushes = np.zeros((2 * MASSES, len(PUSHED)))
    pushes[[MASSES + mass for mass in PUSHED], range(len(PUSHED))] = 1.0
    one, steps = np.eye(2 * MASSES), max(1, round(dt / 0.01))
    matrix, push = one, np.zeros_like(pushes)
    for _ in range(steps):
        small = one + dt / steps * np.concatenate([slow, forces])
        matrix, push = small @ matrix, small @ push + dt / steps * pushes
    return matrix, push


class Chain(us.Environment):
    """Hold six coupled masses at 0 with three forces: observation (6 places, 6 speeds), 12 numbers."""

    dt: float = eqx.field(static=True, default=0.1)
    """Seconds per step."""
    horizon: int = eqx.field(static=True, default=50)

    @property
    def spec(self) -> us.Spec:
        return us.Spec((12,), us.Continuous((-6.0,) * 3, (6.0,) * 3), self.horizon)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 12"], Float[Array, " 12"]]:
        state = jax.random.uniform(key, (12,), minval=-1.0)
        return state, state

    def step(self, state: Float[Array, " 12"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        matrix, push = _chain(self.dt)
        new = matrix @ state + push @ jnp.clip(act, -6.0, 6.0)
        new = jnp.clip(new + 0.02 * jnp.sqrt(self.dt) * jax.random.normal(key, (12,)), -10.0, 10.0)
        cost = jnp.sum(new[:MASSES] ** 2) + 0.1 * jnp.sum(new[MASSES:] ** 2)
        return us.Timestep(new, new, -cost * self.dt, jnp.array(False))


def hold_chain(dt: float = 0.1) -> Act:
    """The expert of `Chain`: the linear-quadratic regulator."""
    matrix, push = _chain(dt)
    value = np.eye(12)
    for _ in range(round(100 / dt)):
        gain = np.linalg.solve(0.3 * np.eye(3) + push.T @ value @ push, push.T @ value @ matrix)
        value = np.eye(12) + matrix.T @ value @ (matrix - push @ gain)
    return lambda obs: np.clip(-obs @ gain.T, -6.0, 6.0)


class Tank(us.Environment):
    """Keep the level of a leaking tank at 2: observation: the level, action: the inflow. It ends dry or spilling."""

    dt: float = eqx.field(static=True, default=0.1)
    """Minutes per step."""
    horizon: int = eqx.field(static=True, default=60)

    @property
    def spec(self) -> us.Spec:
        return us.Spec((1,), us.Continuous((0.0,), (4.0,)), self.horizon)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 1"], Float[Array, " 1"]]:
        level = jax.random.uniform(key, (1,), minval=0.5, maxval=3.5)
        return level, level

    def step(self, state: Float[Array, " 1"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        inflow = jnp.clip(act, 0.0, 4.0)
        noise = 0.06 * jnp.sqrt(self.dt) * jax.random.normal(key, (1,))
        level = state + self.dt * (inflow - jnp.sqrt(jnp.maximum(state, 0.0))) + noise
        ends = (level[0] < 0.1) | (level[0] > 3.9)
        return us.Timestep(level, level, (1.0 - jnp.abs(level[0] - 2.0)) * self.dt, ends)


def fill(obs: np.ndarray, gain: float = 2.0) -> np.ndarray:
    """The expert of `Tank`: replace the leak, and correct the level."""
    return np.clip(np.sqrt(np.maximum(obs, 0.0)) + gain * (2.0 - obs), 0.0, 4.0)


class LanderState(NamedTuple):
    height: Float[Array, ""]
    speed: Float[Array, ""]
    thrust: Float[Array, " 3"]


class Touchdown(us.Environment):
    """Land softly: observation (height, speed), actions: engine off, half, full. It ends on the ground."""

    shows_thrust: bool = eqx.field(static=True, default=False)
    """Whether the observation ends with the previous action, one-hot."""
    hides_speed: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> us.Spec:
        return us.Spec((2 - self.hides_speed + 3 * self.shows_thrust,), us.Discrete(3), 120)

    def reset(self, key: Key[Array, ""]) -> tuple[LanderState, Float[Array, " obs"]]:
        height, speed = jax.random.uniform(key, (2,), minval=jnp.array([4.0, -1.0]), maxval=jnp.array([8.0, 0.5]))
        state = LanderState(height, speed, jnp.zeros(3))
        return state, self._observe(state)

    def step(self, state: LanderState, act: Array, key: Key[Array, ""]) -> us.Timestep:
        speed = state.speed + 0.1 * (jnp.array([-1.0, 0.0, 1.5])[act] + 0.3 * jax.random.normal(key))
        height = state.height + 0.1 * speed
        new = LanderState(height, speed, jax.nn.one_hot(act, 3))
        down = height <= 0.0
        soft = 10.0 * jnp.maximum(0.0, 1.0 - jnp.maximum(0.0, jnp.abs(speed) - 0.5))
        reward = jnp.where(down, soft, 0.0) - 0.02
        return us.Timestep(new, self._observe(new), reward, down | (height > 12.0))

    def _observe(self, state: LanderState) -> Float[Array, " obs"]:
        parts = [jnp.stack([state.height] if self.hides_speed else [state.height, state.speed])]
        return jnp.concatenate(parts + [state.thrust] * self.shows_thrust)


def land(haste: float = 0.45) -> Act:
    """The expert of `Touchdown`: it falls more slowly near the ground. With much `haste` it crashes."""

    def brake(obs: np.ndarray) -> np.ndarray:
        excess = obs[:, 1] + 0.25 + haste * obs[:, 0]
        return np.where(excess < -0.1, 2, np.where(excess < 0.1, 1, 0))

    return brake


class Field(us.Environment):
    """Walk to a goal on an 8 by 8 board in wind: observation (own place, the goal), 4 actions. It ends at the goal."""

    distractors: int = eqx.field(static=True, default=0)
    """Numbers of pure noise at the end of the observation."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((4 + self.distractors,), us.Discrete(4), 40)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 4"], Float[Array, " obs"]]:
        state = jax.random.randint(key, (4,), 0, 8).astype(jnp.float32)
        state = state.at[2].set(jnp.where(jnp.all(state[:2] == state[2:]), 7.0 - state[2], state[2]))
        return state, self._observe(state, key)

    def step(self, state: Float[Array, " 4"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        wind_key, turn_key, noise_key = jax.random.split(key, 3)
        blown = jnp.where(jax.random.bernoulli(wind_key, 0.1), jax.random.randint(turn_key, (), 0, 4), act)
        move = jnp.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])[blown]
        new = jnp.concatenate([jnp.clip(state[:2] + move, 0.0, 7.0), state[2:]])
        return us.Timestep(new, self._observe(new, noise_key), jnp.array(-1.0), jnp.all(new[:2] == new[2:]))

    def _observe(self, state: Float[Array, " 4"], key: Key[Array, ""]) -> Float[Array, " obs"]:
        return jnp.concatenate([state, jax.random.normal(key, (self.distractors,))])


def walk(obs: np.ndarray) -> np.ndarray:
    """The expert of `Field`: first east or west, then north or south."""
    east, north = obs[:, 2] - obs[:, 0], obs[:, 3] - obs[:, 1]
    return np.where(np.abs(east) > 0.5, np.where(east > 0, 0, 1), np.where(north > 0, 2, 3))


class Darts(us.Environment):
    """Throw at either of two targets: observation (left target, right target, wind), action: the aim."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((3,), us.Continuous((-2.0,), (2.0,)), 12)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 3"], Float[Array, " 3"]]:
        low, high = jnp.array([-1.2, 0.5, -0.5]), jnp.array([-0.5, 1.2, 0.5])
        state = jax.random.uniform(key, (3,), minval=low, maxval=high)
        return state, state

    def step(self, state: Float[Array, " 3"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        miss = jnp.min(jnp.abs(jnp.clip(act[0], -2.0, 2.0) + state[2] - state[:2]))
        new, obs = self.reset(key)
        return us.Timestep(new, obs, jnp.exp(-((miss / 0.2) ** 2)), jnp.array(False))


def throw(seed: int, left: float = 0.5) -> Act:
    """An expert of `Darts`: it throws at the left target with this probability, else at the right one."""
    random = np.random.default_rng(seed)
    return lambda obs: np.where(random.random(len(obs)) < left, obs[:, 0], obs[:, 1])[:, None] - obs[:, 2:]


class Compass(us.Environment):
    """Turn a boat to the north: observation (cos, sin of the heading), action: the turn. It starts facing south."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((2,), us.Continuous((-1.0,), (1.0,)), 30)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, ""], Float[Array, " 2"]]:
        heading = jnp.pi + jax.random.uniform(key, (), minval=-0.3, maxval=0.3)
        return heading, self._observe(heading)

    def step(self, state: Float[Array, ""], act: Array, key: Key[Array, ""]) -> us.Timestep:
        new = state + 0.3 * jnp.clip(act[0], -1.0, 1.0)
        return us.Timestep(new, self._observe(new), jnp.cos(new), jnp.array(False))

    def _observe(self, state: Float[Array, ""]) -> Float[Array, " 2"]:
        return jnp.stack([jnp.cos(state), jnp.sin(state)])


def turn_north(seed: int) -> Act:
    """The expert of `Compass`: it turns the shorter way, or facing south either way."""
    random = np.random.default_rng(seed)

    def turn(obs: np.ndarray) -> np.ndarray:
        heading = np.arctan2(obs[:, 1], obs[:, 0])
        side = np.where(np.abs(heading) > 2.6, random.choice([-1.0, 1.0], len(obs)), -np.sign(heading))
        return np.where(np.abs(heading) > 0.3, side, -heading / 0.3)[:, None]

    return turn


class Place(us.Environment):
    """Put parts down with a two-joint arm: observation (place, weight), action: both joint angles, 15 parts."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((3,), us.Continuous((-3.0, -3.0), (3.0, 3.0)), 15)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 3"], Float[Array, " 3"]]:
        low, high = jnp.array([-1.0, 0.6, 0.0]), jnp.array([1.0, 1.6, 1.0])
        angle, radius, weight = jax.random.uniform(key, (3,), minval=low, maxval=high)
        state = jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle), weight])
        return state, state

    def step(self, state: Float[Array, " 3"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        first, second = jnp.clip(act, -3.0, 3.0)
        tip = jnp.stack([f(first - 0.1 * state[2]) + f(first - 0.1 * state[2] + second) for f in (jnp.cos, jnp.sin)])
        new, obs = self.reset(key)
        return us.Timestep(new, obs, -jnp.linalg.norm(tip - state[:2]), jnp.array(False))


def put(elbow: float) -> Act:
    """An expert of `Place`: with the elbow on side 1 or -1."""

    def angles(obs: np.ndarray) -> np.ndarray:
        second = elbow * np.arccos(np.clip((obs[:, :2] ** 2).sum(axis=1) / 2 - 1, -1.0, 1.0))
        return np.stack([np.arctan2(obs[:, 1], obs[:, 0]) - second / 2 + 0.1 * obs[:, 2], second], axis=1)

    return angles


class Arm(us.Environment):
    """Bring the tip of a two-joint arm to a target: observation (cos, sin of both joints, target), action: speeds."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((6,), us.Continuous((-1.0, -1.0), (1.0, 1.0)), 40)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 4"], Float[Array, " obs"]]:
        low, high = jnp.array([-1.2, -2.2, -1.0, 0.6]), jnp.array([1.2, 2.2, 1.0, 1.6])
        first, second, angle, radius = jax.random.uniform(key, (4,), minval=low, maxval=high)
        state = jnp.stack([first, second, radius * jnp.cos(angle), radius * jnp.sin(angle)])
        return state, self._observe(state)

    def step(self, state: Float[Array, " 4"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        joints = jnp.clip(state[:2] + 0.15 * jnp.clip(act, -1.0, 1.0), -3.0, 3.0)
        new = jnp.concatenate([joints, state[2:]])
        tip = jnp.stack([f(joints[0]) + f(joints[0] + joints[1]) for f in (jnp.cos, jnp.sin)])
        return us.Timestep(new, self._observe(new), -jnp.linalg.norm(tip - state[2:]), jnp.array(False))

    def _observe(self, state: Float[Array, " 4"]) -> Float[Array, " obs"]:
        angles = state[:2]
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles), state[2:]])


def bend(elbow: float, gain: float = 3.0) -> Act:
    """An expert of `Arm`: to the joint angles that reach the target with the elbow on side 1 or -1."""

    def move(obs: np.ndarray) -> np.ndarray:
        first, second = np.arctan2(obs[:, 2], obs[:, 0]), np.arctan2(obs[:, 3], obs[:, 1])
        squared = (obs[:, 4:6] ** 2).sum(axis=1)
        wanted = elbow * np.arccos(np.clip(squared / 2 - 1, -1.0, 1.0))
        shoulder = np.arctan2(obs[:, 5], obs[:, 4]) - wanted / 2
        return np.clip(gain * np.stack([shoulder - first, wanted - second], axis=1), -1.0, 1.0)

    return move


class MazeState(NamedTuple):
    place: Float[Array, ""]
    side: Float[Array, ""]


class Maze(us.Environment):
    """Walk along a corridor, then turn to the side of a sign: observation (place, sign), actions: ahead, left, right.

    The sign is -1 or 1. It is seen at the first place only, or everywhere. The episode ends with a turn at the end.
    """

    shows_always: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> us.Spec:
        return us.Spec((2,), us.Discrete(3), 20)

    def reset(self, key: Key[Array, ""]) -> tuple[MazeState, Float[Array, " 2"]]:
        state = MazeState(jnp.zeros(()), 2.0 * jax.random.bernoulli(key) - 1.0)
        return state, self._observe(state)

    def step(self, state: MazeState, act: Array, key: Key[Array, ""]) -> us.Timestep:
        end, turns = state.place >= 6.0, act > 0
        right = turns & (2.0 * act - 3.0 == state.side)
        new = MazeState(jnp.minimum(state.place + (act == 0), 6.0), state.side)
        return us.Timestep(new, self._observe(new), 1.0 * (end & right), end & turns)

    def _observe(self, state: MazeState) -> Float[Array, " 2"]:
        seen = self.shows_always | (state.place == 0.0)
        return jnp.stack([state.place, jnp.where(seen, state.side, 0.0)])


def follow_sign(obs: np.ndarray) -> np.ndarray:
    """The expert of `Maze`, which always sees the sign."""
    return np.where(obs[:, 0] < 5.5, 0, np.where(obs[:, 1] > 0, 2, 1))


def hide_sign(obs: np.ndarray) -> np.ndarray:
    """The observations of a `Maze` whose sign is seen at the first place only."""
    return np.stack([obs[:, 0], np.where(obs[:, 0] == 0.0, obs[:, 1], 0.0)], axis=1).astype(np.float32)


class RoadState(NamedTuple):
    phase: Float[Array, ""]
    error: Float[Array, " 2"]
    """Sideways distance from the middle, and heading relative to the road."""


class Road(us.Environment):
    """Steer a car that is unstable: observation (cos, sin of the phase, place, heading), action: steering.

    Place and heading are measured on the map, not relative to the road, and demonstrations stay in the middle. The
    episode ends off the road.
    """

    spread: float = eqx.field(static=True, default=0.0)
    """How far from the middle episodes start."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((4,), us.Continuous((-3.0,), (3.0,)), 120)

    def reset(self, key: Key[Array, ""]) -> tuple[RoadState, Float[Array, " 4"]]:
        phase_key, error_key = jax.random.split(key)
        error = self.spread * jax.random.uniform(error_key, (2,), minval=-1.0)
        state = RoadState(jax.random.uniform(phase_key, (), maxval=2 * jnp.pi), error)
        return state, self._observe(state)

    def step(self, state: RoadState, act: Array, key: Key[Array, ""]) -> us.Timestep:
        place, heading = state.error
        turn = jnp.clip(act[0], -3.0, 3.0) - _curvature(state.phase)
        error = jnp.stack([place + 0.2 * heading, 1.05 * heading + 0.1 * place + 0.2 * turn])
        new = RoadState(state.phase + 0.08, error)
        return us.Timestep(new, self._observe(new), jnp.ones(()), jnp.abs(error[0]) > 0.5)

    def _observe(self, state: RoadState) -> Float[Array, " 4"]:
        course = jnp.stack([jnp.sin(3.0 * state.phase), jnp.cos(2.0 * state.phase)])
        return jnp.concatenate([jnp.stack([jnp.cos(state.phase), jnp.sin(state.phase)]), course + state.error])


def _curvature(phase: Any) -> Any:
    return jnp.cos(4.0 * phase)


def steer() -> Act:
    """The expert of `Road`."""

    def keep_the_middle(obs: np.ndarray) -> np.ndarray:
        phase = np.arctan2(obs[:, 1], obs[:, 0])
        place, heading = obs[:, 2] - np.sin(3.0 * phase), obs[:, 3] - np.cos(2.0 * phase)
        return np.clip(np.cos(4.0 * phase) - 4.0 * heading - 4.0 * place, -3.0, 3.0)[:, None]

    return keep_the_middle


class Stock(us.Environment):
    """Order goods for random demand: observation (stock, on its way, expected demand), actions: order 0 to 6."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((3,), us.Discrete(7), 50)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 3"], Float[Array, " 3"]]:
        state = jnp.round(jax.random.uniform(key, (3,), maxval=jnp.array([10.0, 4.0, 4.0])))
        return state, state

    def step(self, state: Float[Array, " 3"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        stock, coming, expected = state
        sold_key, season_key = jax.random.split(key)
        left = stock + coming - jax.random.poisson(sold_key, expected)
        cost = jnp.maximum(left, 0.0) + 4.0 * jnp.maximum(-left, 0.0)
        expected = jnp.clip(expected + jax.random.randint(season_key, (), -1, 2), 0.0, 5.0)
        new = jnp.stack([jnp.clip(left, -10.0, 30.0), act.astype(jnp.float32), expected])
        return us.Timestep(new, new, -cost, jnp.array(False))


def order(obs: np.ndarray) -> np.ndarray:
    """The expert of `Stock`: fill up to a level that covers two steps of expected demand and a reserve."""
    return np.clip(np.rint(2.0 * obs[:, 2] + 2.0 - obs[:, 0] - obs[:, 1]), 0, 6).astype(np.int64)


def swing_acrobot(obs: np.ndarray) -> np.ndarray:
    """An expert of Acrobot-v1: push the second joint in the direction of its speed."""
    return np.where(obs[:, 5] > 0, 2, 0)


def rock_car(obs: np.ndarray) -> np.ndarray:
    """An expert of MountainCar-v0: push in the direction of the speed."""
    return np.where(obs[:, 1] >= 0, 2, 0)
