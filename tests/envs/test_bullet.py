"""The faster step of PyBullet's walkers equals the original one bit for bit."""

import importlib.util

import gymnasium
import numpy as np
import pytest

import understudy as us
from understudy.envs.bullet import FastStep, speed_up
from understudy.envs.output import redirected

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pybullet_envs_gymnasium") is None, reason="needs the bullet extra"
)
WALKERS = ("HalfCheetahBulletEnv-v0", "AntBulletEnv-v0", "HopperBulletEnv-v0", "Walker2DBulletEnv-v0")


def make_two(name):
    import pybullet_envs_gymnasium  # noqa: F401

    return [gymnasium.make(name, disable_env_checker=True) for _ in range(2)]


@pytest.mark.parametrize("name", WALKERS)
def test_a_fast_walker_equals_the_original_over_resets_and_terminations(name):
    with redirected(quiet=True):
        original, fast = make_two(name)
        assert isinstance(speed_up(fast).unwrapped.step, FastStep)
        rng, resets = np.random.default_rng(0), 0
        observations = [env.reset(seed=5)[0] for env in (original, fast)]
        for number in range(400):
            np.testing.assert_array_equal(*observations)
            # Some actions are out of bounds, so that both clip; some are small, so that feet stay on the ground.
            act = (rng.uniform(-1.3, 1.3, original.action_space.shape) * (number % 3 / 2)).astype(np.float32)
            (obs, *rest), (fast_obs, *fast_rest) = original.step(act), fast.step(act)
            assert rest == fast_rest
            assert obs.dtype == fast_obs.dtype
            observations = [obs, fast_obs]
            if rest[1] or rest[2] or number == 200:
                resets += 1
                observations = [env.reset(seed=number)[0] for env in (original, fast)]
        assert resets
        assert original.unwrapped.robot.feet_contact.tolist() == fast.unwrapped.robot.feet_contact.tolist()
        for env in (original, fast):
            env.close()


def test_an_action_that_is_not_finite_raises():
    with redirected(quiet=True):
        walker = us.envs.make("HopperBulletEnv-v0").make_env()
        walker.reset(seed=0)
        with pytest.raises(AssertionError):
            walker.step(np.full(3, np.nan, np.float32))
        walker.close()


def test_environments_of_other_packages_are_unchanged():
    env = gymnasium.make("CartPole-v1")
    step = env.unwrapped.step
    assert speed_up(env).unwrapped.step == step
