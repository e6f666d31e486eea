"""What tests share: small demonstrations of both kinds, and a compilation cache that the suite fills for itself."""

import jax
import numpy as np
import pytest

import understudy as us


@pytest.fixture(scope="session")
def continuous() -> us.Demonstrations:
    """A linear expert on random states, 6 episodes of different length, actions well inside [-2, 2]."""
    rng = np.random.default_rng(0)
    lengths = np.array([30, 50, 20, 40, 35, 25])
    observations = rng.normal(size=(lengths.sum(), 3)).astype(np.float32)
    actions = np.clip(observations @ np.array([[0.4], [-0.3], [0.2]], np.float32) + 0.1, -2, 2)
    return us.Demonstrations.from_arrays(observations, actions, lengths, action_space=us.Continuous((-2.0,), (2.0,)))


@pytest.fixture(scope="session")
def discrete() -> us.Demonstrations:
    """An expert that picks one of three actions by a linear rule."""
    rng = np.random.default_rng(1)
    lengths = np.array([40, 60, 50, 30])
    observations = rng.normal(size=(lengths.sum(), 4)).astype(np.float32)
    actions = (observations @ rng.normal(size=(4, 3))).argmax(1)
    return us.Demonstrations.from_arrays(observations, actions, lengths, action_space=us.Discrete(3))


@pytest.fixture
def keys():
    return jax.random.split(jax.random.key(0), 3)
