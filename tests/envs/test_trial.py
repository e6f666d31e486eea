"""Mistakes of a person's own JAX environment are one line that names the method."""

import jax
import jax.numpy as jnp
import pytest

import understudy as us
from understudy.core.errors import SpecError


class Point(us.Environment):
    @property
    def spec(self):
        return us.Spec((2,), us.Continuous((-1.0,), (1.0,)), horizon=5)

    def reset(self, key):
        state = jax.random.uniform(key, (2,))
        return state, state

    def step(self, state, act, key):
        new = state + 0.1 * act[0]
        return us.Timestep(new, new, -new[0], terminal=new[0] > 2)


class NoHorizon(Point):
    @property
    def spec(self):
        return us.Spec((2,), us.Continuous((-1.0,), (1.0,)))


class NoKey(Point):
    def reset(self):
        return jnp.zeros(2), jnp.zeros(2)


class OneValue(Point):
    def reset(self, key):
        return jnp.zeros(2)


class ThreeNumbers(Point):
    def reset(self, key):
        return jnp.zeros(2), jnp.zeros(3)


class GymnasiumStep(Point):
    def step(self, state, act, key):
        return state, 0.0, False, False, {}


class Branching(Point):
    def step(self, state, act, key):
        return us.Timestep(state, state, float(state[0]), terminal=state[0] > 2)


class WideReward(Point):
    def step(self, state, act, key):
        return us.Timestep(state, state, act, terminal=state[0] > 2)


class WideSuccess(Point):
    def step(self, state, act, key):
        return us.Timestep(state, state, act[0], terminal=state[0] > 2, success=act > 0)


class OtherState(Point):
    def step(self, state, act, key):
        return us.Timestep((state, act), state, act[0], terminal=state[0] > 2)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (NoHorizon, "NoHorizon.spec raised TypeError: .*horizon"),
        (NoKey, r"NoKey.reset\(key\) raised TypeError"),
        (OneValue, r"OneValue.reset returned a .*: \(state, observation\) is needed"),
        (ThreeNumbers, r"ThreeNumbers.reset returned the observation .*: shape \(2,\) is needed"),
        (GymnasiumStep, "GymnasiumStep.step returned a tuple: understudy.Timestep"),
        (Branching, r"Branching.step\(state, act, key\) raised .*Error: "),
        (WideReward, r"WideReward.step returned the reward .*: shape \(\) is needed"),
        (WideSuccess, r"WideSuccess.step returned the success .*: shape \(\) is needed"),
        (OtherState, "OtherState.step returned a state of shapes"),
    ],
)
def test_a_wrong_environment_is_one_line(env, message):
    with pytest.raises(SpecError, match=message) as caught:
        us.record(env(), lambda obs: 0 * obs[:, :1], episodes=2)
    assert "\n" not in str(caught.value)


def test_a_right_environment_is_returned_unchanged():
    env = Point()
    assert us.make(env) is env
