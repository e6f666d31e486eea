"""The diagnosis on the planted cases: which place it gives to the known cause (docs/results/planted.csv).

    python benchmarks/planted.py
    python benchmarks/planted.py ridge-fatal healthy-pole    # only these; the other rows of the file stay

Causes of equal likelihood share a place. A healthy run has the cause "none".
"""

import csv
import sys
import time
from pathlib import Path
from typing import Any

import understudy as us
from hidden_cases import CASES, Case
from understudy.core.errors import unknown
from understudy.train.tables import provenance, write_csv

OUT = Path(__file__).parent.parent / "docs/results/planted.csv"
HEADER = (
    *("case", "cause", "place", "causes", "facts", "build_seconds", "seconds"),
    *("command", "versions", "machine", "date"),
)


def main() -> None:
    chosen = sys.argv[1:] or list(CASES)
    for name in chosen:
        if name not in CASES:
            raise unknown("case", name, list(CASES))
    stored = list(csv.DictReader(OUT.open(encoding="utf-8"))) if OUT.exists() else []
    rows = {row["case"]: [row[name] for name in HEADER] for row in stored if row["case"] in CASES}
    for name in chosen:
        rows[name] = diagnosed(name)
        print(*rows[name][:7], sep="  ", flush=True)
        write_csv(OUT, list(HEADER), [rows[case] for case in CASES if case in rows])
    places = [int(rows[name][2] or 0) for name in chosen]
    first, among = sum(place == 1 for place in places), sum(1 <= place <= 3 for place in places)
    print(f"first in {first}, among the first three in {among} of {len(places)}")


def diagnosed(name: str) -> list[Any]:
    """A row of the file. The place is empty if the diagnosis does not name the cause."""
    start = time.perf_counter()
    built = CASES[name]()
    middle = time.perf_counter()
    causes = us.diagnose(built["subject"], **built["arguments"]).causes
    end = time.perf_counter()
    made = provenance()
    return [
        *(name, built["cause"], place_of(built, causes)),
        "; ".join(f"{cause.name} {cause.likelihood:.3g}" for cause in causes),
        "; ".join(f"{fact} {value:.3g}" for fact, value in built["facts"].items()),
        *(round(middle - start, 1), round(end - middle, 1), f"python benchmarks/{made['command']}"),
        " ".join(f"{package}={version}" for package, version in made["versions"].items()),
        *(made["device"], made["date"]),
    ]


def place_of(built: Case, causes: list[Any]) -> int | str:
    """1 plus the number of causes that are more likely than the known one; empty if it is not among them."""
    likelihoods = [cause.likelihood for cause in causes if cause.name == built["cause"]]
    return 1 + sum(cause.likelihood > max(likelihoods) for cause in causes) if likelihoods else ""


if __name__ == "__main__":
    main()
