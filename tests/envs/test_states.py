"""Environments that can be set to a state: what the state of an observation is, and what cannot be set."""

import functools
from typing import ClassVar

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import understudy as us
from support.envs import Line
from understudy.core.errors import NeedsError, SpecError, WorkerError
from understudy.core.types import Spec
from understudy.envs import Environment, Timestep
from understudy.envs.states import check_reached, state_setter
from understudy.envs.trial import check_set_state
from understudy.tabular import examples

FINITE = us.envs.Finite.of(examples.tree(3, 2), time=True)
JAX = {"Pendulum": us.make("Pendulum"), "Forest": us.make("Forest"), "Finite": FINITE}


@pytest.mark.parametrize("name", JAX)
def test_a_jax_task_continues_from_a_demonstrated_step_as_the_episode_did(name):
    """With the same key and action, the next observation and the reward are those of the episode."""
    env, key = JAX[name], jax.random.key(0)
    step, place = jax.jit(lambda *given: env.step(*given)), jax.jit(lambda *given: env.set_state(*given))
    state, obs = env.reset(key)
    expert = env.expert()
    carry = jax.tree.map(jnp.asarray, expert.reset(key))
    for t in range(min(env.spec.horizon, 12)):
        placed, seen = place(obs, jnp.asarray(t))
        np.testing.assert_allclose(seen, obs, atol=1e-5)
        act = expert.draw(carry, obs, jax.random.fold_in(key, t))
        there, here = (step(one, act, jax.random.fold_in(key, 100 + t)) for one in (placed, state))
        np.testing.assert_allclose(there.obs, here.obs, atol=1e-4)
        np.testing.assert_allclose(there.reward, here.reward, atol=1e-3)
        assert bool(there.terminal) == bool(here.terminal)
        if here.terminal:
            break
        state, obs, carry = here.state, here.obs, carry._replace(t=carry.t + 1)


def test_several_forests_are_told_apart_by_the_observation():
    env = us.envs.Forest.plant(jax.random.key(1), layouts=3)
    for number in range(6):
        state, obs = env.reset(jax.random.key(number))
        assert int(env.set_state(obs, 0)[0].layout) == int(state.layout)


CLASSIC = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"]


@pytest.mark.parametrize("name", CLASSIC)
def test_a_classic_task_continues_as_the_episode_did(name):
    env = us.make(name)
    played, placed = env.copies(2)
    played.reset(3)
    rng, obs = np.random.default_rng(0), None
    for number in range(20):
        space = env.spec.action
        discrete = isinstance(space, us.Discrete)
        act = np.int64(rng.integers(space.n)) if discrete else rng.uniform(space.low, space.high).astype(np.float32)
        if obs is not None:
            placed.reset(number)
            np.testing.assert_allclose(placed.set_state(obs), obs, atol=1e-5)
        step = played.step(act)
        if obs is not None:
            again = placed.step(act)
            np.testing.assert_allclose(again.obs, step.obs, atol=1e-4)
            assert again.reward == pytest.approx(step.reward, abs=1e-3)
        obs = step.obs


# ---------------------------------------------------------------------------------- a person's environments


class Own(gymnasium.Env):
    """Counts in twos. The state is the observation; `shift` misplaces it, `returned` is what set_state returns."""

    observation_space = gymnasium.spaces.Box(-100, 100, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, shift=0.0, returned="obs"):
        self.shift, self.returned, self.numbers = shift, returned, np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.numbers = np.zeros(2, np.float32)
        return self.numbers.copy(), {}

    def step(self, action):
        self.numbers = self.numbers + np.float32(2)
        return self.numbers.copy(), 1.0, False, False, {}

    def set_state(self, obs):
        self.numbers = obs + np.float32(self.shift)
        if self.returned == "raises":
            raise LookupError("no such place")
        return {"obs": self.numbers.copy(), "none": None, "pair": (self.numbers, {})}[self.returned]


class Placing(gymnasium.ObservationWrapper):
    """A wrapper that doubles observations, and can be set to a state."""

    def observation(self, obs):
        return obs * 2

    def set_state(self, obs):
        return self.observation(self.env.unwrapped.set_state(obs / 2))


class Doubling(gymnasium.ObservationWrapper):
    def observation(self, obs):
        return obs * 2


def own(horizon=10, **options):
    return us.make(functools.partial(Own, **options), horizon)


@pytest.mark.parametrize("returned", ["obs", "none"])
def test_a_persons_environment_is_set_by_its_method(returned):
    one = own(returned=returned).copy()
    one.reset(0)
    np.testing.assert_array_equal(one.set_state(np.array([4, 6], np.float32)), [4, 6])
    np.testing.assert_array_equal(one.step(np.zeros(1)).obs, [6, 8])


def test_a_wrapper_of_ones_own_is_set_by_its_method():
    one = us.make(Own, 10, wrap=[Placing]).copy()
    one.reset(0)
    np.testing.assert_array_equal(one.set_state(np.array([4, 6], np.float32)), [4, 6])
    np.testing.assert_array_equal(one.step(np.zeros(1)).obs, [8, 10])


def test_wrappers_that_leave_observations_alone_are_looked_through():
    wrap = ["gymnasium.wrappers:ClipAction", "gymnasium.wrappers:RecordEpisodeStatistics"]
    us.make(Own, 10, wrap=wrap).check_settable()
    us.make("Pendulum-v1", wrap=wrap).check_settable()


def test_what_cannot_be_set_is_named_with_what_to_define():
    with pytest.raises(NeedsError, match=r"Doubling.*set_state\(obs\)"):
        us.make(Own, 10, wrap=[Doubling]).check_settable()
    with pytest.raises(NeedsError, match="NormalizeObservation"):
        us.make("Pendulum-v1", wrap=["gymnasium.wrappers:NormalizeObservation"]).check_settable()

    class Plain(Own):
        set_state = None

    with pytest.raises(NeedsError, match=r"set_state\(obs\)"):
        state_setter(Plain(), "Plain")

    class Closed(Line):
        name: ClassVar[str] = "Closed"
        set_state = Environment.set_state

    check_set_state(Line())
    with pytest.raises(NeedsError, match=r"Closed.set_state\(obs, t\)"):
        check_set_state(Closed())


def test_a_state_that_is_observed_otherwise_is_an_error():
    one = own(shift=0.5).copy()
    one.reset(0)
    with pytest.raises(SpecError, match=r"observed at 4\.5 in its number 0, not 4"):
        one.set_state(np.array([4, 6], np.float32))
    cart = us.make("Pendulum-v1").copy()
    cart.reset(0)
    with pytest.raises(SpecError, match="Pendulum-v1"):  # not a point of the circle
        cart.set_state(np.array([0.5, 0.5, 0.0], np.float32))
    with pytest.raises(SpecError, match="nan"):
        check_reached("Own", np.zeros(1), np.full(1, np.nan), "")


def test_what_a_method_raises_or_returns_is_named():
    for returned, error, words in (("raises", WorkerError, "no such place"), ("pair", SpecError, "tuple of 2")):
        one = own(returned=returned).copy()
        one.reset(0)
        with pytest.raises(error, match=words) as found:
            one.set_state(np.zeros(2, np.float32))
        assert "set_state(obs)" in str(found.value)


def test_a_cart_that_has_fallen_is_set_upright_again():
    """Gymnasium's CartPole remembers that its episode is over until it is reset."""
    one = us.make("CartPole-v1").copy()
    one.reset(0)
    while not one.step(np.int64(1)).terminal:
        pass
    one.reset(1)
    one.set_state(np.zeros(4, np.float32))
    assert one.step(np.int64(1)).reward == 1
    assert isinstance(one._env.unwrapped, CartPoleEnv)


class Misplaced(Environment):
    """`set_state` returns what a test wants."""

    returned: str = eqx.field(static=True, default="state")

    @property
    def spec(self):
        return Spec((2,), us.Continuous((-1.0,), (1.0,)), 5)

    def reset(self, key):
        return jnp.zeros(2), jnp.zeros(2)

    def step(self, state, act, key):
        return Timestep(state, state, jnp.zeros(()), jnp.array(False))

    def set_state(self, obs, t):
        return {"state": obs, "shape": (obs[:1], obs), "obs": (obs, obs[:1])}[self.returned]


@pytest.mark.parametrize(("returned", "words"), [("state", "observation"), ("shape", "state"), ("obs", "shape")])
def test_a_mistake_in_a_jax_environment_is_one_line(returned, words):
    with pytest.raises(SpecError, match=f"Misplaced.set_state.*{words}"):
        check_set_state(Misplaced(returned))
