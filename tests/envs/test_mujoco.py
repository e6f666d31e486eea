"""MuJoCo's tasks continue from a demonstrated step as the episode did."""

import importlib.util

import numpy as np
import pytest

import understudy as us
from understudy.core.errors import NeedsError

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="needs the mujoco extra")
SHORT_ANT = {"include_cfrc_ext_in_observation": False}
SHORT_HUMANOID = {
    **SHORT_ANT,
    "include_cinert_in_observation": False,
    "include_cvel_in_observation": False,
    "include_qfrc_actuator_in_observation": False,
}
TASKS = {
    "HalfCheetah-v5": ({}, 17),
    "Hopper-v5": ({}, 11),
    "Walker2d-v5": ({}, 17),
    "Ant-v5": (SHORT_ANT, 27),
    "Humanoid-v5": (SHORT_HUMANOID, 45),
    "InvertedPendulum-v5": ({}, 4),
}


@pytest.mark.parametrize("name", TASKS)
def test_it_continues_as_the_episode_did(name):
    args, size = TASKS[name]
    env = us.make(name, env_args=args)
    assert env.spec.obs_shape == (size,)
    played, placed = env.copies(2)
    obs, rng = played.reset(0), np.random.default_rng(0)
    space, compared = env.spec.action, 0
    for number in range(40):
        act = 0.3 * rng.uniform(space.low, space.high).astype(np.float32)
        placed.reset(number)
        np.testing.assert_allclose(placed.set_state(obs), obs, atol=1e-6)
        there, here = placed.step(act), played.step(act)
        if np.abs(obs).max() < 10:  # Hopper and Walker2d clip velocities there
            np.testing.assert_allclose(there.obs, here.obs, atol=1e-3)
            compared += 1
        if here.terminal:
            break
        obs = here.obs
    assert compared


def test_contact_forces_are_not_a_state():
    with pytest.raises(NeedsError, match="include_cfrc_ext_in_observation=False"):
        us.make("Ant-v5").check_settable()


def test_filter_trains_on_mujoco(tmp_path):
    demos = us.record("InvertedPendulum-v5", lambda obs: -obs[:, 1:2] * 3, episodes=3, workers=0)
    small = {"hidden": (8,), "gradient_steps": 4}
    learner = us.filter(rounds=2, round_steps=128, random_steps=32, sac=small, discriminator_hidden=(8,))
    result = us.imitate(learner, demos, "InvertedPendulum-v5", progress=False, workers=0)
    assert np.isfinite(result.metrics["payoff"]).all()
