"""A study on Ray: its groups are tasks of a cluster, and their cells come back to the directory of the study.

A group whose node dies is started again elsewhere, from its beginning. What comes back is stored by this process alone,
and a cell that is there stays as it is, so nothing is in the results twice. Demonstrations travel with the tasks;
experts that are files must be where the nodes can read them, and every node needs this version of understudy.
"""

import os
import platform
import socket
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from understudy.core import display
from understudy.core.errors import ExtraError, RunError
from understudy.core.version import __version__
from understudy.data import Demonstrations
from understudy.policies.saved import load_policy
from understudy.studies.cells import Store
from understudy.studies.claims import Claim
from understudy.studies.evaluator import silent
from understudy.studies.groups import Group, check_tasks
from understudy.studies.plan import Hardware, Study
from understudy.studies.running import WAIT, Outcome, Plan, failed, failure, going_on
from understudy.studies.training import Report, called, trained

RETRIES = 5
"""How often a group is started again when its node has died."""
REACH = 10.0
"""Seconds in which a cluster must answer."""
LOCAL = "local"
Sent = tuple[dict[str, Any], bytes | None]
"""A cell's record, and the file of the policy it hands over."""


def run_on_ray(
    study: Study, directory: str | os.PathLike[str], address: str, progress: Report = display.progress_bar
) -> Outcome:
    """Train and play what is missing on the Ray cluster at an address, or on one that is started here: "local"."""
    ray = _ray()
    store, plan = Store(directory), Plan.of(study)
    store.begin(study.plain())
    # Ray prints what happens to its nodes, whatever it is told of logs.
    with going_on(plan, store), redirect_stdout(StringIO()), _connected(ray, address):
        _check_nodes(ray, study.hardware, address)
        with ExitStack() as claims:
            return _Run(ray, plan, store, claims).work(progress)


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """A connection that is made here is also closed here. Ray's own words stay in its log files."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "critical", "include_dashboard": False}
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # Ray itself would try for two minutes
            socket.create_connection((host, int(port)), timeout=REACH).close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address=address, **(quiet if address == LOCAL else {**quiet, "include_dashboard": None}))
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise RunError(f"no Ray cluster at '{address}' ({reason}): ray start --head, or --ray local") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_nodes(ray: Any, asked: Hardware, address: str) -> None:
    """Say so where no node has what a group asks for: Ray would wait for one and not tell."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(node.get("CPU", 0) >= asked.cpus and node.get("GPU", 0) >= asked.gpus for node in nodes):
        return
    words = f"no node of the Ray cluster '{address}' has the {asked.cpus} CPUs and {asked.gpus:g} GPUs of a group"
    if address == LOCAL:
        raise RunError(f"{words}: ask for less in the study's [hardware]")
    print(f"{words}: waiting for one to join it", file=sys.stderr)


class _Run:
    """Groups that are on the cluster, and what came back."""

    def __init__(self, ray: Any, plan: Plan, store: Store, claims: ExitStack):
        self.ray, self.plan, self.store, self.claims = ray, plan, store, claims
        asked = plan.study.hardware
        options = {"num_cpus": asked.cpus, "num_gpus": asked.gpus, "max_retries": RETRIES}
        # A process for each task: what JAX holds of an accelerator goes back with it.
        self.remote = ray.remote(**options, max_calls=1, runtime_env=_surroundings())(task)
        self.outcome, self.began = Outcome(), time.time()
        self.waiting: dict[Any, tuple[Group, Claim]] = {}

    def work(self, progress: Report) -> Outcome:
        """Until nothing is missing, or all that could be tried has failed."""
        total = len(self.plan.cells)
        with progress(f"{self.plan.study.name}: on Ray") as report:
            while self._started() or self.waiting:
                report(total - len(self.plan.missing(self.store)), total, {})
                if not self.waiting:
                    time.sleep(WAIT)
                    continue
                for done in self.ray.wait(list(self.waiting), timeout=WAIT)[0]:
                    group, claim = self.waiting.pop(done)
                    with claim:
                        self._finished(done, group)
        return self.outcome

    def _started(self) -> bool:
        """Hand out what is missing and what nobody else trains; whether somebody else trains something."""
        busy, mine = False, {called(group) for group, _ in self.waiting.values()}
        for number, group in enumerate(self.plan.groups):
            name = called(group)
            if name in mine or name in self.outcome.failed or not self.plan.missing(self.store, group):
                continue
            claim = self.store.claim(group.key)
            if claim is None:
                busy = True
                continue
            self.claims.enter_context(claim)
            why = failure(self.store, group, self.began)
            missing = [cell.key for cell in self.plan.missing(self.store, group)]
            if why is not None or not missing:
                self.outcome.failed.update({} if why is None else {name: why})
                claim.release()
                continue
            shown = self.plan.demonstrations[group.task.env]
            self.waiting[self.remote.remote(self.plan.study.plain(), number, missing, shown, __version__)] = (
                group,
                claim,
            )
        return busy

    def _finished(self, done: Any, group: Group) -> None:
        errors = self.ray.exceptions
        try:
            finished = self.ray.get(done)
        except errors.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            if "No module named 'understudy" in str(cause):
                cause = RunError(f"a node of the cluster has no understudy {__version__}: install it on all nodes")
            self.outcome.failed[called(group)] = failed(self.store, group, cause)
            return
        except errors.RayError as error:  # its nodes died, again and again
            self.outcome.failed[called(group)] = failed(self.store, group, error)
            return
        stored = sum(_stored(self.store, record, policy) for record, policy in finished)
        self.outcome.stored += stored
        display.note(f"{called(group)}: {stored} cells stored; {self.plan.far(self.store)}")


def task(plain: dict[str, Any], number: int, keys: list[str], shown: Demonstrations, version: str) -> list[Sent]:
    """What a node does: train a group's cells of these keys, in a directory of its own."""
    here = f"the node {platform.node()} has understudy {__version__}"
    if version != __version__:
        raise RunError(f"{here}, and the study is run by {version}: install the same on all nodes")
    study = Study.of(plain)
    entry, one = [(entry, task) for entry in study.algorithms for task in study.tasks_of(entry)][number]
    # Only this task's demonstrations are here, and the other groups are not needed to find this one's cells.
    alone = replace(study, tasks=(one,), algorithms=(replace(entry, tasks=(one.env,)),))
    (group,) = alone.groups({one.env: shown})
    cells = [cell for cell in group.cells if cell.key in keys]
    if len(cells) < len(keys):
        raise RunError(f"{here}, which plans other cells of {called(group)}: install the same on all nodes")
    sent: list[Sent] = []
    with tempfile.TemporaryDirectory() as place:
        made, path = check_tasks(alone)[one.env], Path(place) / "sent.npz"
        for finished in trained(group, cells, shown, made, Path(place), study.hardware.cpus, silent):
            for record, policy in finished:
                if policy is not None:
                    policy.save(path)
                sent.append((record, None if policy is None else path.read_bytes()))
    return sent


def _surroundings() -> dict[str, Any]:
    """Where a node of this machine finds understudy when it is run from its sources."""
    root = str(Path(__file__).parents[2])
    if root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return {}
    return {"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}}


def _stored(store: Store, record: dict[str, Any], policy: bytes | None) -> bool:
    if policy is None:
        return store.write(record)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "policy.npz"
        path.write_bytes(policy)
        return store.write(record, load_policy(path))


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ExtraError("a study on a cluster needs Ray: pip install 'understudy[ray]'") from error
    return ray
