"""Bring your own Gymnasium environment: record a scripted expert, train a clone, measure its gap.

The environment is a lift with three actions. The expert drives to the goal and brakes in time. Expect a clone that
reaches the goal as often as the expert does, or nearly so.
"""

import gymnasium
import numpy as np

import understudy as us


class Lift(gymnasium.Env):
    """A lift has a height and a speed, and goes to a floor. Actions: 0 down, 1 coast, 2 up."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-20, 20, (3,))
        self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.goal, self.height = self.np_random.uniform(0, 10, 2)
        self.speed = 0.0
        return self.observe(), {}

    def step(self, action):
        self.speed += 0.1 * (int(action) - 1)
        self.height = np.clip(self.height + self.speed, -20, 20)
        distance = abs(self.goal - self.height)
        arrived = bool(distance < 0.2 and abs(self.speed) < 0.15)
        return self.observe(), -distance, arrived, False, {"is_success": arrived}

    def observe(self):
        return np.array([self.goal, self.height, self.speed], np.float32)


def drive(observations):
    """The expert, for a batch of observations: as fast as braking allows."""
    ahead = observations[:, 0] - observations[:, 1]
    wanted = np.sign(ahead) * np.sqrt(0.15 * np.abs(ahead))
    return np.where(wanted - observations[:, 2] > 0.05, 2, np.where(wanted - observations[:, 2] < -0.05, 0, 1))


env = us.make(Lift, horizon=100)  # the class has no time limit of its own
demos = us.record(env, drive, episodes=50)
print(f"recorded {demos.episodes} episodes, mean return {demos.expert_return.mean:.2f}")

result = us.imitate(us.bc.preset("quick"), demos, env, seeds=2, holdout=0.2)
score = result.evaluate(episodes=50, expert=drive, workers=0).scores()[0]
print(f"return: expert {score.expert.mean:.2f}, clone {score.learner.mean:.2f}")
print(f"gap {score.gap.mean:.2f}, 95% [{score.gap.low:.2f}, {score.gap.high:.2f}]")
print(f"the clone arrives in {score.success.mean:.0%} of its episodes")
