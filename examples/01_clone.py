"""Clone the expert of Pendulum from 4, 10 and 25 demonstrated episodes, and measure the gap to the expert.

Nine policies, three numbers of episodes with three seeds each, train in one compiled program. Expect a gap of hundreds
with 4 episodes and a small one with 25: the expert's mean return less the clone's, in units of reward.
"""

# %% Demonstrations
from pathlib import Path

import matplotlib.pyplot as plt

import understudy as us

demos = us.load("Pendulum", episodes=25)  # bundled; or the path of your data
print(f"{demos.episodes} episodes, {demos.steps} steps, mean return {demos.expert_return.mean:.1f}")

# %% Training
result = us.imitate(us.bc.preset("quick"), demos, episodes=[4, 10, 25], seeds=3)
for run in result.runs:
    print(f"{run.episodes:2} episodes, seed {run.seed}: held-out payoff {run.payoff:.4f}, {run.status}")

# %% Evaluation
# The expert acts too, from the starting states of each clone, so the gap is over pairs of episodes.
scores = result.evaluate("Pendulum", episodes=50, expert="scripted").scores()
for score in scores:
    print(f"{score.episodes:2} episodes: gap {score.gap.mean:.1f}, 95% [{score.gap.low:.1f}, {score.gap.high:.1f}]")

# %% Picture
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
means = [score.gap.mean for score in scores]
spread = [
    [score.gap.mean - score.gap.low for score in scores],
    [score.gap.high - score.gap.mean for score in scores],
]
axes.errorbar([str(score.episodes) for score in scores], means, spread, fmt="o", capsize=4)
axes.axhline(0, color="gray", linewidth=1)
axes.set(xlabel="demonstrated episodes", ylabel="gap to the expert", title="Behavioral cloning on Pendulum")

out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
figure.savefig(out / "clone.png")
print("picture:", out / "clone.png")
