"""Time of a gradient step of behavioral cloning: understudy and the `imitation` package, same network and batch size.

    make bench

The two alternate, so that other load on the machine affects both. The fastest repetition of each counts. The ratios are
printed and written to docs/results/bc-speed.csv.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import tyro

import understudy as us
from understudy.train import loop as run
from understudy.train.tables import provenance, write_csv

HERE = Path(__file__).parent
OBS, ACT = 26, 6  # HalfCheetah's
PEER_STEPS = 1000


@dataclass(frozen=True)
class Options:
    peer: str = ".venv-bench/bin/python"
    """A Python with `imitation` installed; `make bench` makes one."""
    repeats: int = 5
    """Repetitions of each."""
    batch_size: int = 32
    """Minibatch size. The default is that of `imitation`."""
    out: str = str(HERE.parent / "docs/results/bc-speed.csv")
    """CSV file of the times."""


def ours(runs: int, batch_size: int, demonstrations: us.Demonstrations) -> float:
    """Milliseconds of a gradient step of `runs` runs in one program. The first call includes compilation."""
    # The default of `imitation`: two tanh layers of 32, Gaussian log-likelihood.
    learner = us.bc(
        loss="likelihood", hidden=(32, 32), activation="tanh", batch_size=batch_size, rounds=10, gradient_steps=1000
    )
    data, _ = demonstrations.split([demonstrations.episodes] * runs, 0.0)
    keys = jax.random.split(jax.random.key(0), runs)
    began = time.perf_counter()
    run.train(learner, demonstrations.spec, data, keys)
    return (time.perf_counter() - began) / (learner.rounds * learner.gradient_steps) * 1e3


def theirs(peer: str, batch_size: int) -> tuple[float, str]:
    """Milliseconds of a gradient step of `imitation`, and its versions."""
    script = str(HERE / "peers/imitation_bc.py")
    command = [peer, script, *map(str, (PEER_STEPS, batch_size, OBS, ACT))]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(answer.stdout.splitlines()[-1])
    assert result["layers"] == [[32, OBS], [32, 32]], f"the networks differ: {result['layers']}"
    return float(result["ms"]), str(result["versions"])


def main() -> None:
    options = tyro.cli(Options, description=__doc__)
    if not Path(options.peer).exists():
        sys.exit(f"no Python at {options.peer}: run `make bench`")
    random = np.random.default_rng(0)
    demonstrations = us.Demonstrations.from_arrays(
        random.normal(size=(5000, OBS)),
        random.uniform(-1, 1, (5000, ACT)),
        [1000] * 5,
        action_space=us.Continuous((-1.0,) * ACT, (1.0,) * ACT),
    )
    times: dict[str, list[float]] = {"imitation": [], "one": [], "many": []}
    for runs in (1, 25):
        ours(runs, options.batch_size, demonstrations)  # compile
    for _ in range(options.repeats):
        spent, peer_versions = theirs(options.peer, options.batch_size)
        times["imitation"].append(spent)
        times["one"].append(ours(1, options.batch_size, demonstrations))
        times["many"].append(ours(25, options.batch_size, demonstrations))
    peer, one, many = (min(times[name]) for name in ("imitation", "one", "many"))
    made = provenance()
    versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
    about = ["make bench", f"{versions} {peer_versions}", f"{os.cpu_count()} cores, {made['device']}", made["date"]]
    rows = [
        ["imitation, one run", round(peer, 4), "1"],
        ["understudy, one run", round(one, 4), f"{peer / one:.1f} times faster"],
        ["understudy, 25 runs in one program", round(many, 4), f"{many / one:.1f} times the time of one"],
        ["understudy, 25 runs, for each run", round(many / 25, 5), f"{25 * peer / many:.1f} times faster"],
    ]
    header = ["what", "ms_a_step", "ratio", "command", "versions", "machine", "date"]
    write_csv(Path(options.out), header, ([*row, *about] for row in rows))
    for name, milliseconds, ratio in rows:
        print(f"{name:<36}{milliseconds:>10} ms a step   {ratio}")


if __name__ == "__main__":
    main()
