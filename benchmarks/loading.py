"""Loading a large file of demonstrations: seconds and memory of `understudy.load`, beside `np.load` of every array.

    python benchmarks/loading.py                       5 million steps of 50 numbers, an uncompressed npz file of 1.1 GB
    python benchmarks/loading.py --steps 1000000       fewer

Each load is a fresh process, the two in turn. Memory is the largest resident size above that before the load, divided
by the bytes of the arrays. `np.load` checks nothing but the archive's checksums. Seconds are the median of the turns,
with the lowest and highest, and the load average is stored too: both loaders slow down several times on a busy machine.
"""

import argparse
import json
import multiprocessing
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from understudy.core.memory import readable
from understudy.train.tables import provenance, write_csv

OUT = Path(__file__).parent.parent / "docs/results/loading.csv"
NUMBERS, ACTIONS, LENGTH = 50, 4, 1000
LOADERS = {
    "understudy.load": "loaded = understudy.load(path)",
    "np.load": "loaded = dict(np.load(path))",
}
CHILD = """
import json, resource, sys, time
import numpy as np
import understudy
path, peak = sys.argv[1], lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, start = peak(), time.perf_counter()
{load}
print(json.dumps([time.perf_counter() - start, peak() - before]))
"""


def make(path: Path, steps: int) -> int:
    """Write the file; returns the bytes of its arrays."""
    random = np.random.default_rng(0)
    episodes = steps // LENGTH
    arrays = {
        "observations": random.standard_normal((steps, NUMBERS), np.float32),
        "actions": random.random((steps, ACTIONS), np.float32) * 2 - 1,
        "lengths": np.full(episodes, LENGTH),
        "last_observations": random.standard_normal((episodes, NUMBERS), np.float32),
        "terminals": np.zeros(steps, bool),
        "rewards": random.random(steps, np.float32),
        "action_low": np.full(ACTIONS, -1.0),
        "action_high": np.full(ACTIONS, 1.0),
    }
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return sum(array.nbytes for array in arrays.values())


def measure(loader: str, path: Path) -> tuple[float, float]:
    """Seconds, and the bytes of memory that the load took at most."""
    command = [sys.executable, "-c", CHILD.format(load=LOADERS[loader]), str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--folder", help="where the file is made; default: the temporary folder")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "large.npz"
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:  # Linux hands a parent's peak on
            size = pool.submit(make, path, options.steps).result()
        measured: dict[str, list[tuple[float, float]]] = {loader: [] for loader in LOADERS}
        for _ in range(options.turns):
            for loader, results in measured.items():
                results.append(measure(loader, path))
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    machine = f"{os.cpu_count()} cores, load average {before:.1f} before and {os.getloadavg()[0]:.1f} after"
    about = [shlex.join(["python", *sys.argv]), versions, machine, made["date"]]
    rows = []
    peer = float(np.median([seconds for seconds, _ in measured["np.load"]]))
    for loader, results in measured.items():
        times, peaks = (np.array(values) for values in zip(*results, strict=True))
        seconds, peak = float(np.median(times)), float(peaks.max())
        print(
            f"{loader}: {seconds:.2f} s ({times.min():.2f} to {times.max():.2f}), {seconds / peer:.2f} times np.load, "
            f"{readable(peak)} of memory for {readable(size)} of arrays, {peak / size:.2f} times"
        )
        spread = [round(float(value), 2) for value in (seconds, times.min(), times.max(), seconds / peer)]
        memory = [round(peak / 1e6), round(peak / size, 2)]
        rows.append([loader, options.steps, NUMBERS, round(size / 1e6), *spread, *memory, options.turns, *about])
    print(machine)
    header = ["loader", "steps", "numbers", "megabytes", "seconds", "seconds_lowest", "seconds_highest"]
    header += ["times_np_load", "peak_megabytes", "peak_ratio", "turns"]
    write_csv(options.out, [*header, "command", "versions", "machine", "date"], rows)


if __name__ == "__main__":
    main()
