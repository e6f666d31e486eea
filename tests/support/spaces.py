"""Small Gymnasium environments with unusual spaces, for tests. Workers can import them."""

import gymnasium
import numpy as np
from gymnasium import spaces

GOALS = spaces.Dict(
    {
        "observation": spaces.Box(-np.inf, np.inf, (2,)),
        "achieved_goal": spaces.Box(-np.inf, np.inf, (2,)),
        "desired_goal": spaces.Box(-1, 1, (2,)),
    }
)
NESTED = spaces.Tuple(
    (
        spaces.Dict({"arm": spaces.Box(-1, 1, (2, 3)), "grip": spaces.Discrete(3, start=1)}),
        spaces.MultiBinary(2),
        spaces.MultiDiscrete([2, 3]),
    )
)


class Shaped(gymnasium.Env):
    """Observes random values of a space, and keeps the actions that it gets. The reward is the sum of the action."""

    def __init__(self, observations=None, actions=None, length=6):
        self.observation_space = observations or spaces.Box(-1, 1, (2,))
        self.action_space = actions or spaces.Box(-1, 1, (1,))
        self.length, self.count, self.taken = length, 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.count, self.taken = 0, []
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), (action, type(action))
        self.taken.append(action)
        self.count += 1
        return self.observation_space.sample(), float(np.sum(action)), False, self.count == self.length, {}


class Reach(gymnasium.Env):
    """A goal environment: move a point to the desired goal. The observation is a Dict; actions have no bounds."""

    observation_space = GOALS
    action_space = spaces.Box(-np.inf, np.inf, (2,))

    def __init__(self, speed=0.5, fault=None):
        self.speed, self.fault, self.count = speed, fault, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal = np.zeros(2), self.np_random.uniform(-1, 1, 2)
        self.count = 0
        return self.observed(), {}

    def step(self, action):
        self.count += 1
        self.at = self.at + self.speed * np.asarray(action)
        obs = self.observed()
        if self.count == 3 and self.fault == "missing":
            del obs["desired_goal"]
        if self.count == 3 and self.fault == "renamed":
            obs["goal"] = obs.pop("desired_goal")
        if self.count == 3 and self.fault == "shape":
            obs["observation"] = np.zeros(3)
        if self.count == 3 and self.fault == "text":
            obs["observation"] = "left"
        if self.count == 3 and self.fault == "nan":
            obs["observation"] = np.full(2, np.nan)
        if self.count == 3 and self.fault == "flat":
            return np.zeros(6), 0.0, False, False, {}
        distance = float(np.linalg.norm(self.at - self.goal))
        return obs, -distance, False, False, {}

    def observed(self):
        at, goal = self.at.astype(np.float32), self.goal.astype(np.float32)
        return {"observation": at, "achieved_goal": at, "desired_goal": goal}


class Slowed(gymnasium.ActionWrapper):
    """Halves the actions."""

    def action(self, action):
        return action / 2


def to_goal(obs):
    """Reach's expert, on flat observations: Gymnasium sorts the keys of a Dict, so the goal comes second."""
    return obs[:, 2:4] - obs[:, :2]


def reach(speed=0.5):
    """A function with a keyword argument."""
    return gymnasium.wrappers.TimeLimit(Reach(speed), 8)
