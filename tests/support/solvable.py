"""A Gymnasium environment that reports whether its task is solved."""

import gymnasium
import numpy as np


class Solvable(gymnasium.Env):
    """Three steps on a line. It is solved where |x| < 0.5; `reports` says how a step's info says so."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, reports="is_success"):
        self.reports = reports

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = self.np_random.uniform(-1, 1), 0
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x, self.steps = self.x + float(action[0]), self.steps + 1
        solved = abs(self.x) < 0.5
        info = {
            "is_success": {"is_success": np.float32(solved), "success": not solved},
            "success": {"success": bool(solved)},
            "first": {"is_success": bool(solved)} if self.steps == 1 else {},
            "unreadable": {"is_success": "yes"},
            "nothing": {},
        }[self.reports]
        return np.array([self.x], np.float32), -abs(self.x), False, self.steps == 3, info
