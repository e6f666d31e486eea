"""A long test by attack: mixed work with random kills, damaged files, full disks and hung environments.

    make soak                                            40 minutes
    python tools/soak.py --minutes 5 --seed 7            shorter, other random choices
    python tools/soak.py --only killed-training          one kind of attack

Each trial runs commands in a directory of its own (`soak_trials`). The table at the end says how often each kind was
tried and how it ended; the exit status is 1 if anything was lost. `--out` writes the table as CSV.

    survived    the work was done, and results are what they would have been without the attack
    refused     one clear line and the right exit status, and nothing changed
    lost        a result, or part of it, is gone or wrong
    accepted    a damaged file was used without a word
    traceback   a command ended with a traceback
    hung        a command did not end, or left processes behind
    touched     a file of the user was changed or removed
"""

import argparse
import collections
import random
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # support.mutations

from soak_bench import GOOD, Bench, Trial
from soak_trials import QUICK, TRIALS
from understudy.core import display
from understudy.train.tables import provenance, write_csv

VERDICTS = ("survived", "refused", "lost", "accepted", "traceback", "hung", "touched")


class Tally:
    """What happened so far."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.verdicts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.kills: collections.Counter[str] = collections.Counter()
        self.commands: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []

    def add(self, trial: Trial, verdict: str, detail: str) -> None:
        with self.lock:
            self.verdicts[trial.name, verdict] += 1
            self.kills[trial.name] += trial.kills
            self.commands[trial.name] += trial.commands
            if verdict not in GOOD:
                self.failures.append(f"{trial.name}, seed {trial.seed}: {verdict}: {detail}")
                print(self.failures[-1], file=sys.stderr, flush=True)

    def rows(self) -> list[list[object]]:
        rows = []
        for name in TRIALS:
            counts = [self.verdicts[name, verdict] for verdict in VERDICTS]
            rows.append([name, sum(counts), self.commands[name], self.kills[name], *counts])
        return [*rows, ["all", *(sum(column) for column in zip(*(row[1:] for row in rows), strict=True))]]


def deal(names: list[str], source: random.Random) -> Iterator[tuple[str, int]]:
    """Kinds of trials and their seeds, for ever: each kind once in random order, the quick ones three times."""
    while True:
        deck = [name for name in names for _ in range(3 if name in QUICK else 1)]
        source.shuffle(deck)
        for name in deck:
            yield name, source.randrange(2**32)


def work(bench: Bench, deck: Iterator[tuple[str, int]], until: float, tally: Tally) -> None:
    """Run trials until the time is over."""
    while time.monotonic() < until:
        with tally.lock:
            name, seed = next(deck)
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            trial = Trial(name, seed, Path(folder), bench)
            tally.add(trial, *trial.run(TRIALS[name]))


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--jobs", type=int, default=2, help="trials that run at the same time")
    parser.add_argument("--only", nargs="+", choices=list(TRIALS), default=list(TRIALS), metavar="TRIAL")
    parser.add_argument("--trial-seed", type=int, help="run one trial of --only with this seed, as a failure names it")
    parser.add_argument("--out", type=Path, help="CSV file to write")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="soak-bench-") as folder:
        print("Preparing reference runs", file=sys.stderr, flush=True)
        bench = Bench(Path(folder))
        if options.trial_seed is not None:
            with tempfile.TemporaryDirectory(prefix="soak-") as place:
                trial = Trial(options.only[0], options.trial_seed, Path(place), bench)
                print(*trial.run(), sep=": ")
            return 0
        until = time.monotonic() + 60 * options.minutes
        arguments = (bench, deal(options.only, random.Random(options.seed)), until, tally)
        with display.progress_bar("soak") as report, ThreadPoolExecutor(options.jobs) as pool:
            threads = [pool.submit(work, *arguments) for _ in range(options.jobs)]
            while any(thread.running() for thread in threads):
                total, left = int(options.minutes * 60), int(max(0, until - time.monotonic()))
                report(total - left, total, {"trials": sum(tally.verdicts.values())})
                time.sleep(1)
            for thread in threads:
                thread.result()
    headers = ("trial", ">tried", ">commands", ">kills", *(f">{verdict}" for verdict in VERDICTS))
    display.show(headers, tally.rows(), f"{options.minutes:g} minutes, seed {options.seed}")
    if options.out is not None:
        made = provenance()
        command = shlex.join(["python", *sys.argv])
        tail = [command, " ".join(f"{name}={version}" for name, version in made["versions"].items()), made["date"]]
        header = [*(header.lstrip(">") for header in headers), "minutes", "seed", "command", "versions", "date"]
        write_csv(options.out, header, ([*row, options.minutes, options.seed, *tail] for row in tally.rows()))
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
