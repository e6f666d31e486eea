"""Time of `understudy train` up to the end of its first round, with an empty and with a filled compilation cache.

python benchmarks/startup.py
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from understudy.train.tables import provenance, write_csv

OUT = Path(__file__).parent.parent / "docs/results/startup.csv"
TRAIN = ["train", "bc", "--demos", "Pendulum", "--seeds", "5", "--rounds", "1", "--gradient-steps", "1"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{folder}/cache"}
        env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
        seconds = []
        for repeat in range(3):
            start = time.perf_counter()
            command = [sys.executable, "-m", "understudy", *TRAIN, "--out", f"{folder}/{repeat}"]
            subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - start)
    warm = min(seconds[1:])
    print(f"empty cache {seconds[0]:.1f} s, filled {warm:.1f} s: {seconds[0] / warm:.1f} times faster")
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    about = ["make bench", versions, f"{os.cpu_count()} cores, {made['device']}", made["date"]]
    rows = [["empty cache", round(seconds[0], 2), *about], ["second run of a shape", round(warm, 2), *about]]
    write_csv(OUT, ["what", "seconds", "command", "versions", "machine", "date"], rows)


if __name__ == "__main__":
    main()
