"""Running a study: what is missing, on this machine, by one process or several that share a directory.

Each process takes the first group that has something missing and that nobody else trains (`Store.claim`), stores its
cells as they finish, and looks again. So a second `study run` on the same directory helps the first one, and after a
kill -9 the next one goes on: finished cells are there, and a group's training has kept its place.

    DIR/work/                what training keeps until its cells are stored (`training`)
    DIR/failures/GROUP.txt   why a group could not be trained, until it is
    DIR/logs/                what processes said that ended badly
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import jax

from understudy.core import display
from understudy.core.errors import NoSpaceError, UnderstudyError
from understudy.core.progress import Progress
from understudy.core.storage import whole_file
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.studies.cells import Store
from understudy.studies.groups import Cell, Group, check_tasks, load_demonstrations
from understudy.studies.plan import Study
from understudy.studies.training import Report, called, remove, trained

WAIT = 0.5
"""Seconds between two looks at what others train."""
PARENT = "UNDERSTUDY_PARENT"
"""The variable by which a process knows whom it works for, and without whom it ends."""
Environments = Mapping[str, Environment | GymnasiumEnvironment]


@dataclass(frozen=True)
class Plan:
    """A study with all that its training needs, loaded once."""

    study: Study
    groups: list[Group]
    demonstrations: dict[str, Demonstrations]
    environments: Environments
    _there: set[str] = field(default_factory=set)
    """Cells that were seen: they stay, so nobody reads them again to know."""

    @classmethod
    def of(cls, study: Study) -> "Plan":
        demonstrations = load_demonstrations(study)
        return cls(study, study.groups(demonstrations), demonstrations, check_tasks(study))

    @property
    def cells(self) -> list[Cell]:
        return [cell for group in self.groups for cell in group.cells]

    def missing(self, store: Store, group: Group | None = None) -> list[Cell]:
        """What the directory lacks, of a group or of all."""
        unseen = [cell for cell in (self.cells if group is None else group.cells) if cell.key not in self._there]
        self._there.update(cell.key for cell in unseen if store.has(cell.key))
        return [cell for cell in unseen if cell.key not in self._there]

    def far(self, store: Store) -> str:
        """How far the study is."""
        total = len(self.cells)
        return f"{total - len(self.missing(store))} of {total} cells"


@dataclass
class Outcome:
    """What a call of `run` did."""

    stored: int = 0
    """Cells that this process stored."""
    failed: dict[str, str] = field(default_factory=dict)
    """Group, as a person calls it → why it could not be trained, in a line."""


def run(
    study: Study,
    directory: str | os.PathLike[str],
    jobs: int | None = None,
    progress: Report = display.progress_bar,
    again: Sequence[str] = (),
) -> Outcome:
    """Train and play what is missing in the directory of a study.

    With `again`, a command line of Python's that does the same with a single job, `jobs` processes share the groups
    (default: one for each core, and no more than there are groups; one where there is an accelerator, which a program
    of many seeds fills by itself). Without it, this process does all.
    """
    store, plan = Store(directory), Plan.of(study)
    store.begin(study.plain())
    waiting = sum(bool(plan.missing(store, group)) for group in plan.groups)
    if jobs is None and again and waiting > 1:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        jobs = cores if jax.default_backend() == "cpu" else 1
    with going_on(plan, store):
        if jobs is not None and min(jobs, waiting) > 1 and again:
            outcome = _shared(plan, store, min(jobs, waiting), again, progress)
        else:
            outcome = work(plan, store, progress)
    if not plan.missing(store):
        _tidy(store)
    return outcome


@contextmanager
def going_on(plan: Plan, store: Store) -> Iterator[None]:
    """Tell whoever presses Ctrl-C what is kept."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        kept = f"{plan.far(store)} are kept in {store.directory}"
        raise KeyboardInterrupt(f"{kept}, and the same command goes on from there") from stopped


def work(plan: Plan, store: Store, progress: Report) -> Outcome:
    """Train groups until none is missing anything, waiting for those that others train."""
    outcome, began = Outcome(), time.time()
    with _interruptions(progress) as (interrupted, attentive):
        while True:
            busy = False
            for group in plan.groups:
                if called(group) in outcome.failed or not plan.missing(store, group):
                    continue
                claim = store.claim(group.key)
                if claim is None:
                    busy = True
                    continue
                with claim:
                    why = failure(store, group, began)  # of another process, meanwhile
                    if why is None:
                        why = _tried(plan, store, group, attentive, outcome)
                    if why is not None:
                        outcome.failed[called(group)] = why
                if interrupted():
                    raise KeyboardInterrupt
            if not busy:
                return outcome
            time.sleep(WAIT)


def _tried(plan: Plan, store: Store, group: Group, progress: Report, outcome: Outcome) -> str | None:
    """Train what a group lacks; why it failed, or None."""
    env, shown = plan.environments[group.task.env], plan.demonstrations[group.task.env]
    cells, wanted = plan.missing(store, group), {cell.key for cell in group.cells}
    try:
        with store.room(f"the training of {called(group)}"):
            place, hands = store.directory / "work", plan.study.hardware.cpus
            for finished in trained(group, cells, shown, env, place, hands, progress):
                stored = sum(record["key"] in wanted and store.write(record, policy) for record, policy in finished)
                outcome.stored += stored
                display.note(f"{called(group)}: {stored} cells stored; {plan.far(store)}")
    except NoSpaceError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever one group does, the others go on)
        return failed(store, group, error)
    _failure_file(store, group).unlink(missing_ok=True)
    return None


def failed(store: Store, group: Group, error: BaseException) -> str:
    """Keep what a group failed by; it in a line."""
    path, why = _failure_file(store, group), " ".join(str(error).split())
    if not isinstance(error, UnderstudyError):
        why = f"{type(error).__name__}: {why} (more in {path})"
    with store.room(f"why {called(group)} failed"), whole_file(path) as beside:
        beside.write_text(f"{why}\n\n{''.join(traceback.format_exception(error))}", encoding="utf-8")
    return why


def failure(store: Store, group: Group, since: float = 0.0) -> str | None:
    """Why a group could not be trained when it was last tried, at some time since; None where it could."""
    path = _failure_file(store, group)
    if not path.exists() or path.stat().st_mtime < since:
        return None
    return path.read_text(encoding="utf-8").partition("\n")[0]


def _failure_file(store: Store, group: Group) -> Path:
    return store.directory / "failures" / f"{group.key}.txt"


def _shared(plan: Plan, store: Store, jobs: int, again: Sequence[str], progress: Report) -> Outcome:
    """Let other processes work, each with this one's command and a single job; tell how far they are."""
    logs, began, total = store.directory / "logs", time.time(), len(plan.cells)
    before = len(plan.missing(store))
    helpers: dict[Path, subprocess.Popen[bytes]] = {}
    try:
        with store.room("logs"):
            logs.mkdir(parents=True, exist_ok=True)
            for number in range(jobs):
                path = logs / f"{os.getpid()}-{number}.txt"
                with path.open("wb") as log:
                    words, own = [sys.executable, *again], {**os.environ, PARENT: str(os.getpid())}
                    # In a session of its own: Ctrl-C is this process's to pass on.
                    helpers[path] = subprocess.Popen(
                        words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=own, start_new_session=True
                    )
        with progress(f"{plan.study.name}: {jobs} processes") as report:
            told = ""
            while any(helper.poll() is None for helper in helpers.values()):
                report(total - len(plan.missing(store)), total, {})
                if (now := plan.far(store)) != told:
                    display.note(f"{plan.study.name}: {now}")
                    told = now
                time.sleep(WAIT)
    except KeyboardInterrupt:
        for helper in helpers.values():
            helper.send_signal(signal.SIGINT)  # training ends with its round, and keeps its place
        for helper in helpers.values():
            helper.wait()
        raise
    finally:
        for helper in helpers.values():
            if helper.poll() is None:
                helper.kill()
            helper.wait()
    outcome = Outcome(before - len(plan.missing(store)))
    for group in plan.groups:
        why = failure(store, group, began) if plan.missing(store, group) else None
        if why is not None:
            outcome.failed[called(group)] = why
    for number, (path, helper) in enumerate(helpers.items()):
        if helper.returncode == 0 or not plan.missing(store) or (helper.returncode == 1 and outcome.failed):
            path.unlink()
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"ended by {helper.returncode}"
        outcome.failed[f"process {number + 1} of {jobs}"] = f"{last} (more in {path})"
    return outcome


def _tidy(store: Store) -> None:
    """Remove what training kept, of what the study no longer asks for too, if nobody is at it."""
    for place in (store.directory / "work").glob("*-*"):
        claim = store.claim(place.name.lstrip(".").partition("-")[0])
        if claim is not None:
            with claim:
                remove(place)


@contextmanager
def _interruptions(progress: Report) -> Iterator[tuple[Callable[[], bool], Report]]:
    """See that no Ctrl-C is lost: whether one was pressed, and progress that asks training to end if it was.

    Training ends after the round in which it is pressed; if that was its last, it does not tell (`run.train`). Outside
    of training it raises, and what is raised in a callback of a compiler is forgotten there.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False, progress
        return
    lost = threading.Event()

    def handle(signum: int, frame: object) -> None:
        lost.set()
        raise KeyboardInterrupt

    @contextmanager
    def attentive(title: str) -> Iterator[Progress]:
        with progress(title) as report:

            def tell(done: int, total: int, metrics: dict[str, float]) -> None:
                if lost.is_set():
                    lost.clear()
                    signal.raise_signal(signal.SIGINT)
                report(done, total, metrics)

            yield tell

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGINT, handle)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield (
            lambda: bool(select.select([reading], [], [], 0)[0]) and signal.SIGINT in os.read(reading, 4096),
            attentive,
        )
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(reading)
        os.close(writing)
