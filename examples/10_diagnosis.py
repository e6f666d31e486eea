"""Ask why a clone is bad: the expert of the forest is ambiguous, so no amount of cloning helps.

A drone's expert dodges trees left or right at random, and the clone flies into the first tree. Expect the cause
`ambiguous-expert` on top, with its evidence and the command to try next.
"""

# %% A clone that fails
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import understudy as us

demos = us.load("Forest")
result = us.imitate(us.bc.preset("quick"), demos, env="Forest", holdout=0)
score = result.evaluate(episodes=20, expert="scripted").scores()[0]
print(f"return: expert {score.expert.mean:.0f}, clone {score.learner.mean:.0f}")

# %% Why?
diagnosis = us.diagnose(result, expert="scripted", demonstrations=demos)
for cause in diagnosis.causes[:3]:
    print(f"{cause.name} ({cause.likelihood:.0%}): {cause.evidence}")
print("next:", diagnosis.causes[0].remedy, diagnosis.causes[0].command)

# %% The evidence: at the first tree the expert turns left or right, the clone by the mean
ambiguity = diagnosis["ambiguity"]
print(f"ambiguity {ambiguity.value:.2f}, threshold {ambiguity.threshold:.2f}")
ahead, x, _, heading = demos.observations.T
first = (ahead == 1) & (x == 50)  # all flights come to the first tree along x = 50
turns = np.degrees(demos.actions[first, 0] - heading[first])
cloned = np.degrees(result.policy(demos.observations[first])[:, 0] - heading[first])
print(
    f"{(turns > 0).sum()} turns to the left, {(turns < 0).sum()} to the right; the clone: {cloned.mean():.0f} degrees"
)

figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
bins = np.linspace(-180, 180, 37)
axes.hist(turns, bins, label="expert", alpha=0.6)
axes.hist(cloned, bins, label="clone", alpha=0.6)
axes.set(xlabel="change of heading (degrees)", ylabel="steps", title="At the first tree")
axes.legend()

out = Path("out/examples")
diagnosis.save(out / "diagnosis", replace=True)
figure.savefig(out / "diagnosis.png")
print("page:", out / "diagnosis" / "diagnosis.html")
