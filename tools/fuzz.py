"""Damage valid files and directories in many ways and read them.

    python tools/fuzz.py --out fuzz.csv                                the whole campaign
    python tools/fuzz.py demonstrations --count 3000 --seed 7          one kind, other random choices

A damaged file must be read as something valid, or be refused with a named error in one line that names the file; a
study's commands must refuse it, or go on with what is sound. Anything else is printed with its seed, and the exit
status is 1. The corpus of damage is tests/support/mutations.py. `--out` writes the table as CSV.
"""

import argparse
import collections
import multiprocessing
import resource
import shlex
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.arrow_fuzzing import TARGETS as ARROW_TARGETS
from support.format_fuzzing import FORMAT_TARGETS
from support.fuzzing import TARGETS as OWN_TARGETS
from support.fuzzing import attack
from support.hdf5_files import KINDS, attack_hdf5, make_valid
from support.study_fuzzing import attack_study, make_studies
from understudy.core import display
from understudy.train.tables import provenance, write_csv

TARGETS = OWN_TARGETS | FORMAT_TARGETS | ARROW_TARGETS
COUNTS = {
    "demonstrations": 24_000,
    "csv": 6000,
    "arrays": 6000,
    "policies": 2000,
    "weights": 1000,
    "models": 5000,
    "runs": 1500,
    "checkpoints": 600,
    "studies": 600,
    **dict.fromkeys((*KINDS, *ARROW_TARGETS), 5000),
}
"""Kinds, and how many of them are damaged in the whole campaign."""


class Row(NamedTuple):
    """What happened to one kind."""

    kind: str
    damaged: int
    ways: int
    refused: int
    valid: int
    """Read as something valid, or gone on with what is sound."""
    failures: int
    seconds: float
    megabytes: float
    """The most memory of the process."""


def campaign(name: str, count: int, first: int) -> Row:
    """Attack one kind `count` times."""
    ways, outcomes = set[str](), collections.Counter[str]()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "valid"
        place.mkdir()
        valid = _valid(name, place)
        for seed in range(first, first + count):
            try:
                damage, outcome = _attacked(name, valid, Path(folder), seed)
                ways.add(damage.split(",")[0].split(" ")[0])
            except Exception:  # noqa: BLE001 (any exception is a finding)
                outcome = "failures"
                print(f"{name}, seed {seed}: {traceback.format_exc()}", file=sys.stderr)
            outcomes[outcome] += 1
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    counts = (len(ways), outcomes["refused"], outcomes["valid"], outcomes["failures"])
    return Row(name, count, *counts, round(time.perf_counter() - begun, 1), round(memory))


def _valid(name: str, place: Path) -> list[Path]:
    if name == "studies":
        return make_studies(place)
    return make_valid(name, place) if name in KINDS else TARGETS[name].make(place)


def _attacked(name: str, valid: list[Path], folder: Path, seed: int) -> tuple[str, str]:
    """The damage, and "refused" or "valid"."""
    if name == "studies":
        damage, outcome = attack_study(valid, folder, seed)
        return damage, "refused" if outcome == "refused" else "valid"
    if name in KINDS:
        damage, was_read = attack_hdf5(name, valid, folder, seed)
    else:
        damage, was_read = attack(TARGETS[name], valid, folder, seed)
    return damage, "valid" if was_read else "refused"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", choices=[*COUNTS, []], help="default: all")
    parser.add_argument("--count", type=int, help="how many of each kind; default: those of the whole campaign")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="kinds at the same time")
    parser.add_argument("--out", type=Path, help="CSV file to write")
    options = parser.parse_args()
    names = options.kinds or list(COUNTS)
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        calls = [pool.submit(campaign, name, options.count or COUNTS[name], options.seed) for name in names]
        rows = [call.result() for call in calls]
    display.show([field if field == "kind" else f">{field}" for field in Row._fields], rows, "")
    if options.out is not None:
        made = provenance()
        versions = " ".join(f"{name}={version}" for name, version in made["versions"].items())
        tail = [options.seed, shlex.join(["python", *sys.argv]), versions, made["date"]]
        write_csv(options.out, [*Row._fields, "seed", "command", "versions", "date"], ([*row, *tail] for row in rows))
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
