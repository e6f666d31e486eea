"""The faster step of Bullet's walkers is the original one, to the last bit."""

import importlib.util

import gymnasium
import numpy as np
import pytest

import understudy as us
from understudy.envs.bullet import Stride, quickened
from understudy.envs.gymnasium import quiet

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pybullet_envs_gymnasium") is None, reason="needs the bullet extra"
)
WALKERS = ("HalfCheetahBulletEnv-v0", "AntBulletEnv-v0", "HopperBulletEnv-v0", "Walker2DBulletEnv-v0")


def both(name):
    import pybullet_envs_gymnasium  # noqa: F401

    return [gymnasium.make(name, disable_env_checker=True) for _ in range(2)]


@pytest.mark.parametrize("name", WALKERS)
def test_a_walker_steps_as_the_original_does_over_resets_and_ends(name):
    with quiet():
        original, quick = both(name)
        assert isinstance(quickened(quick).unwrapped.step, Stride)
        rng, ended = np.random.default_rng(0), 0
        seen = [env.reset(seed=5)[0] for env in (original, quick)]
        for number in range(700):
            np.testing.assert_array_equal(*seen)
            # Some actions beyond the bounds, which both clip, and some that hardly move, so that feet stay down.
            act = (rng.uniform(-1.3, 1.3, original.action_space.shape) * (number % 3 / 2)).astype(np.float32)
            (obs, *told), (own_obs, *own_told) = original.step(act), quick.step(act)
            assert told == own_told
            assert obs.dtype == own_obs.dtype
            seen = [obs, own_obs]
            if told[1] or told[2] or number == 300:
                ended += 1
                seen = [env.reset(seed=number)[0] for env in (original, quick)]
        assert ended
        assert original.unwrapped.robot.feet_contact.tolist() == quick.unwrapped.robot.feet_contact.tolist()
        for env in (original, quick):
            env.close()


def test_an_action_that_is_not_finite_is_refused():
    with quiet():
        walker = us.envs.make("HopperBulletEnv-v0").one()
        walker.reset(seed=0)
        with pytest.raises(AssertionError):
            walker.step(np.full(3, np.nan, np.float32))
        walker.close()


def test_tasks_of_other_packages_are_left_alone():
    env = gymnasium.make("CartPole-v1")
    step = env.unwrapped.step
    assert quickened(env).unwrapped.step == step
