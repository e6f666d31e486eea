"""Gymnasium spaces as flat arrays."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten

from understudy.core.errors import SpecError
from understudy.core.spaces import actions_of, flat_observations, observation_parts
from understudy.core.types import Discrete

NESTED = spaces.Dict(
    {
        "arm": spaces.Dict({"pos": spaces.Box(-1, 1, (2, 3)), "grip": spaces.Discrete(3, start=-1)}),
        "goal": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
    }
)


def test_a_nested_observation_is_flat_as_in_gymnasium_and_has_names():
    NESTED.seed(0)
    size, parts = observation_parts(NESTED, "env")
    assert dict(parts) == {"arm.grip": 3, "arm.pos": 6, "goal.0": 2, "goal.1": 2, "goal.2": 5}
    for _ in range(20):
        value = NESTED.sample()
        flat = flat_observations(NESTED, value)
        assert flat.dtype == np.float32
        assert flat.shape == (size,)
        np.testing.assert_array_equal(flat, flatten(NESTED, value))


def test_a_batch_is_flattened_row_by_row():
    NESTED.seed(1)
    values = [NESTED.sample() for _ in range(4)]
    batch = {
        "arm": {key: np.stack([v["arm"][key] for v in values]) for key in ("pos", "grip")},
        "goal": tuple(np.stack([v["goal"][i] for v in values]) for i in range(3)),
    }
    rows = np.stack([flat_observations(NESTED, value) for value in values])
    np.testing.assert_array_equal(flat_observations(NESTED, batch, count=4), rows)


def test_a_flat_box_has_no_names():
    assert observation_parts(spaces.Box(-1, 1, (3,)), "env") == (3, ())


def test_images_are_refused_with_their_name():
    space = spaces.Dict({"camera": spaces.Box(0, 255, (64, 64, 3), np.uint8), "pos": spaces.Box(-1, 1, (2,))})
    with pytest.raises(SpecError, match="image observation 'camera'"):
        observation_parts(space, "env")


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (3,)),
        spaces.Box(-1, 2, (2, 2)),
        spaces.Discrete(4),
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiDiscrete([[2, 3], [2, 2]]),
        spaces.MultiDiscrete([2, 3], start=[5, 6]),
        spaces.MultiBinary(3),
        spaces.MultiBinary((2, 2)),
    ],
    ids=str,
)
def test_actions_go_to_the_policy_and_back(space):
    space.seed(0)
    actions = actions_of(space, "env")
    batch = np.stack([space.sample() for _ in range(50)])
    coded = actions.encode(batch)
    back = actions.decode(coded)
    np.testing.assert_array_equal(back, batch)
    assert all(space.contains(one.astype(space.dtype)) for one in back)
    assert len(np.unique(coded, axis=0)) == len(np.unique(batch, axis=0))
    assert not actions.space.outside(coded).any()


def test_every_combination_of_a_small_multi_discrete_is_one_action():
    actions = actions_of(spaces.MultiDiscrete([2, 3]), "env")
    assert actions.space == Discrete(6)
    assert len(np.unique(actions.decode(np.arange(6)), axis=0)) == 6


def test_invalid_actions_raise():
    with pytest.raises(ValueError, match="invalid entry"):
        actions_of(spaces.MultiDiscrete([2, 3]), "env").encode(np.array([[1, 3]]))
    with pytest.raises(ValueError, match="out of range"):
        actions_of(spaces.Discrete(3, start=1), "env").encode(np.array([0]))


def test_a_box_without_bounds_has_no_space_yet():
    actions = actions_of(spaces.Box(-np.inf, np.inf, (2,)), "env")
    assert actions.space is None
    assert actions.size == 2


def test_an_action_of_too_many_numbers_is_refused_at_once():
    with pytest.raises(SpecError, match="10000000 discrete numbers"):
        actions_of(spaces.MultiBinary(10_000_000), "env")


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Tuple((spaces.Discrete(2),))])
def test_other_action_spaces_are_refused(space):
    with pytest.raises(SpecError, match="env has the action space"):
        actions_of(space, "env")
