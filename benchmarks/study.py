"""Time of 25 small runs as one study, and as 25 calls of `us.imitate`.

    python benchmarks/study.py

The study trains its runs, five seeds on each of five numbers of trajectories, in one program. A call trains and
evaluates one of them. Each side runs in its own process with a filled compilation cache. The two alternate, and the
fastest repetition of each counts. It also measures the time from the shell to the first training step with an empty
cache. The times are written to docs/results/study-speed.csv.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from understudy.train.tables import provenance, write_csv

OUT = Path(__file__).parent.parent / "docs/results/study-speed.csv"
COUNTS, SEEDS, EPISODES, REPEATS = (2, 4, 6, 8, 10), 5, 4, 3
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
demonstrations = us.load("Pendulum")
for count in {COUNTS}:
    for seed in range({SEEDS}):
        learner = us.bc(rounds=5, gradient_steps=200, hidden=(32, 32))
        result = us.imitate(learner, demonstrations, "Pendulum", seeds=[seed], episodes=count)
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


def run_seconds(words: list[str], env: dict[str, str], directory: str) -> float:
    start = time.perf_counter()
    subprocess.run(words, env=env, cwd=directory, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        env = {**os.environ, "XDG_CACHE_HOME": f"{directory}/cache"}
        start = time.time()
        first_run = subprocess.run([sys.executable, "-c", FIRST], env=env, check=True, capture_output=True, text=True)
        first = float(first_run.stdout.split()[-1]) - start
        (Path(directory) / "small.toml").write_text(STUDY, encoding="utf-8")
        study, calls = [], []
        for repeat in range(REPEATS + 1):  # the first of each fills the cache
            words = ["-m", "understudy", "study", "run", "small.toml", "--out", f"s{repeat}", "--no-report"]
            study.append(run_seconds([sys.executable, *words], env, directory))
            calls.append(run_seconds([sys.executable, "-c", CALLS], env, directory))
    one, many = min(study[1:]), min(calls[1:])
    runs = len(COUNTS) * SEEDS
    print(f"{runs} runs as a study {one:.1f} s, one by one {many:.1f} s: {many / one:.1f} times faster")
    print(f"from the shell to the end of the first training step, empty cache: {first:.1f} s")
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    about = ["python benchmarks/study.py", versions, f"{os.cpu_count()} cores, {made['device']}", made["date"]]
    rows = [
        [f"{runs} runs as a study", round(one, 2), round(many / one, 2), *about],
        [f"{runs} calls of us.imitate", round(many, 2), 1, *about],
        ["from the shell to the first training step, empty cache", round(first, 2), "", *about],
    ]
    write_csv(OUT, ["what", "seconds", "ratio", "command", "versions", "machine", "date"], rows)


if __name__ == "__main__":
    main()
