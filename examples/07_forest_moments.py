"""Match moments of your own with DAeQuIL, where an expert acts in several ways in one state.

A drone's expert dodges trees left or right at random. DAgger learns the mean of both, which is straight ahead. Expect
DAgger to fly about 10 m, and DAeQuIL with three moments (how far to swerve, and whether a tree is hit) much further.
"""

# %% The forest and its expert
from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import understudy as us

env = us.Forest()
demos = us.load("Forest", episodes=10)
flights = us.rollout(env, env.expert(), episodes=10, seed=1, deterministic=False)
print(f"the expert flies {flights.returns.mean():.0f} m on average, of 100 m")

# %% Moments: what about an action matters
TREES = env.trees  # x, y and radius of each. Only training sees them, the policy does not.


def depth(x, y):
    """How deep a point is inside a tree, in metres; 0 outside."""
    distance = jnp.sqrt((x - TREES[:, 0]) ** 2 + (y - TREES[:, 1]) ** 2 + 1e-6)
    return jnp.maximum(TREES[:, 2] - distance, 0).max()


def moments(obs, act):
    """One observation (is a tree ahead, x, y, heading) and one action (the next heading) to three numbers."""
    ahead, x, y, heading = obs
    turn = jnp.abs(act[0] - heading)
    halfway = depth(x + 2.5 * jnp.cos(act[0]), y + 2.5 * jnp.sin(act[0]))
    end = depth(x + 5 * jnp.cos(act[0]), y + 5 * jnp.sin(act[0]))
    hit = jnp.maximum(halfway, end)
    return jnp.stack([ahead * jnp.minimum(turn, jnp.pi / 4), (1 - ahead) * turn, hit + (hit > 0)])


# %% Training, with the same demonstrations and the same expert
learners = {
    "DAgger": us.dagger.preset("forest", rounds=5),
    "DAeQuIL": us.daequil.preset("linear", moments=moments),
}
results = {name: us.imitate(one, demos, env, expert="scripted", holdout=0, seeds=3) for name, one in learners.items()}
flown = {}  # a deterministic policy flies one path, and a small change of it counts tens of metres: so three seeds
for name, result in results.items():
    flown[name] = [us.rollout(env, policy, episodes=1) for policy in result.policies]
    metres = [flight.returns[0] for flight in flown[name]]
    answers = result.metrics["queries"][:, -1].mean()
    print(f"{name}: {np.mean(metres):.0f} m (lowest {min(metres):.0f}), {answers:.0f} answers of the expert")

# %% Picture
figure, axes = plt.subplots(figsize=(4.5, 4.5), layout="constrained")
for x, y, radius in TREES:
    axes.add_patch(plt.Circle((x, y), radius, color="tab:green", alpha=0.4))


def draw(episodes, index, **style):
    """The positions of one flight, to where it ended."""
    path = [*episodes.steps.obs[index, : episodes.lengths[index]]]
    path = np.array([*path, episodes.steps.next_obs[index, len(path) - 1]])
    axes.plot(path[:, 1], path[:, 2], **style)


for index in range(10):
    draw(flights, index, color="lightgray", label="expert" if index == 0 else None)
for seed in range(3):
    draw(flown["DAeQuIL"][seed], 0, color="tab:blue", marker=".", label="DAeQuIL" if seed == 0 else None)
    draw(flown["DAgger"][seed], 0, color="tab:red", marker="x", label="DAgger" if seed == 0 else None)
axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal", title="Ten flights of the expert, three of each learner")
axes.legend()

out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
figure.savefig(out / "forest.png")
print("picture:", out / "forest.png")
