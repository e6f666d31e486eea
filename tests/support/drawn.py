"""Gymnasium environments that draw themselves, or fail to. Worker processes import this module."""

import os
import time

import gymnasium
import numpy as np

SIZE = (31, 44)


class Drawn(gymnasium.Env):
    """Five steps of a number that follows the action; a picture shows the step as brightness."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}
    observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    render_mode = "rgb_array"

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), 0.0, self.t == 5, False, {}

    def render(self):
        return np.full((*SIZE, 3), 40 * self.t, np.uint8)


class Raising(Drawn):
    def render(self):
        raise RuntimeError("no OpenGL here")


class Aborting(Drawn):
    """As a renderer in C does without a display."""

    def render(self):
        os.abort()


class Hanging(Drawn):
    def render(self):
        time.sleep(1000)


class Shrinking(Drawn):
    def render(self):
        return super().render()[: SIZE[0] - self.t]


class Text(Drawn):
    def render(self):
        return "a picture"
