"""Pictures of single states, drawn with Pillow in a few milliseconds: a person drives by them.

Forest and Pendulum have pictures of their own. Every other environment gets a view of the numbers of its observation.
`evaluation.rendering` draws whole films, with Matplotlib.
"""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from understudy.core.parts import Parts
from understudy.core.text import quoted
from understudy.envs import Environment, Forest, GymnasiumEnvironment, Pendulum
from understudy.envs.forest import SIZE, STRIDE
from understudy.evaluation.drawing import CRASH, EXPERT, LEARNER, TREE

SIDE = 360
"""Pixels of the side of Forest's and Pendulum's pictures."""
FINE = 2
"""Pictures are drawn this many times larger, then reduced: Pillow's lines are not smooth."""
WIDTH, HEIGHT, ROW, MOST_ROWS = 480, 360, 22, 16
"""The view of the numbers: its size, the height of a row, and how many numbers it shows."""
PAPER, INK, FAINT = "#ffffff", "#333333", "#d8dde3"
QUALITY = 85


class Painter:
    """Draws the last of an episode's observations so far. The ranges of numbers grow with what was seen."""

    def __init__(self, env: Environment | GymnasiumEnvironment):
        self._env, self._parts = env, env.spec.obs_parts
        self._low = self._high = np.zeros(env.spec.obs_shape[0])
        self._forests: dict[int, Image.Image] = {}
        self.kind = "drawn" if isinstance(env, Forest | Pendulum) else "numbers"

    def draw(self, path: Sequence[np.ndarray], terminal: bool = False) -> Image.Image:
        """The picture of the last observation of `path`. `terminal`: it is an absorbing state."""
        if isinstance(self._env, Pendulum):
            return _pendulum(path[-1])
        if isinstance(self._env, Forest):
            return self._flight(self._env, path, terminal)
        obs = np.asarray(path[-1], np.float64)
        self._low, self._high = np.minimum(self._low, obs), np.maximum(self._high, obs)
        return _numbers(obs, self._low, self._high, self._parts)

    def _flight(self, env: Forest, path: Sequence[np.ndarray], terminal: bool) -> Image.Image:
        layout = int(path[-1][4]) if len(path[-1]) > 4 else 0
        if layout not in self._forests:
            trees = np.asarray(env.trees if env.trees.ndim == 2 else env.trees[layout])
            self._forests[layout] = _forest(trees)
        picture = self._forests[layout].copy()
        pen = ImageDraw.Draw(picture)
        points = [_place(obs[1], obs[2]) for obs in path]
        if len(points) > 1:
            pen.line(points, fill=LEARNER, width=2 * FINE, joint="curve")
        x, y, heading = (float(value) for value in path[-1][1:4])
        color = CRASH if terminal and 0 <= x <= SIZE and y < SIZE else LEARNER
        if not terminal:
            ahead = _place(x + STRIDE * np.cos(heading), y + STRIDE * np.sin(heading))
            pen.line([points[-1], ahead], fill=CRASH if path[-1][0] > 0.5 else EXPERT, width=2 * FINE)
        _dot(pen, points[-1], 5 * FINE, color)
        return picture.reduce(FINE)


def encoded(picture: Image.Image | np.ndarray, largest: tuple[int, int] | None = None, sharp: bool = False) -> bytes:
    """A picture as a JPEG file, reduced to fit into `largest` (width, height). `sharp`: for thin lines."""
    image = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
    if largest is not None and (image.width > largest[0] or image.height > largest[1]):
        scale = min(largest[0] / image.width, largest[1] / image.height)
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY, subsampling=0 if sharp else 2)
    return file.getvalue()


def _pendulum(obs: np.ndarray) -> Image.Image:
    """The rod, with the upright position at the top."""
    cos, sin = float(obs[0]), float(obs[1])
    side = SIDE * FINE
    picture = Image.new("RGB", (side, side), PAPER)
    pen, middle, reach = ImageDraw.Draw(picture), side / 2, side * 0.4
    end = (middle - reach * sin, middle - reach * cos)
    pen.line([(middle, middle), end], fill=LEARNER, width=14 * FINE)
    _dot(pen, end, 7 * FINE, LEARNER)
    _dot(pen, (middle, middle), 6 * FINE, INK)
    return picture.reduce(FINE)


def _place(x: float, y: float) -> tuple[float, float]:
    """A point of the forest in pixels. The field is drawn with a margin of 2 m."""
    scale = SIDE * FINE / (SIZE + 4)
    return (float(x) + 2) * scale, (SIZE + 2 - float(y)) * scale


def _forest(trees: np.ndarray) -> Image.Image:
    picture = Image.new("RGB", (SIDE * FINE, SIDE * FINE), PAPER)
    pen = ImageDraw.Draw(picture)
    pen.rectangle([_place(0, SIZE), _place(SIZE, 0)], outline=FAINT, width=FINE)
    scale = SIDE * FINE / (SIZE + 4)
    for x, y, radius in trees:
        _dot(pen, _place(x, y), float(radius) * scale, TREE)
    return picture


def _dot(pen: ImageDraw.ImageDraw, at: tuple[float, float], radius: float, color: str) -> None:
    pen.ellipse([at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius], fill=color)


def _numbers(obs: np.ndarray, low: np.ndarray, high: np.ndarray, parts: Parts) -> Image.Image:
    """A bar for each number, from the lowest to the highest value so far."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    pen, font, names = ImageDraw.Draw(picture), ImageFont.load_default(13), number_names(len(obs), parts)
    left, right = 150, WIDTH - 90
    for row, value in enumerate(obs[:MOST_ROWS]):
        y = 6 + row * ROW
        span = max(high[row] - low[row], 1e-9)
        zero, end = (left + (right - left) * (x - low[row]) / span for x in (min(max(0.0, low[row]), high[row]), value))
        pen.text((6, y), names[row][:20], fill=INK, font=font)
        pen.rectangle([left, y, right, y + ROW - 6], fill=FAINT)
        pen.rectangle([min(zero, end), y, max(zero, end), y + ROW - 6], fill=LEARNER)
        pen.text((right + 8, y), f"{value:.3g}", fill=INK, font=font)
    if len(obs) > MOST_ROWS:
        pen.text((6, HEIGHT - 16), f"and {len(obs) - MOST_ROWS} more numbers", fill=INK, font=font)
    return picture


def number_names(size: int, parts: Parts) -> list[str]:
    """A name for each number of an observation."""
    if not parts:
        return [str(index) for index in range(size)]
    names = []
    for name, count in parts:
        shown = quoted(name, 40)
        names += [shown] if count == 1 else [f"{shown}[{index}]" for index in range(count)]
    return names
