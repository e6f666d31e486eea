"""What a study costs beside its training: 25 small runs as one study, against as many calls of the front door.

    python benchmarks/study.py

The study's runs, five seeds on each of five numbers of trajectories, are one program; a call trains one of them and
plays it as often. Each side is a process of its own, started as a user would, with a warm compilation cache; they take
turns and the fastest turn of each counts. Besides, how long it takes from the shell to the first training step with
an empty cache. Written, with what made it, to docs/results/study-speed.csv.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from understudy.train.results import provenance, write_csv

OUT = Path(__file__).parent.parent / "docs/results/study-speed.csv"
COUNTS, SEEDS, EPISODES, TURNS = (2, 4, 6, 8, 10), 5, 4, 3
STUDY = f"""
[protocol]
seeds = {SEEDS}
eval_episodes = {EPISODES}
[[task]]
env = "Pendulum"
trajectories = {list(COUNTS)}
[[algorithm]]
name = "bc"
settings = {{ rounds = 5, gradient_steps = 200, hidden = [32, 32] }}
"""
CALLS = f"""
import understudy as us
shown = us.load("Pendulum")
for count in {COUNTS}:
    for seed in range({SEEDS}):
        learner = us.bc(rounds=5, gradient_steps=200, hidden=(32, 32))
        result = us.imitate(learner, shown, "Pendulum", seeds=[seed], episodes=count)
        result.evaluate(episodes={EPISODES}, seed=seed)
"""
FIRST = """
import os, time
import understudy as us
def visit(rounds, states):
    print(time.time(), flush=True)
    os._exit(0)
us.imitate(us.bc(rounds=1, gradient_steps=1), "Pendulum", visit=visit)
"""


def spent(words: list[str], env: dict[str, str], place: str) -> float:
    began = time.perf_counter()
    subprocess.run(words, env=env, cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        env = {**os.environ, "XDG_CACHE_HOME": f"{place}/cache"}
        began = time.time()
        told = subprocess.run([sys.executable, "-c", FIRST], env=env, check=True, capture_output=True, text=True)
        first = float(told.stdout.split()[-1]) - began
        (Path(place) / "small.toml").write_text(STUDY, encoding="utf-8")
        study, calls = [], []
        for turn in range(TURNS + 1):  # the first of each fills the cache
            words = ["-m", "understudy", "study", "run", "small.toml", "--out", f"s{turn}", "--no-report"]
            study.append(spent([sys.executable, *words], env, place))
            calls.append(spent([sys.executable, "-c", CALLS], env, place))
    one, many = min(study[1:]), min(calls[1:])
    runs = len(COUNTS) * SEEDS
    print(f"{runs} runs as a study {one:.1f} s, one by one {many:.1f} s: {many / one:.1f} times faster")
    print(f"from the shell to the end of the first training step, empty cache: {first:.1f} s")
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    about = ["python benchmarks/study.py", versions, f"{os.cpu_count()} cores, {made['device']}", made["date"]]
    rows = [
        [f"{runs} runs as a study", round(one, 2), round(many / one, 2), *about],
        [f"{runs} calls of the front door", round(many, 2), 1, *about],
        ["from the shell to the first training step, empty cache", round(first, 2), "", *about],
    ]
    write_csv(OUT, ["what", "seconds", "ratio", "command", "versions", "machine", "date"], rows)


if __name__ == "__main__":
    main()
