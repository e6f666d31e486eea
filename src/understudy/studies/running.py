"""Running a study: what is missing, on this machine, by one process or several that share a directory.

Each process takes the first group that has something missing and that nobody else trains (`Store.claim`), stores its
cells as they finish, and looks again. So a second `study run` on the same directory helps the first one, and after a
kill -9 the next one goes on: finished cells are there, and a group's training has kept its place.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax

from understudy.data import Demonstrations
from understudy.envs import Environment, HostEnvironment
from understudy.errors import RunError, UnderstudyError
from understudy.studies.cells import Store
from understudy.studies.groups import Cell, Group, check_tasks, load_demonstrations
from understudy.studies.plan import Study
from understudy.studies.training import Report, trained

WAIT = 0.5
"""Seconds between two looks at what others train."""
PARENT = "UNDERSTUDY_PARENT"
"""The variable by which a process knows whom it works for, and without whom it ends."""
FAILED = "failed: "
"""How a process tells, in its log, that a group could not be trained."""
Environments = Mapping[str, Environment | HostEnvironment]


@dataclass(frozen=True)
class Plan:
    """A study with all that its training needs, loaded once."""

    study: Study
    groups: list[Group]
    demonstrations: dict[str, Demonstrations]
    environments: Environments

    @classmethod
    def of(cls, study: Study) -> "Plan":
        demonstrations = load_demonstrations(study)
        return cls(study, study.groups(demonstrations), demonstrations, check_tasks(study))

    @property
    def cells(self) -> list[Cell]:
        return [cell for group in self.groups for cell in group.cells]

    def missing(self, store: Store) -> list[Cell]:
        """What the directory lacks."""
        return [cell for cell in self.cells if not store.has(cell.key)]


@dataclass
class Outcome:
    """What a call of `run` did."""

    stored: int = 0
    """Cells that this process stored."""
    failed: dict[str, str] = field(default_factory=dict)
    """Group, as a person calls it → why it could not be trained."""


def run(
    study: Study,
    directory: str | os.PathLike[str],
    jobs: int | None = None,
    progress: Report | None = None,
    again: Sequence[str] = (),
) -> Outcome:
    """Train and play what is missing in the directory of a study.

    `jobs` processes share the groups (default: one for each core, and as many as there are groups; one where there is
    an accelerator, which a program of many seeds fills by itself). With several, `again` is the command line that each
    of them runs, which is this one's own with a single job.
    """
    from understudy import display

    store, plan = Store(directory), Plan.of(study)
    store.begin(study.plain())
    waiting = [group for group in plan.groups if any(not store.has(cell.key) for cell in group.cells)]
    if jobs is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        jobs = 1 if jax.default_backend() != "cpu" or not again else min(cores, len(waiting))
    if jobs > 1 and len(waiting) > 1:
        outcome = _shared(plan, store, min(jobs, len(waiting)), again, progress or display.progress_bar)
    else:
        outcome = work(plan, store, progress or display.progress_bar)
    if not plan.missing(store):
        _tidy(plan, store)
    return outcome


def work(plan: Plan, store: Store, progress: Report) -> Outcome:
    """Train groups until none is missing anything, waiting for those that others train."""
    outcome, tried = Outcome(), set[int]()
    while True:
        busy = False
        for number, group in enumerate(plan.groups):
            if number in tried or all(store.has(cell.key) for cell in group.cells):
                continue
            claim = store.claim(group.key)
            if claim is None:
                busy = True
                continue
            with claim:
                cells = [cell for cell in group.cells if not store.has(cell.key)]
                try:
                    outcome.stored += _trained(plan, store, group, cells, progress)
                except UnderstudyError as error:
                    if isinstance(error, RunError):  # of the directory itself: the disk is full
                        raise
                    tried.add(number)
                    outcome.failed[f"{group.entry.label} on {group.task.env}"] = str(error)
        if not busy:
            return outcome
        time.sleep(WAIT)


def _trained(plan: Plan, store: Store, group: Group, cells: list[Cell], progress: Report) -> int:
    env, shown = plan.environments[group.task.env], plan.demonstrations[group.task.env]
    place, hands = store.directory / "work", plan.study.hardware.cpus
    wanted, stored = {cell.key for cell in group.cells}, 0
    for finished in trained(group, cells, shown, env, place, hands, progress):
        for record, policy in finished:
            stored += record["key"] in wanted and store.write(record, policy)
    return stored


def _shared(plan: Plan, store: Store, jobs: int, again: Sequence[str], progress: Report) -> Outcome:
    """Let other processes work, each with this one's command and a single job; tell how far they are."""
    logs = store.directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    before = len(plan.missing(store))
    helpers = []
    for number in range(jobs):
        with (logs / f"{os.getpid()}-{number}.txt").open("w", encoding="utf-8") as log:
            words, own = [sys.executable, *again], {**os.environ, PARENT: str(os.getpid())}
            helpers.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=own))
    total, outcome = len(plan.cells), Outcome()
    try:
        with progress(f"{plan.study.name}: {jobs} processes") as report:
            while any(helper.poll() is None for helper in helpers):
                report(total - len(plan.missing(store)), total, {})
                time.sleep(WAIT)
    except BaseException:
        for helper in helpers:
            helper.terminate()
        raise
    for number, helper in enumerate(helpers):
        if helper.returncode not in (0, 1):
            file = logs / f"{os.getpid()}-{number}.txt"
            lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            outcome.failed[f"process {number}"] = f"{lines[-1] if lines else f'ended by {helper.returncode}'} ({file})"
    outcome.stored = before - len(plan.missing(store))
    for line in _failures(logs):
        name, _, why = line.partition(": ")
        outcome.failed[name] = why
    return outcome


def _failures(logs: Path) -> list[str]:
    found = []
    for file in sorted(logs.glob(f"{os.getpid()}-*.txt")):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [line.removeprefix(FAILED) for line in lines if line.startswith(FAILED)]
    return found


def _tidy(plan: Plan, store: Store) -> None:
    """Remove what training kept of groups that are done, and of what the study no longer asks, if nobody is at it."""
    for place in (store.directory / "work").glob("*-*"):
        claim = store.claim(place.name.partition("-")[0])
        if claim is not None:
            with claim:
                shutil.rmtree(place, ignore_errors=True)
