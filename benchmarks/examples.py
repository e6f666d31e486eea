"""The scripts of examples/: seconds and processor seconds of each, the first time it runs on a machine.

python benchmarks/examples.py
python benchmarks/examples.py 01_clone 08_study     # only these; the other rows of the file stay
"""

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from understudy.train.tables import provenance, write_csv

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs/results/examples.csv"
HEADER = ("example", "seconds", "cpu_seconds", "command", "versions", "machine", "date")


def main() -> None:
    scripts = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
    chosen = sys.argv[1:] or list(scripts)
    if unknown := sorted({*chosen} - {*scripts}):
        sys.exit(f"error: no example '{unknown[0]}': choose from {', '.join(scripts)}")
    stored = list(csv.DictReader(OUT.open(encoding="utf-8"))) if OUT.exists() else []
    rows = [[row[name] for name in HEADER] for row in stored if row["example"] in {*scripts} - {*chosen}]
    for name in chosen:
        rows.append(measured(scripts[name]))
        print(*rows[-1][:3], flush=True)
        write_csv(OUT, list(HEADER), sorted(rows, key=lambda row: row[0]))


def measured(script: Path) -> list[Any]:
    """A row of the file."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        first = {**os.environ, "XDG_CACHE_HOME": cache}  # as on a machine where nothing is compiled yet
        before = os.times()
        subprocess.run([sys.executable, script], cwd=folder, env=first, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    made = provenance()
    versions = " ".join(f"{package}={version}" for package, version in made["versions"].items())
    command = f"python {script.relative_to(ROOT).as_posix()}"
    numbers = (round(after.elapsed - before.elapsed, 1), round(cpu, 1))
    return [script.stem, *numbers, command, versions, f"{os.cpu_count()} cores, {made['device']}", made["date"]]


if __name__ == "__main__":
    main()
