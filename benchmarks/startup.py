"""From the shell to the end of the first round: `understudy train` with an empty compilation cache and with a full one.

python benchmarks/startup.py
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from understudy.train.results import provenance, write_csv

OUT = Path(__file__).parent.parent / "docs/results/startup.csv"
TRAIN = ["train", "bc", "--demos", "Pendulum", "--seeds", "5", "--rounds", "1", "--steps", "1"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{folder}/cache"}
        env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
        spent = []
        for turn in range(3):
            began = time.perf_counter()
            command = [sys.executable, "-m", "understudy", *TRAIN, "--out", f"{folder}/{turn}"]
            subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
            spent.append(time.perf_counter() - began)
    warm = min(spent[1:])
    print(f"first run of a shape {spent[0]:.1f} s, second {warm:.1f} s: {spent[0] / warm:.1f} times faster")
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    about = ["make bench", versions, f"{os.cpu_count()} cores, {made['device']}", made["date"]]
    rows = [["empty cache", round(spent[0], 2), *about], ["second run of a shape", round(warm, 2), *about]]
    write_csv(OUT, ["what", "seconds", "command", "versions", "machine", "date"], rows)


if __name__ == "__main__":
    main()
