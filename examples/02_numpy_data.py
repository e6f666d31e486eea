"""Train on your own NumPy arrays: states, actions and episode lengths, without an environment.

The made-up data are a person who steers a boat back to the middle of a channel. Expect a held-out payoff near 0 and an
action error far below that of always taking the mean action. Both are measured on episodes that training did not see.
"""

from pathlib import Path

import numpy as np

import understudy as us

random = np.random.default_rng(0)
EPISODES, STEPS = 40, 50

# Your data would be loaded here. One row is one step: offset from the middle, heading, current.
states, rudders = [], []
for _ in range(EPISODES):
    offset, heading, current = random.uniform(-1, 1), random.uniform(-0.5, 0.5), random.uniform(-0.3, 0.3)
    for _ in range(STEPS):
        rudder = np.clip(-1.5 * offset - 2 * heading - current + random.normal(scale=0.02), -1, 1)
        states.append([offset, heading, current])
        rudders.append([rudder])
        heading += 0.1 * rudder
        offset += 0.1 * (heading + current)

demos = us.Demonstrations.from_arrays(
    np.array(states),
    np.array(rudders),
    lengths=np.full(EPISODES, STEPS),
    action_space=us.Continuous((-1.0,), (1.0,)),
)
print(demos.episodes, "episodes,", demos.steps, "steps")

out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
demos.save(out / "boat.npz")  # us.load, and --demos in the shell, read it

# The last ten episodes are kept out of training. Of the others, `imitate` holds out a fifth to select a policy.
result = us.imitate(us.bc.preset("quick"), demos.first(30), seeds=3, holdout=0.2)
for run in result.runs:
    print(f"seed {run.seed}: held-out payoff {run.payoff:.5f} on {run.held_out_steps} steps, {run.status}")

unseen = slice(30 * STEPS, None)
predicted = result.policy(demos.observations[unseen])
error = np.abs(predicted - demos.actions[unseen]).mean()
spread = np.abs(demos.actions[unseen] - demos.actions[: 30 * STEPS].mean()).mean()
print(f"mean action error on unseen episodes: {error:.3f} (always the mean action: {spread:.3f})")
