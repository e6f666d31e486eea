"""Compare two algorithms in a study and write its report.

Behavioral cloning and DAgger begin with the same 5 episodes, three seeds each. Expect DAgger to be better, and a page
with figures, intervals and the commands that make it again. Run it twice: finished cells are not trained again.
"""

import csv
import statistics
import subprocess
import sys
from pathlib import Path

STUDY = """
title = "Two algorithms on Pendulum"

[protocol]
seeds = 3
eval_episodes = 20

[[task]]
env = "Pendulum"
trajectories = 5
expert = "scripted"

[[algorithm]]
name = "bc"
preset = "quick"

[[algorithm]]
name = "dagger"
preset = "quick"
"""

out = Path("out/examples/study")
out.mkdir(parents=True, exist_ok=True)
(out / "pendulum.toml").write_text(STUDY, encoding="utf-8")


def understudy(*words):
    """The same as typing `understudy ...` in a shell."""
    subprocess.run([sys.executable, "-m", "understudy", *map(str, words)], check=True)


understudy("study", "run", out / "pendulum.toml", "--out", out / "results", "--jobs", "1", "--no-report")
understudy("study", "report", out / "results", "--no-clips")

with open(out / "results" / "results.csv", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
for name in ("bc", "dagger"):
    returns = [float(row["mean_return"]) for row in rows if row["algorithm"] == name]
    print(f"{name}: mean return {statistics.mean(returns):.1f} over {len(returns)} seeds, lowest {min(returns):.1f}")
print("page:", out / "results" / "report.html")
