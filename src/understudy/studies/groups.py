"""From a study to its cells: what is asked of each run, and which runs are one compiled program.

A cell is an algorithm on a task with a number of demonstrated trajectories and a seed. Its key is a digest of all that
decides its result, and of nothing else: labels are not in it, nor are the parts of the protocol that its algorithm has
no use for. Cells that differ only in trajectories and seed are a group.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from understudy.core.errors import NeedsError, SettingError, unknown
from understudy.data import Demonstrations, load
from understudy.envs import JAX_ENVIRONMENTS, Environment, GymnasiumEnvironment, make
from understudy.experts.bundled import bundled_experts
from understudy.game import Algorithm
from understudy.policies.saved import POLICY, selected
from understudy.studies.cells import key_of
from understudy.studies.plan import BUNDLED, Entry, Protocol, Study, Task
from understudy.train.checkpoints import digest
from understudy.train.imitate import demonstrations_of
from understudy.train.results import hyperparameters


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    key: str
    asked: dict[str, Any]
    """All that decides its result, as JSON takes it."""
    seed: int
    trajectories: int


@dataclass(frozen=True)
class Group:
    """Cells that can be trained in one program: `imitate` with their seeds and their numbers of trajectories."""

    entry: Entry
    task: Task
    algorithm: Algorithm
    """As long as the protocol says."""
    cells: tuple[Cell, ...]
    expert_return: float | None = None
    """The demonstrator's, where the demonstrations tell it."""

    @property
    def key(self) -> str:
        """A digest of what is asked of all its cells, whatever their seeds and trajectories."""
        asked = self.cells[0].asked
        task = {name: value for name, value in asked["task"].items() if name != "trajectories"}
        return key_of({"algorithm": asked["algorithm"], "task": task, "protocol": asked["protocol"]})

    @property
    def shown(self) -> dict[str, Any]:
        """What a person reads of its cells, and what is no part of their identity."""
        demos = self.task.demos if self.task.demos == BUNDLED else Path(self.task.demos).name
        return {"label": self.entry.label, "demos": demos, "expert_return": self.expert_return}


def check_tasks(study: Study) -> dict[str, Environment | GymnasiumEnvironment]:
    """Every task's environment, made once. One whose simulator is not installed is an ExtraError."""
    return {task.env: make(task.env) for task in study.tasks}


def load_demonstrations(study: Study) -> dict[str, Demonstrations]:
    """The demonstrations of every task, by its environment."""
    return {
        task.env: demonstrations_of(task.env) if task.demos == BUNDLED else load(task.demos) for task in study.tasks
    }


def groups(study: Study, demonstrations: Mapping[str, Demonstrations] | None = None) -> list[Group]:
    """All cells of a study, algorithm by algorithm and task by task."""
    loaded = load_demonstrations(study) if demonstrations is None else demonstrations
    digests = {env: digest((shown.transitions(), shown.spec)) for env, shown in loaded.items()}
    planned = [
        _group(study.protocol, entry, task, loaded[task.env], digests[task.env])
        for entry in study.algorithms
        for task in study.tasks_of(entry)
    ]
    owners: dict[str, Group] = {}
    for group in planned:
        for cell in group.cells:
            other = owners.setdefault(cell.key, group)
            if other is not group:
                raise SettingError(
                    f"'{other.entry.label}' and '{group.entry.label}' are the same algorithm with "
                    f"{cell.trajectories} trajectories of {group.task.env}: remove one"
                )
    return planned


def _group(protocol: Protocol, entry: Entry, task: Task, shown: Demonstrations, data: str) -> Group:
    algorithm, asked_of_protocol = _fitted(entry, protocol)
    expert = _expert(algorithm, task)
    counts = entry.trajectories or task.trajectories or (shown.episodes,)
    for count in counts:
        if count > shown.episodes:
            raise SettingError(
                f"{entry.label} asks for {count} trajectories of {task.env}, and its demonstrations have "
                f"{shown.episodes}: ask for 1 to {shown.episodes}"
            )
    settings = {
        "name": entry.name,
        "preset": entry.preset,
        "settings": entry.plain_settings(),
        "hyperparameters": hyperparameters(algorithm),
    }
    cells = []
    for count in counts:
        for seed in protocol.seeds:
            about = {"env": task.env, "demonstrations": data, "trajectories": count, "expert": expert}
            asked = {"algorithm": settings, "task": about, "seed": seed, "protocol": asked_of_protocol}
            cells.append(Cell(key_of(asked), asked, seed, count))
    known = shown.expert_return
    return Group(entry, task, algorithm, tuple(cells), None if known is None else float(known.mean))


def _fitted(entry: Entry, protocol: Protocol) -> tuple[Algorithm, dict[str, Any]]:
    """The algorithm at the protocol's length, and what of the protocol concerns it.

    Rounds and staleness that its settings name are kept: what is said of one algorithm goes before what is said of all.
    """
    algorithm, changes = entry.algorithm(), {}
    schedule, collects = algorithm.schedule, "environment" in algorithm.card.needs
    steps = protocol.steps if schedule is not None and "rounds" not in entry.settings else None
    if schedule is not None and steps is not None:
        changes["rounds"] = math.ceil(steps / (schedule.updates * schedule.update_steps))
    # PPO learns from the steps of the policy as it is, so it cannot be behind (`GAIL`).
    has_staleness = (
        "staleness" in {field.name for field in fields(algorithm)} and getattr(algorithm, "player", None) != "ppo"
    )
    if protocol.staleness and has_staleness and "staleness" not in entry.settings:
        changes["staleness"] = protocol.staleness
    concerns = {
        "steps": steps,
        "every": protocol.every if schedule is not None else None,
        "rounds_every": protocol.rounds_every if collects and schedule is None else None,
        "episodes": protocol.episodes,
        "holdout": protocol.holdout,
    }
    return (entry.algorithm(**changes) if changes else algorithm), concerns


def _expert(algorithm: Algorithm, task: Task) -> str | None:
    """What tells the expert apart: a digest of its file, or the name of its code; None where nobody is asked."""
    if "expert" not in algorithm.card.needs:
        return None
    given, known = task.expert, bundled_experts()
    if given is None:
        raise NeedsError(f"{algorithm.card.title} asks an expert, and task {task.env} has none: give it expert =")
    path = Path(given)
    if not path.exists():
        if given == "scripted" and task.env in JAX_ENVIRONMENTS:
            return given
        name = task.env if given == BUNDLED else given
        if name not in known and ":" in given:
            return given
        if name not in known:
            raise unknown("expert", name, known, "Or give an npz of weights, or a run's directory.")
        path = known[name]
    elif path.is_dir():
        path = path / POLICY if (path / POLICY).is_file() else selected(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()
