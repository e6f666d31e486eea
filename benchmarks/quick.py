"""The preset "quick" of every algorithm: seconds of `understudy train --preset quick`, and the returns of its policies.

python benchmarks/quick.py
python benchmarks/quick.py bc dagger      # only these; the other rows of the file stay
"""

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import understudy as us
from understudy.train.tables import provenance, write_csv

OUT = Path(__file__).parent.parent / "docs/results/quick.csv"
SEEDS, EPISODES = 2, 50
TASKS = {"Pendulum": "bundled", "CartPole-v1": "bundled", "Forest": "scripted"}
"""Task → its expert."""
WITHOUT_VALUES = ("aggrevate", "CartPole-v1")
"""AggreVaTe needs action values, which this task's expert does not have."""
HEADER = (
    *("algorithm", "env", "seeds", "train_seconds", "cpu_seconds", "expert_return", "return", "lowest", "highest"),
    *("episodes", "command", "versions", "machine", "date"),
)


def main() -> None:
    chosen = sys.argv[1:] or list(us.ALGORITHMS)
    stored = list(csv.DictReader(OUT.open(encoding="utf-8"))) if OUT.exists() else []
    rows = [[row[name] for name in HEADER] for row in stored if row["algorithm"] not in chosen]
    for name in chosen:
        for task in TASKS:
            on_q = "expert" in us.ALGORITHMS[name].card.needs
            if (task != "Forest" or on_q) and (name, task) != WITHOUT_VALUES:
                rows.append(measured(name, task))
                print(*rows[-1][:9], flush=True)
                write_csv(OUT, list(HEADER), sorted(rows, key=lambda row: (row[0], list(TASKS).index(row[1]))))


def measured(name: str, task: str) -> list[Any]:
    """A row of the file: the command as a person types it, in a process of its own."""
    words = ["train", name, "--preset", "quick", "--env", task, "--seeds", str(SEEDS)]
    words += ["--expert", TASKS[task]] if "expert" in us.ALGORITHMS[name].card.needs else []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "understudy", *words, "--out", f"{folder}/run"]
        before = os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        evaluation = us.load_run(f"{folder}/run").evaluate(task, episodes=EPISODES)
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    means, expert = evaluation.returns.mean(axis=1), evaluation.expert
    numbers = [after.elapsed - before.elapsed, cpu, expert.mean if expert else float("nan"), means.mean()]
    made = provenance()
    versions = " ".join(f"{package}={version}" for package, version in made["versions"].items())
    return [
        *(name, task, SEEDS),
        *(round(float(number), 1) for number in (*numbers, means.min(), means.max())),
        *(EPISODES, f"understudy {' '.join(words)}", versions, f"{os.cpu_count()} cores, {made['device']}"),
        made["date"],
    ]


if __name__ == "__main__":
    main()
