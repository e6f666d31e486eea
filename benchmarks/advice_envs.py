"""Small tasks with scripted experts on which `understudy advise` is tested (benchmarks/advice.py).

No rule, default or result of the project was made on them. This list, the situations and the learners were written down
before anything was trained.

    task        actions      horizon  a mistake                        the expert in alike states
    Boulder     continuous   50       ends the episode (crash)         passes on either side
    Ledge       discrete     100      ends the episode (fall)          acts alike
    Stilts      continuous   500      ends the episode (fall)          acts alike
    Chase       continuous   500      costs little                     acts alike
    Sorter      discrete     50       costs one step                   acts alike
    Gait        continuous   200      costs a few steps                walks in one of two gaits in each episode
    Errands     discrete     60       costs two steps                  visits two places in either order

Held back until the rules have changed, if they do:

    Greenhouse  discrete     500      costs a few steps                acts alike
    Bend        continuous   200      ends the episode (crash)         acts alike

Situations: 3 and 20 demonstrations, for a person who has demonstrations alone, an environment too, or an expert too.
Learners: bc, bc with the likelihood loss and with the preset mixture (continuous actions), advil; adril, gail, sqil;
dagger, daequil, aggrevate. All with the settings of the preset "quick", two seeds, 50 episodes per policy; adril, gail
and sqil with 10,000 environment steps each (quick has 30,000, 20,000 and 10,000), and adril with 512 features (2,048):
it took too long, which was seen on Boulder before it had finished there.

A learner is *close* if its return is at most 5% of (the expert's return − that of random actions) below the best one
of the same situation.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

import advice_experts as experts
import understudy as us
from understudy.policies import Policy


class Boulder(us.Environment):
    """Drive past a boulder: observation (x, y, sideways speed, the boulder's x and y), action: a sideways force."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((5,), us.Continuous((-1.0,), (1.0,)), 50)

    def reset(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        y, bx, by = jax.random.uniform(
            key, (3,), minval=jnp.array([-0.5, 4.0, -0.5]), maxval=jnp.array([0.5, 7.0, 0.5])
        )
        state = jnp.stack([jnp.zeros(()), y, jnp.zeros(()), bx, by])
        return state, state

    def step(self, state: Array, act: Array, key: Key[Array, ""]) -> us.Timestep:
        x, y, speed, bx, by = state
        speed = 0.8 * speed + 0.04 * jnp.clip(act[0], -1.0, 1.0) + 0.005 * jax.random.normal(key)
        new = jnp.stack([x + 0.2, y + speed, speed, bx, by])
        crash = (new[0] - bx) ** 2 + (new[1] - by) ** 2 < 1.0
        return us.Timestep(new, new, jnp.array(0.2), crash)

    def expert(self) -> Policy:
        return experts.Scripted(experts.pass_boulder)


class Ledge(us.Environment):
    """Walk on a ledge in gusts: observation (place, speed, wind), actions: left, on, right. A fall ends it."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((3,), us.Discrete(3), 100)

    def reset(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        state = jnp.array([0.3, 0.0, 0.03]) * jax.random.uniform(key, (3,), minval=-1.0)
        return state, state

    def step(self, state: Array, act: Array, key: Key[Array, ""]) -> us.Timestep:
        place, speed, wind = state
        wind = 0.9 * wind + 0.012 * jax.random.normal(key)
        speed = 0.9 * speed + 0.08 * (act - 1.0) + wind
        place = place + 0.5 * speed
        new = jnp.stack([place, speed, wind])
        return us.Timestep(new, new, jnp.array(1.0), jnp.abs(place) > 0.6)

    def expert(self) -> Policy:
        return experts.Scripted(experts.keep_to_ledge)


class Stilts(us.Environment):
    """Balance on two coupled stilts: observation (2 angles, 2 speeds), action: 2 torques. It ends with a fall."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((4,), us.Continuous((-1.0,) * 2, (1.0,) * 2), 500)

    def reset(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        state = 0.1 * jax.random.uniform(key, (4,), minval=-1.0)
        return state, state

    def step(self, state: Array, act: Array, key: Key[Array, ""]) -> us.Timestep:
        angle, speed = state[:2], state[2:]
        torque = experts.STIFF @ jnp.clip(act, -1.0, 1.0)
        speed = speed + 0.05 * (4.0 * jnp.sin(angle) + 3.0 * torque) + 0.04 * jax.random.normal(key, (2,))
        angle = angle + 0.05 * speed
        new = jnp.concatenate([angle, speed])
        return us.Timestep(new, new, jnp.array(1.0), jnp.any(jnp.abs(angle) > 0.35))

    def expert(self) -> Policy:
        return experts.Scripted(experts.balance)


class ChaseState(NamedTuple):
    place: Float[Array, " 2"]
    speed: Float[Array, " 2"]
    phase: Float[Array, ""]


class Chase(us.Environment):
    """Follow a light on a figure of eight: observation (way to it, speed, cos, sin of its phase), action: a force."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((6,), us.Continuous((-1.0,) * 2, (1.0,) * 2), 500)

    def reset(self, key: Key[Array, ""]) -> tuple[ChaseState, Array]:
        place_key, phase_key = jax.random.split(key)
        phase = jax.random.uniform(phase_key, (), maxval=2 * jnp.pi)
        state = ChaseState(jax.random.uniform(place_key, (2,), minval=-2.0, maxval=2.0), jnp.zeros(2), phase)
        return state, self._observe(state)

    def step(self, state: ChaseState, act: Array, key: Key[Array, ""]) -> us.Timestep:
        force = jnp.clip(act, -1.0, 1.0) + 0.2 * jax.random.normal(key, (2,))
        speed = 0.9 * state.speed + 0.05 * force
        new = ChaseState(state.place + speed, speed, state.phase + 0.06)
        obs = self._observe(new)
        return us.Timestep(new, obs, -jnp.minimum(jnp.linalg.norm(obs[:2]), 3.0), jnp.array(False))

    def _observe(self, state: ChaseState) -> Array:
        light = jnp.stack([2.0 * jnp.sin(state.phase), jnp.sin(2.0 * state.phase)])
        turn = jnp.stack([jnp.cos(state.phase), jnp.sin(state.phase)])
        return jnp.concatenate([light - state.place, state.speed, turn])

    def expert(self) -> Policy:
        return experts.Scripted(experts.follow)


class Sorter(us.Environment):
    """Sort items: observation: 6 features of an item, actions: 5 bins, reward 1 for the right one. Items are random."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((6,), us.Discrete(5), 50)

    def reset(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        state = jax.random.normal(key, (6,))
        return state, state

    def step(self, state: Array, act: Array, key: Key[Array, ""]) -> us.Timestep:
        new, obs = self.reset(key)
        return us.Timestep(new, obs, (act == experts.sort(state, None)).astype(jnp.float32), jnp.array(False))

    def expert(self) -> Policy:
        return experts.Scripted(experts.sort)


class Gait(us.Environment):
    """Walk: observation (cos, sin of the stride, speed), action: 2 legs, which push if they move apart in rhythm."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((3,), us.Continuous((-1.0,) * 2, (1.0,) * 2), 200)

    def reset(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        phase = jax.random.uniform(key, (), maxval=2 * jnp.pi)
        state = jnp.stack([phase, jnp.zeros(())])
        return state, self._observe(state)

    def step(self, state: Array, act: Array, key: Key[Array, ""]) -> us.Timestep:
        phase, speed = state
        legs = jnp.clip(act, -1.0, 1.0)
        apart = jnp.abs(legs[0] - legs[1]) / 2 * jnp.abs(jnp.sin(phase)) - 0.5 * jnp.abs(legs[0] + legs[1])
        speed = 0.8 * speed + 0.2 * apart
        new = jnp.stack([phase + 0.3 + 0.05 * jax.random.normal(key), speed])
        return us.Timestep(new, self._observe(new), speed, jnp.array(False))

    def _observe(self, state: Array) -> Array:
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])

    def expert(self) -> Policy:
        return experts.Scripted(experts.stride, per_episode=True)


class Errands(us.Environment):
    """Visit two corners of a 7 by 7 board in any order: observation (place, which are visited), 4 moves."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((4,), us.Discrete(4), 60)

    def reset(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        place = jax.random.randint(key, (2,), 2, 5).astype(jnp.float32)
        state = jnp.concatenate([place, jnp.zeros(2)])
        return state, state

    def step(self, state: Array, act: Array, key: Key[Array, ""]) -> us.Timestep:
        move = jnp.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])[act]
        place = jnp.clip(state[:2] + move, 0.0, 6.0)
        arrived = jnp.stack([jnp.all(place == jnp.array([0.0, 6.0])), jnp.all(place == jnp.array([6.0, 0.0]))])
        visited = jnp.maximum(state[2:], arrived)
        new = jnp.concatenate([place, visited])
        return us.Timestep(new, new, jnp.sum(visited - state[2:]) - 0.01, jnp.all(visited > 0))

    def expert(self) -> Policy:
        return experts.Scripted(experts.run_errands)


class Greenhouse(us.Environment):
    """Heat two rooms: observation (temperatures of both and outside), actions: heat one, the other, none."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((3,), us.Discrete(3), 500)

    def reset(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        low, high = jnp.array([5.0, 5.0, 0.0]), jnp.array([25.0, 25.0, 12.0])
        state = jax.random.uniform(key, (3,), minval=low, maxval=high)
        return state, state

    def step(self, state: Array, act: Array, key: Key[Array, ""]) -> us.Timestep:
        room, outside = state[:2], state[2]
        heat = jnp.array([[2.4, 0.0], [0.0, 2.4], [0.0, 0.0]])[act]
        room = room + 0.06 * (outside - room) + 0.03 * (room[::-1] - room) + heat
        outside = jnp.clip(outside + 0.4 * jax.random.normal(key), 0.0, 12.0)
        new = jnp.concatenate([room, outside[None]])
        return us.Timestep(new, new, -jnp.mean(jnp.abs(room - jnp.array([20.0, 17.0]))) / 10.0, jnp.array(False))

    def expert(self) -> Policy:
        return experts.Scripted(experts.heat)


class Bend(us.Environment):
    """Drive on a winding road: observation (place, heading, bends here and ahead), action: steering. It ends off it."""

    @property
    def spec(self) -> us.Spec:
        return us.Spec((4,), us.Continuous((-1.0,), (1.0,)), 200)

    def reset(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        state = jnp.array([0.4, 0.1, 0.5, 0.5]) * jax.random.uniform(key, (4,), minval=-1.0)
        return state, state

    def step(self, state: Array, act: Array, key: Key[Array, ""]) -> us.Timestep:
        place, heading, here, ahead = state
        heading = heading + 0.2 * (jnp.clip(act[0], -1.0, 1.0) - here)
        place = place + 0.3 * jnp.sin(heading)
        here = 0.7 * here + 0.3 * ahead
        ahead = jnp.clip(0.9 * ahead + 0.3 * jax.random.normal(key), -0.8, 0.8)
        new = jnp.stack([place, heading, here, ahead])
        return us.Timestep(new, new, jnp.array(1.0), jnp.abs(place) > 0.7)

    def expert(self) -> Policy:
        return experts.Scripted(experts.keep_to_road)


TASKS: dict[str, type[us.Environment]] = {
    kind.__name__: kind for kind in (Boulder, Ledge, Stilts, Chase, Sorter, Gait, Errands)
}
HELD_BACK: dict[str, type[us.Environment]] = {kind.__name__: kind for kind in (Greenhouse, Bend)}
