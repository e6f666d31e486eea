"""Runs a study on Ray: each group is a Ray task, and its cells are stored in the study's directory here.

If a node dies, its groups start again on another node, from the beginning. Only this process stores cells, and a stored
cell never changes, so no cell is stored twice. Demonstrations are sent with the tasks. An expert that is a file must be
at the same path on every node, and every node needs the same version of understudy.
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
from understudy.core.errors import RunError, missing_extra
from understudy.core.locks import Claim
from understudy.core.processes import COMMAND, typed_command
from understudy.core.version import __version__
from understudy.data import Demonstrations
from understudy.policies.saved import load_policy
from understudy.studies.cells import Store
from understudy.studies.evaluator import no_progress
from understudy.studies.groups import Group, make_environments
from understudy.studies.plan import Hardware, Study
from understudy.studies.running import WAIT, Plan, RunSummary, explain_interrupt, last_failure, record_failure
from understudy.studies.training import ProgressFactory, train_cells

RETRIES = 5
"""How often a group starts again after its node has died."""
CONNECT_TIMEOUT = 10.0
"""Seconds to wait for an answer from the cluster."""
LOCAL = "local"
LOOPBACK = frozenset({"127.0.0.1", "::1"})
ONLY_LOCAL = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray reads it when it is imported, on all systems despite its name. 0: its node has the address 127.0.0.1. Passing
127.0.0.1 to `ray.init` would not do: Ray replaces it by an address of the network."""
RemoteCell = tuple[dict[str, Any], bytes | None]
"""A cell's record, and the bytes of its policy file."""


def run_on_ray(
    study: Study, directory: str | os.PathLike[str], address: str, progress: ProgressFactory = display.progress_bar
) -> RunSummary:
    """Train and evaluate the missing cells on a Ray cluster. Address "local" starts one on this machine."""
    ray = _import_ray(address)
    store, plan = Store(directory), Plan.load(study)
    store.begin(study.to_dict())
    store.check_policies(cell.key for cell in plan.cells)
    # Ray prints node events to stdout regardless of its log settings.
    with explain_interrupt(plan, store), redirect_stdout(StringIO()), _connect(ray, address):
        _check_nodes(ray, study.hardware, address)
        with ExitStack() as claims:
            return _RayRun(ray, plan, store, claims, _runtime_env(address)).run(progress)


@contextmanager
def _connect(ray: Any, address: str) -> Iterator[None]:
    """Connect to a cluster, and disconnect at the end. Uses the existing connection if there is one."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # Ray itself would try for two minutes
            socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _init(ray, address)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise RunError(
            f"no Ray cluster at '{address}' ({reason}): start one with ray start --head, or use --ray local"
        ) from error
    try:
        if address == LOCAL:
            _check_loopback(ray)
        yield
    finally:
        ray.shutdown()


def _init(ray: Any, address: str) -> None:
    """Call `ray.init`.

    Ray puts the driver's current directory first on the import path of every task, unless the job has a working
    directory: so it gets an empty one.
    """
    quiet = {
        "log_to_driver": False,
        "logging_level": "critical",
        "include_dashboard": False if address == LOCAL else None,
    }
    with tempfile.TemporaryDirectory() as empty:
        ray.init(address=address, runtime_env={"working_dir": empty}, **quiet)


def _check_loopback(ray: Any) -> None:
    """Warn if a local Ray listens on another address than this machine's own."""
    addresses = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    exposed = ", ".join(sorted(addresses - LOOPBACK))
    if exposed:
        print(
            f"warning: this Ray listens on {exposed} as well, and whoever reaches its ports can run code: block them "
            f"with a firewall, or use --jobs instead of --ray (in Python: set {ONLY_LOCAL}=0 before you import ray)",
            file=sys.stderr,
        )


def _check_nodes(ray: Any, needed: Hardware, address: str) -> None:
    """Report that no node is large enough for a group. Ray would wait for one without a message."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(node.get("CPU", 0) >= needed.cpus and node.get("GPU", 0) >= needed.gpus for node in nodes):
        return
    problem = f"no node of the Ray cluster '{address}' has {needed.cpus} CPUs and {needed.gpus:g} GPUs for a group"
    if address == LOCAL:
        raise RunError(f"{problem}: lower cpus and gpus in the study's [hardware]")
    print(f"{problem}: waiting for a node to join", file=sys.stderr)


class _RayRun:
    """The groups that are on the cluster, and the results so far."""

    def __init__(self, ray: Any, plan: Plan, store: Store, claims: ExitStack, runtime_env: dict[str, Any]):
        self.ray, self.plan, self.store, self.claims = ray, plan, store, claims
        hardware = plan.study.hardware
        options = {"num_cpus": hardware.cpus, "num_gpus": hardware.gpus, "max_retries": RETRIES}
        # max_calls=1: one process per task, so that JAX frees an accelerator's memory after it.
        self.remote = ray.remote(**options, max_calls=1, runtime_env=runtime_env)(run_task)
        self.summary, self.began = RunSummary(), time.time()
        self.pending: dict[Any, tuple[Group, Claim]] = {}

    def run(self, progress: ProgressFactory) -> RunSummary:
        """Run until no cell is missing except those of failed groups."""
        total = len(self.plan.cells)
        with progress(f"{self.plan.study.name}: on Ray") as report:
            while self._start_groups() or self.pending:
                report(total - len(self.plan.missing(self.store)), total, {})
                if not self.pending:
                    time.sleep(WAIT)
                    continue
                for done in self.ray.wait(list(self.pending), timeout=WAIT)[0]:
                    group, claim = self.pending.pop(done)
                    with claim:
                        self._store_result(done, group)
        return self.summary

    def _start_groups(self) -> bool:
        """Start all groups with missing cells that no other process trains. Returns whether another one trains some."""
        busy, started = False, {group.name for group, _ in self.pending.values()}
        for number, group in enumerate(self.plan.groups):
            skip = group.name in started or group.name in self.summary.failed
            if skip or not self.plan.missing(self.store, group):
                continue
            claim = self.store.claim(group.key)
            if claim is None:
                busy = True
                continue
            self.claims.enter_context(claim)
            error = last_failure(self.store, group, self.began)
            missing = [cell.key for cell in self.plan.missing(self.store, group)]
            if error is not None or not missing:
                self.summary.failed.update({} if error is None else {group.name: error})
                claim.release()
                continue
            demos = self.plan.demonstrations[group.task.env]
            task = self.remote.remote(self.plan.study.to_dict(), number, missing, demos, __version__)
            self.pending[task] = (group, claim)
        return busy

    def _store_result(self, done: Any, group: Group) -> None:
        errors = self.ray.exceptions
        try:
            finished = self.ray.get(done)
        except errors.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            if "No module named 'understudy" in str(cause):
                cause = RunError(f"a node of the cluster has no understudy {__version__}: install it on all nodes")
            self.summary.failed[group.name] = record_failure(self.store, group, cause)
            return
        except errors.RayError as error:  # its nodes died RETRIES times
            self.summary.failed[group.name] = record_failure(self.store, group, error)
            return
        stored = sum(_store_cell(self.store, record, policy) for record, policy in finished)
        self.summary.stored += stored
        display.note(f"{group.name}: {stored} cells stored; {self.plan.progress(self.store)}")


def run_task(
    study_dict: dict[str, Any], number: int, keys: list[str], demos: Demonstrations, version: str
) -> list[RemoteCell]:
    """The Ray task: train the cells with these keys of group `number`, in a temporary directory of the node."""
    node = f"node {platform.node()} has understudy {__version__}"
    if version != __version__:
        raise RunError(f"{node}, and the study runs with {version}: install the same version on all nodes")
    study = Study.from_dict(study_dict)
    entry, task = [(entry, task) for entry in study.algorithms for task in study.tasks_of(entry)][number]
    # The node has the demonstrations of this task only, so it plans a study of this group alone.
    single = replace(study, tasks=(task,), algorithms=(replace(entry, tasks=(task.env,)),))
    (group,) = single.groups({task.env: demos})
    cells = [cell for cell in group.cells if cell.key in keys]
    if len(cells) < len(keys):
        raise RunError(f"{node}, which plans other cells of {group.name}: install the same version on all nodes")
    results: list[RemoteCell] = []
    with tempfile.TemporaryDirectory() as directory:
        env, path = make_environments(single, {task.env: demos})[task.env], Path(directory) / "policy.npz"
        for finished in train_cells(group, cells, demos, env, Path(directory), study.hardware, no_progress):
            for record, policy in finished:
                if policy is not None:
                    policy.save(path)
                results.append((record, None if policy is None else path.read_bytes()))
    return results


def _runtime_env(address: str) -> dict[str, Any]:
    """Ray's runtime environment: where tasks find modules, and the command that their records name.

    On this machine they find those that this process finds, in the same order (see `core.processes`). On a cluster
    PYTHONPATH is set only if understudy runs from its sources.
    """
    root, variables = str(Path(__file__).parents[2]), {COMMAND: typed_command()}
    if address == LOCAL:
        folders = [folder for folder in sys.path if folder]
    elif root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return {"env_vars": variables}
    else:
        folders = list(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {"env_vars": {**variables, "PYTHONPATH": os.pathsep.join(folders)}}


def _store_cell(store: Store, record: dict[str, Any], policy: bytes | None) -> bool:
    if policy is None:
        return store.write(record)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "policy.npz"
        path.write_bytes(policy)
        return store.write(record, load_policy(path))


def _import_ray(address: str) -> Any:
    """Import Ray. For a local one, with the variable that makes all its sockets listen on this machine only."""
    before = os.environ.get(ONLY_LOCAL)
    try:
        if address == LOCAL:
            os.environ[ONLY_LOCAL] = "0"
        import ray
    except ImportError as error:
        raise missing_extra("ray", "--ray needs Ray") from error
    finally:
        os.environ.pop(ONLY_LOCAL, None)
        if before is not None:
            os.environ[ONLY_LOCAL] = before
    return ray
