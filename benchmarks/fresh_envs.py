"""Small environments and scripted experts for the planted cases of benchmarks/fresh_cases.py."""

from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

import understudy as us
from hidden_envs import Act


class Crane(us.Environment):
    """Move a hanging load to a goal: observation (trolley's place, speed, swing, its rate, goal), action: m/s²."""

    dt: float = eqx.field(static=True, default=0.1)
    """Seconds per step."""
    horizon: int = eqx.field(static=True, default=100)
    shows: tuple[int, ...] = eqx.field(static=True, default=(0, 1, 2, 3, 4))
    """The columns of the state that are observed."""
    parks: bool = eqx.field(static=True, default=False)
    """Whether the episode ends when the load hangs still at the goal."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((len(self.shows),), us.Continuous((-3.0,), (3.0,)), self.horizon)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 5"], Float[Array, " obs"]]:
        limits = jnp.array([3.0, 0.2, 0.5, 0.5, 3.0])
        state = limits * jax.random.uniform(key, (5,), minval=-1.0)
        return state, state[jnp.array(self.shows)]

    def step(self, state: Float[Array, " 5"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        push, goal = jnp.clip(act[0], -3.0, 3.0), state[4]
        place, speed, swing, rate = state[:4]
        steps = max(1, round(self.dt / 0.02))
        rate = rate + 0.05 * jnp.sqrt(self.dt) * jax.random.normal(key)  # wind
        for _ in range(steps):
            small = self.dt / steps
            speed = speed + small * push
            rate = rate - small * (4.9 * jnp.sin(swing) + 0.5 * push * jnp.cos(swing) + 0.05 * rate)
            place, swing = place + small * speed, swing + small * rate
        new = jnp.stack([place, speed, swing, rate, goal])
        cost = jnp.abs(place - goal) + 5.0 * jnp.abs(swing) + 0.1 * jnp.abs(speed)
        done = self.parks & jnp.all(jnp.abs(new[:4] - goal * jnp.eye(4)[0]) < jnp.array([0.08, 0.1, 0.04, 0.1]))
        return us.Timestep(new, new[jnp.array(self.shows)], -cost * self.dt, done)


def lift(damping: float = 3.0) -> Act:
    """The expert of `Crane`: to the goal, while it damps the swing."""

    def move(obs: np.ndarray) -> np.ndarray:
        push = 1.2 * (obs[:, 4] - obs[:, 0]) - 2.2 * obs[:, 1] + 2.0 * obs[:, 2] + damping * obs[:, 3]
        return np.clip(push, -3.0, 3.0)[:, None]

    return move


class Cruise(us.Environment):
    """Follow a lorry: observation (gap, own speed, its speed), action: m/s². It ends with a collision."""

    dt: float = eqx.field(static=True, default=0.2)
    """Seconds per step."""
    horizon: int = eqx.field(static=True, default=100)
    shows_pedal: bool = eqx.field(static=True, default=False)
    """Whether the observation ends with the pedal, 0.3 times the previous action plus 1, with a little noise."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((3 + self.shows_pedal,), us.Continuous((-6.0,), (3.0,)), self.horizon)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 5"], Float[Array, " obs"]]:
        low, high = jnp.array([15.0, 12.0, 12.0, -0.3, 0.0]), jnp.array([60.0, 28.0, 24.0, 0.3, 0.0])
        state = jax.random.uniform(key, (5,), minval=low, maxval=high)
        return state, self._observe(state, key)

    def step(self, state: Float[Array, " 5"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        gap, own, lead, trend, _ = state
        pedal = jnp.clip(act[0], -6.0, 3.0)
        pull = jnp.exp(-self.dt / 4.0)  # the lorry speeds up and slows down for some seconds
        trend = pull * trend + 1.2 * jnp.sqrt(1.0 - pull**2) * jax.random.normal(key)
        lead_after = jnp.clip(lead + self.dt * trend, 5.0, 28.0)
        own_after = jnp.maximum(own + self.dt * pedal, 0.0)
        gap = gap + self.dt * (lead + lead_after - own - own_after) / 2
        new = jnp.stack([gap, own_after, lead_after, trend, pedal])
        comfort = jnp.exp(-(((gap - 4.0 - 1.2 * own_after) / 8.0) ** 2)) - 0.01 * pedal**2
        return us.Timestep(new, self._observe(new, key), comfort * self.dt, gap <= 0.0)

    def _observe(self, state: Float[Array, " 5"], key: Key[Array, ""]) -> Float[Array, " obs"]:
        pedal = 1.0 + 0.3 * state[4:] + 0.01 * jax.random.normal(key, (1,))
        return jnp.concatenate([state[:3], pedal]) if self.shows_pedal else state[:3]


def follow(headway: float = 1.2, hurry: float = 0.5) -> Act:
    """The expert of `Cruise`: it keeps a gap of this many seconds and 4 metres."""

    def pedal(obs: np.ndarray) -> np.ndarray:
        wanted = hurry * (obs[:, 0] - 4.0 - headway * obs[:, 1]) + 1.5 * (obs[:, 2] - obs[:, 1])
        return np.clip(wanted, -6.0, 3.0)[:, None]

    return pedal


class Drone(us.Environment):
    """Hover at 0: observation (x, height, their speeds, tilt, its rate), actions: two thrusts. It ends with a crash."""

    dt: float = eqx.field(static=True, default=0.05)
    """Seconds per step."""
    horizon: int = eqx.field(static=True, default=100)

    @property
    def spec(self) -> us.Spec:
        return us.Spec((6,), us.Continuous((0.0, 0.0), (10.0, 10.0)), self.horizon)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 6"], Float[Array, " 6"]]:
        state = jnp.array([2.0, 2.0, 0.5, 0.5, 0.2, 0.2]) * jax.random.uniform(key, (6,), minval=-1.0)
        return state, state

    def step(self, state: Float[Array, " 6"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        left, right = jnp.clip(act, 0.0, 10.0)
        place, speed, tilt, rate = state[:2], state[2:4], state[4], state[5]
        gust = 0.03 / jnp.sqrt(self.dt) * jax.random.normal(key, (3,))
        rate = rate + self.dt * (3.0 * (right - left) + gust[2])
        tilt = tilt + self.dt * rate
        lift = (left + right) * jnp.stack([-jnp.sin(tilt), jnp.cos(tilt)]) - jnp.array([0.0, 9.81])
        speed = speed + self.dt * (lift + gust[:2])
        new = jnp.concatenate([place + self.dt * speed, speed, jnp.stack([tilt, rate])])
        crashes = (jnp.abs(tilt) > 1.3) | jnp.any(jnp.abs(new[:2]) > 4.0)
        return us.Timestep(new, new, self.dt * (1.0 - jnp.minimum(jnp.linalg.norm(new[:2]), 1.0)), crashes)


def hover(balance: float = 1.0) -> Act:
    """The expert of `Drone`: it tilts towards 0. With little `balance` it tumbles."""

    def thrusts(obs: np.ndarray) -> np.ndarray:
        wanted = np.clip(0.12 * obs[:, 0] + 0.2 * obs[:, 2], -0.4, 0.4)
        turn = balance * (6.0 * (wanted - obs[:, 4]) - 2.0 * obs[:, 5])
        total = (9.81 - 2.0 * obs[:, 1] - 2.5 * obs[:, 3]) / np.maximum(np.cos(obs[:, 4]), 0.5)
        return np.clip(np.stack([total - turn, total + turn], axis=1) / 2, 0.0, 10.0)

    return thrusts


class Warehouse(us.Environment):
    """Fetch a box, then bring it back to the dock: observation (place, box, whether it is carried), 4 actions."""

    hides_load: bool = eqx.field(static=True, default=False)

    @property
    def spec(self) -> us.Spec:
        return us.Spec((5 - self.hides_load,), us.Discrete(4), 60)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 5"], Float[Array, " obs"]]:
        places = jax.random.randint(key, (4,), 0, 4).astype(jnp.float32) + jnp.array([4.0, 4.0, 0.0, 0.0])
        state = jnp.concatenate([places, jnp.zeros(1)])
        return state, self._observe(state)

    def step(self, state: Float[Array, " 5"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        slip_key, turn_key = jax.random.split(key)
        slips = jax.random.bernoulli(slip_key, 0.08)
        act = jnp.where(slips, jax.random.randint(turn_key, (), 0, 4), act)
        ways = jnp.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        place = jnp.clip(state[:2] + ways[act], 0.0, 7.0)
        carried = jnp.maximum(state[4], jnp.all(place == state[2:4]))
        new = jnp.concatenate([place, state[2:4], carried[None]])
        return us.Timestep(new, self._observe(new), jnp.array(-1.0), (carried > 0) & jnp.all(place == 7.0))

    def _observe(self, state: Float[Array, " 5"]) -> Float[Array, " obs"]:
        return state[:4] if self.hides_load else state


def fetch(seed: int = 0, sure: float = 1.0) -> Act:
    """An expert of `Warehouse`, which comes back the same way. It goes x first with this probability, else y first."""
    random = np.random.default_rng(seed)

    def walk(obs: np.ndarray) -> np.ndarray:
        target = np.where(obs[:, 4:] > 0, 7.0, obs[:, 2:4])
        along, across = (target - obs[:, :2]).T
        first = (random.random(len(obs)) < sure) != (obs[:, 4] > 0)
        first = first & (along != 0) | (across == 0)
        return np.where(first, np.where(along > 0, 0, 1), np.where(across > 0, 2, 3))

    return walk


class Greenhouse(us.Environment):
    """Keep 20 degrees and 60% humidity for a day: observation (degrees, humidity, degrees outside, sun).

    Actions: heater from 0 to 20 kW, window from 0 to 1.
    """

    shows_power: bool = eqx.field(static=True, default=False)
    """Whether the observation ends with the measured power of the heater, which is 1 kW above the last action."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((4 + self.shows_power,), us.Continuous((0.0, 0.0), (20.0, 1.0)), 96)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 7"], Float[Array, " obs"]]:
        low = jnp.array([8.0, 40.0, 0.0, 0.0, 0.0, 0.0, 1.0])
        high = jnp.array([26.0, 85.0, 8.0, 0.0, 6.3, 6.0, 1.0])
        state = jax.random.uniform(key, (7,), minval=low, maxval=high)
        return state, self._observe(state)

    def step(self, state: Float[Array, " 7"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        degrees, humidity, outside, sun, hour, cold, _ = state
        heater, window = jnp.clip(act[0], 0.0, 20.0), jnp.clip(act[1], 0.0, 1.0)
        noise = jax.random.normal(key, (4,))
        loss = (0.06 + 0.25 * window) * (degrees - outside)
        degrees = degrees + 0.2 * heater + 0.8 * sun - loss + 0.1 * noise[0]
        damp = 2.0 + 2.0 * sun - (0.02 + 0.3 * window) * (humidity - 35.0)
        humidity = jnp.clip(humidity + damp + 0.5 * noise[1], 0.0, 100.0)
        hour = hour + 2 * jnp.pi / 96
        sun = jnp.clip(jnp.sin(hour) + 0.1 * noise[2], 0.0, 1.0)
        outside = 0.9 * outside + 0.1 * (cold + 5.0 * jnp.sin(hour - 0.5)) + 0.2 * noise[3]
        new = jnp.stack([degrees, humidity, outside, sun, hour, cold, 1.0 + heater])
        cost = jnp.abs(degrees - 20.0) / 5.0 + jnp.abs(humidity - 60.0) / 20.0
        return us.Timestep(new, self._observe(new), -cost / 10.0, jnp.array(False))

    def _observe(self, state: Float[Array, " 7"]) -> Float[Array, " obs"]:
        return jnp.concatenate([state[:4], state[6:]]) if self.shows_power else state[:4]


def grow(wanted: float = 20.0) -> Act:
    """A gardener of `Greenhouse` who likes this temperature."""

    def settings(obs: np.ndarray) -> np.ndarray:
        degrees, humidity, outside, sun = obs[:, :4].T
        window = np.clip((2.0 + 2.0 * sun + 0.3 * (humidity - 60.0)) / 7.5 - 0.07, 0.0, 1.0)
        needed = (0.06 + 0.25 * window) * (wanted - outside) - 0.8 * sun + 0.5 * (wanted - degrees)
        return np.stack([np.clip(needed / 0.2, 0.0, 20.0), window], axis=1)

    return settings


class Sorter(us.Environment):
    """Put parts into one of 5 bins: observation (length, width, weight, hue, gloss, damage), 25 parts an episode."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((6,), us.Discrete(5), 25)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 6"], Float[Array, " 6"]]:
        state = jax.random.uniform(key, (6,), minval=-1.0)
        return state, state

    def step(self, state: Float[Array, " 6"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        heavy, red = state[2] > state[0] * state[1] + 0.3 * state[4], state[3] > 0.2 * state[0]
        right = jnp.where(state[5] > 0.6, 0, 1 + 2 * red + heavy)
        new, obs = self.reset(key)
        return us.Timestep(new, obs, (act == right).astype(jnp.float32), jnp.array(False))


def sort(seed: int = 0, slips: float = 0.0) -> Act:
    """An expert of `Sorter`, who puts this share of the parts into any bin."""
    random = np.random.default_rng(seed)

    def bins(obs: np.ndarray) -> np.ndarray:
        heavy = obs[:, 2] > obs[:, 0] * obs[:, 1] + 0.3 * obs[:, 4]
        right = np.where(obs[:, 5] > 0.6, 0, 1 + 2 * (obs[:, 3] > 0.2 * obs[:, 0]) + heavy)
        return np.where(random.random(len(obs)) < slips, random.integers(5, size=len(obs)), right)

    return bins


class Merge(us.Environment):
    """Join a road before or behind a lorry: observation (lead over it in metres and m/s, seconds left), action: m/s².

    After 4 seconds the car must be 9 metres away from it, or it collides, which ends the episode.
    """

    @property
    def spec(self) -> us.Spec:
        return us.Spec((3,), us.Continuous((-1.2,), (1.2,)), 14)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 3"], Float[Array, " 3"]]:
        state = jnp.array([0.6, 0.1, 0.0]) * jax.random.uniform(key, (3,), minval=-1.0) + jnp.array([0.0, 0.0, 4.0])
        return state, state

    def step(self, state: Float[Array, " 3"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        speed = state[1] + 0.5 * jnp.clip(act[0], -1.2, 1.2) + 0.05 * jax.random.normal(key)
        lead, left = state[0] + 0.5 * speed, state[2] - 0.5
        new = jnp.stack([lead, speed, left])
        joined = left < 0.25
        return us.Timestep(new, new, 1.0 * joined, joined & (jnp.abs(lead) < 9.0))


def merge(seed: int, before: float = 0.5) -> Act:
    """A driver of `Merge` who joins before the lorry with this probability. He decides at the start."""
    random = np.random.default_rng(seed)

    def pedal(obs: np.ndarray) -> np.ndarray:
        side = np.where(random.random(len(obs)) < before, 1.0, -1.0)
        side = np.where(obs[:, 2] > 3.75, side, np.sign(obs[:, 1]))
        return np.where(obs[:, 2] > 0.25, 1.2 * side, np.clip(-obs[:, 1], -1.2, 1.2))[:, None]

    return pedal


class Kiln(gym.Env[Any, Any]):
    """Keep clay between 60 and 80 degrees with few ignitions: observation (degrees, outside, burner), actions: off, on.

    An ignition costs 1. A plain Gymnasium environment, in NumPy.
    """

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-100.0, 200.0, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.np_random.uniform([55.0, 5.0, 0.0], [85.0, 20.0, 0.0])
        self.state[2], self.steps = self.np_random.integers(2), 0
        return self.state.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        degrees, outside, burner = self.state
        ignites = int(action) == 1 and burner == 0
        degrees += 4.0 * int(action) - 0.03 * (degrees - outside) + 0.2 * self.np_random.normal()
        self.state, self.steps = np.array([degrees, outside, float(action)]), self.steps + 1
        reward = 0.1 - ignites - 0.05 * max(0.0, abs(degrees - 70.0) - 12.0)
        return self.state.astype(np.float32), reward, False, self.steps >= 100, {}


KILN = us.make(Kiln(), horizon=100)


def burn(obs: np.ndarray) -> np.ndarray:
    """The expert of `Kiln`: on until 80 degrees, off until 60."""
    return np.where(obs[:, 2] > 0.5, obs[:, 0] < 79.0, obs[:, 0] < 61.0).astype(np.int64)


class Bicycle(us.Environment):
    """Ride a banked track in side wind: observation (cos and sin of the place in the lap, km/h, lean, its rate).

    The lean is measured from the banked road, the rate includes the turning of the road. Action: steering. The rider
    starts upright, and a fall ends the episode.
    """

    @property
    def spec(self) -> us.Spec:
        return us.Spec((5,), us.Continuous((-8.0,), (8.0,)), 100)

    def reset(self, key: Key[Array, ""]) -> tuple[Float[Array, " 4"], Float[Array, " 5"]]:
        lap, speed = jax.random.uniform(key, (2,), maxval=jnp.array([2 * jnp.pi, 10.0]))
        state = jnp.stack([lap, 15.0 + speed, 0.0, 0.0])
        return state, self._observe(state)

    def step(self, state: Float[Array, " 4"], act: Array, key: Key[Array, ""]) -> us.Timestep:
        lap, speed, lean, rate = state
        rate = rate + 0.05 * (6.0 * lean + jnp.clip(act[0], -8.0, 8.0) - _wind(lap, speed, jnp))
        new = jnp.stack([lap + 0.05 * speed / 12.0, speed, lean + 0.05 * rate, rate])
        return us.Timestep(new, self._observe(new), jnp.ones(()), jnp.abs(new[2]) > 1.0)

    def _observe(self, state: Float[Array, " 4"]) -> Float[Array, " 5"]:
        lap, speed, lean, rate = state
        bank, turn = _road(lap, speed, jnp)
        return jnp.stack([jnp.cos(lap), jnp.sin(lap), speed, lean - bank, rate + turn])


def _wind(lap: Any, speed: Any, library: Any) -> Any:
    return 0.12 * speed * library.cos(3.0 * lap + 1.0)


def _road(lap: Any, speed: Any, library: Any) -> tuple[Any, Any]:
    """The bank of the track, and how fast it turns."""
    return 0.4 * library.sin(2.0 * lap), 0.03 * speed * library.cos(lap)


def ride(obs: np.ndarray) -> np.ndarray:
    """The expert of `Bicycle`: against the wind, and against every lean."""
    lap, speed = np.arctan2(obs[:, 1], obs[:, 0]), obs[:, 2]
    bank, turn = _road(lap, speed, np)
    lean, rate = obs[:, 3] + bank, obs[:, 4] - turn
    return np.clip(_wind(lap, speed, np) - 16.0 * lean - 6.0 * rate, -8.0, 8.0)[:, None]
