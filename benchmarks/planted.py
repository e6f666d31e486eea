"""The diagnosis on the planted cases: which place it gives to the known cause (docs/results/planted.csv).

    python benchmarks/planted.py
    python benchmarks/planted.py ridge-fatal healthy-pole    # only these; the other rows of the file stay
    python benchmarks/planted.py --set unseen                # another set, to docs/results/planted-unseen.csv
    python benchmarks/planted.py --set fresh                 # the third one, to docs/results/planted-fresh.csv
    python benchmarks/planted.py --set unseen --build-only   # measure the facts of the cases, without a diagnosis

Causes of equal likelihood share a place. A healthy run has the cause "none".
"""

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import fresh_cases
import fresh_healthy
import hidden_cases
import understudy as us
import unseen_cases
from hidden_cases import Builder, Case
from understudy.core.errors import unknown
from understudy.train.tables import provenance, write_csv

SETS = {
    "hidden": (hidden_cases.CASES, "planted.csv"),
    "unseen": (unseen_cases.CASES, "planted-unseen.csv"),
    "fresh": (fresh_cases.CASES | fresh_healthy.CASES, "planted-fresh.csv"),
}
"""Name → the cases, and their file in docs/results."""
HEADER = (
    *("case", "cause", "place", "causes", "facts", "build_seconds", "seconds"),
    *("command", "versions", "machine", "date"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Diagnose the planted cases.")
    parser.add_argument("cases", nargs="*", help="Names of cases (default: all).")
    parser.add_argument("--set", choices=list(SETS), default="hidden", help="Set of cases (default: hidden).")
    parser.add_argument("--build-only", action="store_true", help="Build the cases without a diagnosis; write no file.")
    options = parser.parse_args()
    cases, file = SETS[options.set]
    chosen = options.cases or list(cases)
    for name in chosen:
        if name not in cases:
            raise unknown("case", name, list(cases))
    if options.build_only:
        build(cases, chosen)
    else:
        diagnose(cases, chosen, Path(__file__).parent.parent / "docs/results" / file)


def build(cases: dict[str, Builder], chosen: list[str]) -> None:
    """Build the cases, and print their facts and the seconds of processor time."""
    failed = 0
    for name in chosen:
        start = time.process_time()
        try:
            built = cases[name]()
            found = f"{built['cause']}  {shown(built)}"
        except AssertionError as error:
            failed, found = failed + 1, f"FAILED: {error}"
        print(name, f"{time.process_time() - start:.1f} s", found, sep="  ", flush=True)
    if failed:
        raise SystemExit(f"{failed} of {len(chosen)} cases do not show their cause")


def diagnose(cases: dict[str, Builder], chosen: list[str], out: Path) -> None:
    """Diagnose the cases, and write their rows; the other rows of the file stay."""
    stored = list(csv.DictReader(out.open(encoding="utf-8"))) if out.exists() else []
    rows = {row["case"]: [row[name] for name in HEADER] for row in stored if row["case"] in cases}
    for name in chosen:
        rows[name] = diagnosed(name, cases[name])
        print(*rows[name][:7], sep="  ", flush=True)
        write_csv(out, list(HEADER), [rows[case] for case in cases if case in rows])
    places = [int(rows[name][2] or 0) for name in chosen]
    first, among = sum(place == 1 for place in places), sum(1 <= place <= 3 for place in places)
    print(f"first in {first}, among the first three in {among} of {len(places)}")


def diagnosed(name: str, build: Builder) -> list[Any]:
    """A row of the file. The place is empty if the diagnosis does not name the cause."""
    start = time.perf_counter()
    built = build()
    middle = time.perf_counter()
    causes = us.diagnose(built["subject"], **built["arguments"]).causes
    end = time.perf_counter()
    made = provenance()
    return [
        *(name, built["cause"], place_of(built, causes)),
        "; ".join(f"{cause.name} {cause.likelihood:.3g}" for cause in causes),
        shown(built),
        *(round(middle - start, 1), round(end - middle, 1), f"python benchmarks/{made['command']}"),
        " ".join(f"{package}={version}" for package, version in made["versions"].items()),
        *(made["device"], made["date"]),
    ]


def shown(built: Case) -> str:
    """The facts of a case in one line."""
    return "; ".join(f"{fact} {value:.3g}" for fact, value in built["facts"].items())


def place_of(built: Case, causes: list[Any]) -> int | str:
    """1 plus the number of causes that are more likely than the known one; empty if it is not among them."""
    likelihoods = [cause.likelihood for cause in causes if cause.name == built["cause"]]
    return 1 + sum(cause.likelihood > max(likelihoods) for cause in causes) if likelihoods else ""


if __name__ == "__main__":
    main()
