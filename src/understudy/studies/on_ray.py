"""A study on Ray: its groups are tasks of a cluster, and their cells come back to the directory of the study.

A group whose node dies is started again elsewhere, from its beginning. What comes back is stored by this process alone,
and a cell that is there stays as it is, so nothing is in the results twice. Files that a study names (demonstrations)
travel with its tasks; weights of experts that are files must be where the nodes can read them.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from understudy.actor import load_policy
from understudy.data import Demonstrations
from understudy.errors import ExtraError, RunError, UnderstudyError
from understudy.studies.cells import Store
from understudy.studies.evaluator import silent
from understudy.studies.groups import check_tasks
from understudy.studies.plan import Study
from understudy.studies.running import Outcome, Plan
from understudy.studies.training import Report, trained

RETRIES = 5
"""How often a group is started again when its node has died."""
Sent = tuple[dict[str, Any], bytes | None]
"""A cell's record, and the file of the policy it hands over."""


def run_on_ray(study: Study, directory: str | os.PathLike[str], address: str, progress: Report) -> Outcome:
    """Train and play what is missing on a Ray cluster, "local" for one on this machine."""
    ray = _ray()
    store, plan = Store(directory), Plan.of(study)
    store.begin(study.plain())
    started = not ray.is_initialized()
    if started:
        try:
            ray.init(
                address=None if address == "local" else address,
                log_to_driver=False,
                configure_logging=False,
                include_dashboard=False,
                namespace="understudy",
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise RunError(f"no Ray cluster at '{address}' ({reason}): ray start --head, or --ray local") from error
    try:
        return _run(ray, plan, store, progress)
    finally:
        if started:
            ray.shutdown()


def _run(ray: Any, plan: Plan, store: Store, progress: Report) -> Outcome:
    asks = plan.study.hardware
    remote = ray.remote(
        num_cpus=asks.cpus, num_gpus=asks.gpus, max_retries=RETRIES, retry_exceptions=False, max_calls=1
    )(task)
    outcome, waiting, claims = Outcome(), {}, []
    for number, group in enumerate(plan.groups):
        missing = [cell.key for cell in group.cells if not store.has(cell.key)]
        claim = store.claim(group.key) if missing else None
        if claim is not None:
            claims.append(claim)
            shown = plan.demonstrations[group.task.env]
            waiting[remote.remote(plan.study.plain(), number, missing, group.task.env, shown)] = group
    total = len(plan.cells)
    with progress(f"{plan.study.name}: on Ray") as report:
        while waiting:
            report(total - len(plan.missing(store)), total, {})
            ready, _ = ray.wait(list(waiting), timeout=1.0)
            for done in ready:
                group = waiting.pop(done)
                name = f"{group.entry.label} on {group.task.env}"
                try:
                    finished = ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    outcome.failed[name] = str(error.cause).strip().splitlines()[0]
                    continue
                except ray.exceptions.RayError as error:
                    outcome.failed[name] = str(error).strip().splitlines()[0]
                    continue
                outcome.stored += sum(_stored(store, record, policy) for record, policy in finished)
    for claim in claims:
        claim.release()
    return outcome


def task(plain: dict[str, Any], number: int, keys: list[str], env: str, shown: Demonstrations) -> list[Sent]:
    """What a node does: train a group's cells of these keys, in a directory of its own."""
    study = Study.of(plain)
    # Only this task's demonstrations are here; the others are not needed to find the group among all.
    entry, one = next(
        pair
        for index, pair in enumerate((entry, task) for entry in study.algorithms for task in study.tasks_of(entry))
        if index == number
    )
    alone = replace(study, tasks=(one,), algorithms=(replace(entry, tasks=(env,)),))
    (group,) = alone.groups({env: shown})
    cells = [cell for cell in group.cells if cell.key in keys]
    if len(cells) < len(keys):
        raise UnderstudyError(
            f"a node plans other cells of {entry.label} on {env}: it has another version of understudy"
        )
    sent: list[Sent] = []
    with tempfile.TemporaryDirectory() as place:
        made = check_tasks(alone)[env]
        for finished in trained(group, cells, shown, made, Path(place), study.hardware.cpus, silent):
            for record, policy in finished:
                data = None
                if policy is not None:
                    policy.save(Path(place) / "sent.npz")
                    data = (Path(place) / "sent.npz").read_bytes()
                sent.append((record, data))
    return sent


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
