"""Drawings of the example MDPs."""

import matplotlib.image
import numpy as np
import pytest

from understudy.core.errors import SettingError
from understudy.evaluation.drawing import CRASH, EXPERT
from understudy.paper.theory.example_graphs import draw_example
from understudy.tabular.examples import cliff, loop, tree, unicycle


@pytest.mark.parametrize(
    "example", [loop(6), cliff(6), cliff(2), unicycle(6), tree(3, 2)], ids=lambda example: example.name
)
def test_the_image_shows_the_experts_actions_and_the_errors(example, tmp_path):
    draw_example(example, tmp_path / "drawing.png")
    image = matplotlib.image.imread(tmp_path / "drawing.png")[..., :3]
    for color in (EXPERT, CRASH):
        expected = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        assert (abs(image - expected) < 0.01).all(-1).sum() > 500, f"{color} is in the image"


def test_a_tree_with_too_many_nodes_raises(tmp_path):
    with pytest.raises(SettingError, match="121 nodes"):
        draw_example(tree(5, 3), tmp_path / "tree.png")
