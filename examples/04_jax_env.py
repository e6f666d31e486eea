"""Write an environment in JAX: episodes and training are one compiled program, so 1,000 episodes take a second.

The task is to hold a point at the origin in gusts of wind. The expert is a function that sees position and speed.
Expect a small gap, and an interval that 1,000 episodes make narrow.
"""

import time

import jax
import jax.numpy as jnp

import understudy as us


class Hover(us.Environment):
    """State and observation are position and speed. The action pushes, the wind is random."""

    wind: float = 0.2

    @property
    def spec(self):
        return us.Spec((2,), us.Continuous((-1.0,), (1.0,)), horizon=60)

    def reset(self, key):
        state = jax.random.uniform(key, (2,), minval=-1.0)
        return state, state  # the state, and what is observed of it

    def step(self, state, act, key):
        speed = 0.95 * state[1] + 0.3 * act[0] + self.wind * jax.random.normal(key)
        new = jnp.stack([state[0] + 0.1 * speed, speed])
        return us.Timestep(new, new, reward=-jnp.square(new[0]), terminal=jnp.abs(new[0]) > 3)


def hold(observations):
    """The expert, for a batch of observations."""
    return (-2 * observations[:, :1] - observations[:, 1:]).clip(-1, 1)


env = Hover()
demos = us.record(env, hold, episodes=20)
result = us.imitate(us.bc.preset("quick"), demos, env, seeds=3)

start = time.perf_counter()
evaluation = result.evaluate(episodes=1000, expert=hold)  # the expert acts from the same starting states
print(f"{2 * evaluation.returns.size} episodes in {time.perf_counter() - start:.1f} s")
score = evaluation.scores()[0]
print(f"return: expert {score.expert.mean:.3f}, clones {score.learner.mean:.3f}")
print(f"gap {score.gap.mean:.3f}, 95% [{score.gap.low:.3f}, {score.gap.high:.3f}]")
