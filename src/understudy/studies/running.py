"""Runs the cells of a study that have not finished, on this machine, in one or several processes.

Each process takes the first group that has missing cells and that no other process trains (`Store.claim`), stores its
cells as they finish, and looks for the next group. So a second `study run` on the same directory shares the work, and
after a kill -9 the next `study run` resumes: finished cells are stored, and training continues from its checkpoint.

    DIR/work/                files of training until its cells are stored (`training`)
    DIR/failures/GROUP.txt   the error of a group that failed, until it succeeds
    DIR/logs/                output of worker processes that failed
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import jax

from understudy.core import display
from understudy.core.errors import NoSpaceError, RunError, UnderstudyError
from understudy.core.locks import Claim
from understudy.core.processes import start_python
from understudy.core.progress import Bar
from understudy.core.reader import FileReader
from understudy.core.storage import atomic_file, no_follow
from understudy.core.text import quoted
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.studies.cells import Store
from understudy.studies.groups import Cell, Group, check_evaluations, load_demonstrations, make_environments
from understudy.studies.interrupts import catch_interrupts
from understudy.studies.plan import Study
from understudy.studies.training import ProgressFactory, Stop, StudyStopped, never, train_cells
from understudy.studies.work import remove_work, work_directories

LONGEST_ERROR = 1000
"""Characters of an error in one line."""
WAIT = 0.5
"""Seconds between two checks of groups that other processes train."""
Environments = Mapping[str, Environment | GymnasiumEnvironment]


@dataclass(frozen=True)
class Plan:
    """A study with its groups, demonstrations and environments, loaded once."""

    study: Study
    groups: list[Group]
    demonstrations: dict[str, Demonstrations]
    environments: Environments
    _stored: set[str] = field(default_factory=set)
    """Keys of cells known to be stored. Stored cells stay, so they are not read again."""

    @classmethod
    def load(cls, study: Study) -> "Plan":
        demonstrations = load_demonstrations(study)
        environments = make_environments(study, demonstrations)
        check_evaluations(study, environments)
        return cls(study, study.groups(demonstrations), demonstrations, environments)

    @property
    def cells(self) -> list[Cell]:
        return [cell for group in self.groups for cell in group.cells]

    def missing(self, store: Store, group: Group | None = None) -> list[Cell]:
        """Cells that are not stored, of one group or of all."""
        unknown = [cell for cell in (self.cells if group is None else group.cells) if cell.key not in self._stored]
        self._stored.update(cell.key for cell in unknown if store.has(cell.key))
        return [cell for cell in unknown if cell.key not in self._stored]

    def progress(self, store: Store) -> str:
        """How many cells are stored, such as "4 of 8 cells"."""
        total = len(self.cells)
        return f"{total - len(self.missing(store))} of {total} cells"


@dataclass
class RunSummary:
    """The result of a call of `run`."""

    stored: int = 0
    """Cells that this call stored."""
    failed: dict[str, str] = field(default_factory=dict)
    """Group's name → its error, in one line."""

    def print(self, study: Study, directory: str | os.PathLike[str]) -> None:
        """Print how many cells are stored, and the groups that failed."""
        store, cells = Store(directory), [cell for group in study.groups() for cell in group.cells]
        stored = sum(store.has(cell.key) for cell in cells)
        print(f"{study.name}: {stored} of {len(cells)} cells, {self.stored} of them new, in {directory}")
        for name, error in self.failed.items():
            print(f"failed: {name}: {error}", file=sys.stderr)


def run(
    study: Study,
    directory: str | os.PathLike[str],
    jobs: int | None = None,
    progress: ProgressFactory = display.progress_bar,
    worker_command: Sequence[str] = (),
    stop: Stop = never,
) -> RunSummary:
    """Train and evaluate the cells of a study that are not in its directory.

    `worker_command` holds Python's arguments for a process that runs the same study with one job. If it is given,
    `jobs` such processes share the groups. The default is one per core and at most one per group; with an accelerator
    it is one, since one program of many seeds uses all of it. Without `worker_command`, this process trains all groups;
    once `stop()` is true, it ends after the round and raises StudyStopped. The next call continues from there.
    """
    store, plan = Store(directory), Plan.load(study)
    store.begin(study.to_dict())
    store.check_policies(cell.key for cell in plan.cells)
    unfinished = sum(bool(plan.missing(store, group)) for group in plan.groups)
    if jobs is None and worker_command and unfinished > 1:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        jobs = cores if jax.default_backend() == "cpu" else 1
    with explain_interrupt(plan, store):
        if jobs is not None and min(jobs, unfinished) > 1 and worker_command:
            summary = _run_workers(plan, store, min(jobs, unfinished), worker_command, progress)
        else:
            summary = run_groups(plan, store, progress, stop)
    if not plan.missing(store):
        _remove_work(store)
    return summary


@contextmanager
def explain_interrupt(plan: Plan, store: Store) -> Iterator[None]:
    """Add to a KeyboardInterrupt how many cells are stored and how to resume."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        stored = f"{plan.progress(store)} are stored in {store.directory}"
        raise type(stopped)(f"{stored}; run the same command to resume") from stopped


def run_groups(plan: Plan, store: Store, progress: ProgressFactory, stop: Stop = never) -> RunSummary:
    """Train groups in this process until no cell is missing. Waits for groups that other processes train."""
    summary, began = RunSummary(), time.time()
    with catch_interrupts(progress) as (interrupted, interruptible):
        while True:
            busy = False
            for group in plan.groups:
                if group.name in summary.failed or not plan.missing(store, group):
                    continue
                if stop():
                    raise StudyStopped
                claim = store.claim(group.key)
                if claim is None:
                    busy = True
                    continue
                with claim:
                    error = last_failure(store, group, began)  # in another process, since this one began
                    if error is None:
                        noting = _noted(claim, group.name, lambda: plan.progress(store), interruptible)
                        error = _train_group(plan, store, group, noting, stop, summary)
                    if error is not None:
                        summary.failed[group.name] = error
                if interrupted():
                    raise KeyboardInterrupt
            if not busy:
                return summary
            time.sleep(WAIT)


def _noted(claim: Claim, group: str, cells: Callable[[], str], progress: ProgressFactory) -> ProgressFactory:
    """A progress bar that also shows the cells done, and notes a group's rounds in its lock (`Store.rounds`)."""

    @contextmanager
    def bar(title: str) -> Iterator[Bar]:
        with progress(f"{title} ({cells()})") as report:

            def noting(done: int, total: int, metrics: Mapping[str, float | str]) -> None:
                if title == group:  # the others count evaluations
                    claim.note(done, total)
                report(done, total, metrics)

            yield noting

    return bar


def _train_group(
    plan: Plan, store: Store, group: Group, progress: ProgressFactory, stop: Stop, summary: RunSummary
) -> str | None:
    """Train the missing cells of a group. Returns the error, or None."""
    env, demos = plan.environments[group.task.env], plan.demonstrations[group.task.env]
    cells, wanted = plan.missing(store, group), {cell.key for cell in group.cells}
    try:
        with store.explain_full_disk(f"training {group.name}"):
            work, hardware = store.directory / "work", plan.study.hardware
            for finished in train_cells(group, cells, demos, env, work, hardware, progress, stop):
                stored = sum(record["key"] in wanted and store.write(record, policy) for record, policy in finished)
                summary.stored += stored
                display.note(f"{group.name}: {stored} cells stored; {plan.progress(store)}")
    except NoSpaceError:
        raise
    except Exception as error:  # noqa: BLE001 (other groups must still run, whatever this one raises)
        return record_failure(store, group, error)
    if (earlier := _failure_file(store, group)).is_file():  # a folder of this name is not ours
        earlier.unlink()
    return None


def record_failure(store: Store, group: Group, error: BaseException) -> str:
    """Write a group's error with its traceback to a file. Returns the error in one line."""
    path, line = _failure_file(store, group), " ".join(str(error).split())
    if not isinstance(error, UnderstudyError):
        line = f"{type(error).__name__}: {line} (traceback in {path})"
    with store.explain_full_disk(f"the error of {group.name}"), atomic_file(path) as temporary:
        temporary.write_text(f"{line}\n\n{''.join(traceback.format_exception(error))}", encoding="utf-8")
    return line


def last_failure(store: Store, group: Group, since: float = 0.0) -> str | None:
    """The error of a group's last attempt, in one line; None if it succeeded or was before `since`."""
    path = _failure_file(store, group)
    if not path.exists() or path.lstat().st_mtime < since:
        return None
    try:
        text = FileReader(path, "the error of a group", "remove it").text()
    except RunError as error:  # for example a damaged file: the group has failed, whatever the reason was
        text = str(error)
    return quoted(text.partition("\n")[0], LONGEST_ERROR)


def _failure_file(store: Store, group: Group) -> Path:
    return store.directory / "failures" / f"{group.key}.txt"


def _run_workers(
    plan: Plan, store: Store, jobs: int, worker_command: Sequence[str], progress: ProgressFactory
) -> RunSummary:
    """Start worker processes, report progress until they end, and collect their failures."""
    logs, began, before = store.directory / "logs", time.time(), len(plan.missing(store))
    workers: dict[Path, subprocess.Popen[bytes]] = {}
    try:
        with store.explain_full_disk("logs"):
            logs.mkdir(parents=True, exist_ok=True)
            for number in range(jobs):
                path = logs / f"{os.getpid()}-{number}.txt"
                with open(path, "wb", opener=no_follow) as log:
                    # A new session, so that Ctrl-C reaches this process only, which passes it on.
                    workers[path] = start_python(
                        worker_command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                    )
        _report_until_done(plan, store, list(workers.values()), progress)
    except KeyboardInterrupt:
        for worker in workers.values():
            worker.send_signal(signal.SIGINT)  # training ends after its round and writes a checkpoint
        for worker in workers.values():
            worker.wait()
        raise
    finally:
        for worker in workers.values():
            if worker.poll() is None:
                worker.kill()
            worker.wait()
    summary = RunSummary(before - len(plan.missing(store)))
    for group in plan.groups:
        error = last_failure(store, group, began) if plan.missing(store, group) else None
        if error is not None:
            summary.failed[group.name] = error
    for number, (path, worker) in enumerate(workers.items()):
        if worker.returncode == 0 or not plan.missing(store) or (worker.returncode == 1 and summary.failed):
            path.unlink()
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = quoted(lines[-1], LONGEST_ERROR) if lines else f"exit status {worker.returncode}"
        summary.failed[f"process {number + 1} of {jobs}"] = f"{last} (output in {path})"
    return summary


def _report_until_done(
    plan: Plan, store: Store, workers: Sequence[subprocess.Popen[bytes]], progress: ProgressFactory
) -> None:
    total, logged = len(plan.cells), ""
    with progress(f"{plan.study.name}: cells in {len(workers)} processes") as report:
        while any(worker.poll() is None for worker in workers):
            report(total - len(plan.missing(store)), total, _running(plan, store))
            if (text := plan.progress(store)) != logged:
                display.note(f"{plan.study.name}: {text}")
                logged = text
            time.sleep(WAIT)


def _running(plan: Plan, store: Store) -> dict[str, str]:
    """Name of each group that is being trained → its rounds."""
    groups = [group for group in plan.groups if plan.missing(store, group) and store.is_claimed(group.key)]
    noted = {group.name: store.rounds(group.key) for group in groups}
    return {name: f"{rounds[0]}/{rounds[1]} rounds" for name, rounds in noted.items() if rounds is not None}


def _remove_work(store: Store) -> None:
    """Remove the work directories of programs that no process trains, also of cells that left the study."""
    for directory in work_directories(store.directory / "work"):
        claim = store.claim(directory.name.partition("-")[0])
        if claim is not None:
            with claim:
                remove_work(directory)
