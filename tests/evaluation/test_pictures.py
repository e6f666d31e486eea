"""Pictures of single states."""

import io

import gymnasium
import numpy as np
import pytest
from PIL import Image

import understudy as us
from understudy.evaluation.pictures import Painter, encoded, number_names


def test_the_pendulum_stands_up_or_hangs() -> None:
    painter = Painter(us.Pendulum())
    up, down = (np.asarray(painter.draw([np.array([cos, 0.0, 0.0])])) for cos in (1.0, -1.0))
    assert up.shape == (360, 360, 3)
    ink = [np.flatnonzero((picture.min(axis=2) < 200).any(axis=1)).mean() for picture in (up, down)]
    assert ink[0] < 180 < ink[1]
    np.testing.assert_array_equal(up[:, ::-1][::-1][100:120], down[100:120])  # the same, turned around


def test_the_drone_is_drawn_where_it_is_and_the_forest_is_not_changed() -> None:
    painter = Painter(us.Forest())
    start = np.array([0.0, 50.0, 0.0, np.pi / 2], np.float32)
    first = np.asarray(painter.draw([start]))
    later = np.asarray(painter.draw([start, np.array([0.0, 50.0, 5.0, np.pi / 2], np.float32)]))
    changed = np.argwhere((first != later).any(axis=2))
    assert len(changed)
    assert changed[:, 1].min() > 160
    assert changed[:, 1].max() < 200  # only around x = 50
    np.testing.assert_array_equal(first, np.asarray(painter.draw([start])))


def test_a_collision_is_red() -> None:
    painter, end = Painter(us.Forest()), np.array([1.0, 50.0, 40.0, np.pi / 2], np.float32)
    alive, dead = (np.asarray(painter.draw([end], terminal)).astype(int) for terminal in (False, True))
    y, x = 360 - round(42 * 360 / 104), round(52 * 360 / 104)
    assert alive[y, x, 1] > 100  # orange
    assert dead[y, x, 1] < 90  # red


def test_other_environments_show_their_numbers() -> None:
    painter = Painter(us.make("CartPole-v1"))
    assert painter.kind == "numbers"
    low, high = (np.asarray(painter.draw([np.full(4, value)])) for value in (-1.0, 1.0))
    assert low.shape == (360, 480, 3)
    assert (low != high).any()


def test_numbers_are_named_by_their_parts() -> None:
    assert number_names(3, ()) == ["0", "1", "2"]
    assert number_names(3, (("arm", 2), ("grip", 1))) == ["arm[0]", "arm[1]", "grip"]


@pytest.mark.parametrize("size", [(100, 100), (1000, 500), (10, 3000)])
def test_a_large_picture_is_reduced_and_keeps_its_shape(size: tuple[int, int]) -> None:
    image = Image.open(io.BytesIO(encoded(np.zeros((size[1], size[0], 3), np.uint8), (480, 360))))
    assert image.width <= 480
    assert image.height <= 360
    assert image.width / image.height == pytest.approx(size[0] / size[1], rel=0.2)


def test_gymnasium_has_the_package_that_draws() -> None:
    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (400, 600, 3)
    env.close()
