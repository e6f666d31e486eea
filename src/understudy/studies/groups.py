"""From a study to its cells and groups.

A cell is one run: an algorithm on a task with a number of demonstrated trajectories and a seed. Its key is a digest of
everything that determines its result. Labels are not part of it, nor are protocol settings that its algorithm ignores.
Cells that differ only in trajectories and seed form a group, which trains as one compiled program.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from understudy.core.errors import NeedsError, SettingError, unknown
from understudy.core.memory import check_memory
from understudy.core.notices import notice
from understudy.core.reader import FileReader
from understudy.core.text import quoted
from understudy.data import Demonstrations, bundled, load
from understudy.deploy.runs import policy_path
from understudy.envs import JAX_ENVIRONMENTS, Environment, GymnasiumEnvironment, make_unfinished
from understudy.experts.bundled import bundled_experts
from understudy.game import Algorithm
from understudy.studies.cells import Store
from understudy.studies.plan import BUNDLED, MOST_CELLS, Entry, Protocol, Study, Task
from understudy.studies.records import cell_key
from understudy.train.checkpoints import digest
from understudy.train.completing import completed
from understudy.train.demonstrated import demonstrations_of, names_another_expert
from understudy.train.results import hyperparameters

LARGEST_EXPERT = 1_000_000_000
"""Bytes of an expert's file."""
MISSING = "missing"
"""Status of a cell that has not finished."""


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    key: str
    config: dict[str, Any]
    """Everything that determines the result, as JSON values."""
    seed: int
    trajectories: int


@dataclass(frozen=True)
class Group:
    """Cells that `imitate` can train in one call: they differ only in seed and number of trajectories."""

    entry: Entry
    task: Task
    algorithm: Algorithm
    """With the rounds and staleness of the protocol."""
    cells: tuple[Cell, ...]
    expert_return: float | None = None
    """Mean return of the demonstrations, if they have rewards."""

    @property
    def key(self) -> str:
        """Digest of what its cells have in common: everything except seed and trajectories."""
        config = self.cells[0].config
        task = {name: value for name, value in config["task"].items() if name != "trajectories"}
        return cell_key({"algorithm": config["algorithm"], "task": task, "protocol": config["protocol"]})

    @property
    def name(self) -> str:
        """Name for messages: label and environment."""
        return f"{self.entry.label} on {self.task.env}"

    @property
    def display(self) -> dict[str, Any]:
        """Values that the report shows and that are not part of a cell's key."""
        demos = self.task.demos if self.task.demos == BUNDLED else Path(self.task.demos).name
        return {"label": self.entry.label, "demos": demos, "expert_return": self.expert_return}


def make_environments(
    study: Study, demonstrations: Mapping[str, Demonstrations] | None = None
) -> dict[str, Environment | GymnasiumEnvironment]:
    """The environment of every task. Raises ExtraError if a simulator is not installed.

    `demonstrations` complete environments without action bounds or a time limit.
    """
    loaded = {} if demonstrations is None else demonstrations
    made = {task.env: make_unfinished(task.named_env) for task in study.tasks}
    return {name: completed(env, loaded[name]) if name in loaded else env for name, env in made.items()}


def load_demonstrations(study: Study) -> dict[str, Demonstrations]:
    """The demonstrations of every task, by environment."""
    return {task.env: _bundled_of(task) if task.demos == BUNDLED else load(task.demos) for task in study.tasks}


def _bundled_of(task: Task) -> Demonstrations:
    """The bundled demonstrations of a task. Raises if its environment is another than the one they come from."""
    if task.env not in bundled():
        make_unfinished(task.env)  # raises if the name is unknown
        raise NeedsError(
            f'{quoted(task.env)} has no bundled demonstrations: add demos = "demos.npz" to its [[task]]; '
            f"`understudy demos record {quoted(task.env)} --expert EXPERT --out demos.npz` records them"
        )
    changed = [name for name in ("env_args", "wrap") if name in task.env_settings]
    if changed:
        raise NeedsError(
            f"task {task.env} has {' and '.join(changed)}, and its bundled demonstrations come from the environment "
            f'without: add demos = to the task (demos = "{task.env}" for those)'
        )
    if names_another_expert(task.env, task.expert):
        notice(
            f"{quoted(task.env)} has the expert {quoted(task.expert)}, and the bundled demonstrations are those of "
            'another one: demos = "FILE" in its [[task]] names others'
        )
    return demonstrations_of(task.env)


def _spec(demos: Demonstrations) -> Any:
    """What stands for the task in a digest. Without actions the action space may be unknown."""
    return (demos.horizon, demos.obs_parts) if demos.recorded_space is None else demos.spec


def plan_groups(study: Study, demonstrations: Mapping[str, Demonstrations] | None = None) -> list[Group]:
    """All groups of a study, algorithm by algorithm and task by task."""
    _check_size(study)
    loaded = load_demonstrations(study) if demonstrations is None else demonstrations
    digests = {env: digest((demos.transitions(), _spec(demos))) for env, demos in loaded.items()}
    groups = [
        _make_group(study.protocol, entry, task, loaded[task.env], digests[task.env])
        for entry in study.algorithms
        for task in study.tasks_of(entry)
    ]
    owners: dict[str, Group] = {}
    for group in groups:
        for cell in group.cells:
            other = owners.setdefault(cell.key, group)
            if other is not group:
                raise SettingError(
                    f"'{other.entry.label}' and '{group.entry.label}' are the same algorithm with "
                    f"{cell.trajectories} trajectories of {group.task.env}: remove one"
                )
    return groups


def study_records(groups: Sequence[Group], store: Store) -> list[dict[str, Any]]:
    """The record of every cell of some groups. A cell that has not finished has status "missing" and no evaluations."""
    records = []
    for group in groups:
        for cell in group.cells:
            if store.has(cell.key):
                records.append({**store.read(cell.key), "display": group.display})
            else:
                missing = {"config": cell.config, "display": group.display, "status": MISSING, "evaluations": []}
                records.append(missing)
    return records


def _check_size(study: Study) -> None:
    """Raise if a study has too many cells to plan."""
    cells = 0
    for entry in study.algorithms:
        for task in study.tasks_of(entry):
            cells += len(entry.trajectories or task.trajectories or (1,)) * len(study.protocol.seeds)
    if cells > MOST_CELLS:
        raise SettingError(
            f"study '{study.name}' has {cells} cells: at most {MOST_CELLS} are allowed, split it into several studies"
        )


def check_evaluations(study: Study, environments: Mapping[str, Environment | GymnasiumEnvironment]) -> None:
    """Raise if the episodes of an evaluation do not fit into memory."""
    episodes = study.protocol.eval_episodes
    for env in environments.values():
        numbers = math.prod(env.spec.obs_shape) + math.prod(env.spec.action.shape) + 4
        size = episodes * env.spec.horizon * numbers * 4
        check_memory(f"eval_episodes = {episodes} on {env.name}", size, "choose fewer")


def _make_group(protocol: Protocol, entry: Entry, task: Task, demos: Demonstrations, data_digest: str) -> Group:
    algorithm, protocol_config = _apply_protocol(entry, protocol)
    expert = _expert_identity(algorithm, task)
    counts = entry.trajectories or task.trajectories or (demos.episodes,)
    for count in counts:
        if count > demos.episodes:
            raise SettingError(
                f"trajectories of {entry.label} on {task.env} is {count}: its demonstrations have {demos.episodes}, "
                f"choose 1 to {demos.episodes}"
            )
    algorithm_config = {
        "name": entry.name,
        "preset": entry.preset,
        "settings": entry.plain_settings(),
        "hyperparameters": hyperparameters(algorithm),
    }
    cells = []
    for count in counts:
        for seed in protocol.seeds:
            task_config = {"env": task.env, "demonstrations": data_digest, "trajectories": count, "expert": expert}
            task_config |= task.env_settings
            config = {"algorithm": algorithm_config, "task": task_config, "seed": seed, "protocol": protocol_config}
            cells.append(Cell(cell_key(config), config, seed, count))
    expert_return = demos.expert_return
    return Group(entry, task, algorithm, tuple(cells), None if expert_return is None else float(expert_return.mean))


def _apply_protocol(entry: Entry, protocol: Protocol) -> tuple[Algorithm, dict[str, Any]]:
    """The algorithm with the protocol's length and staleness, and the protocol settings that affect it.

    An entry's own `rounds` and `staleness` take precedence over the protocol's.
    """
    algorithm, changes = entry.algorithm(), {}
    schedule, uses_environment = algorithm.schedule, "environment" in algorithm.card.needs
    steps = protocol.steps if schedule is not None and "rounds" not in entry.settings else None
    if schedule is not None and steps is not None:
        changes["rounds"] = math.ceil(steps / (schedule.updates * schedule.update_steps))
    # PPO is on-policy: it must learn from steps of its current policy, so it has no staleness.
    has_staleness = (
        "staleness" in {field.name for field in fields(algorithm)} and getattr(algorithm, "player", None) != "ppo"
    )
    if protocol.staleness and has_staleness and "staleness" not in entry.settings:
        changes["staleness"] = protocol.staleness
    relevant = {
        "steps": steps,
        "eval_every": protocol.eval_every if schedule is not None else None,
        "eval_every_rounds": protocol.eval_every_rounds if uses_environment and schedule is None else None,
        "eval_episodes": protocol.eval_episodes,
        "holdout": protocol.holdout,
    }
    return (entry.algorithm(**changes) if changes else algorithm), relevant


def _expert_identity(algorithm: Algorithm, task: Task) -> str | None:
    """What identifies the expert (`expert_digest`). None if it is not queried."""
    if "expert" not in algorithm.card.needs:
        return None
    if task.expert is None:
        raise NeedsError(
            f"{algorithm.card.title} queries an expert, and task {task.env} has none: add expert = to the task"
        )
    return expert_digest(task.expert, task.env)


def expert_digest(expert: str, env: str) -> str:
    """A digest of an expert's file, or the name of its code."""
    path, bundled = Path(expert), bundled_experts()
    if not path.exists():
        if expert == "scripted" and env in JAX_ENVIRONMENTS:
            return expert
        name = env if expert == BUNDLED else expert
        if name not in bundled and ":" in expert:
            return expert
        if name not in bundled:
            raise unknown("expert", name, bundled, "Or give an npz of weights, or a run's directory.")
        path = bundled[name]
    elif path.is_dir():
        path = policy_path(path)
    return hashlib.sha256(FileReader(path, "an expert", "check the path").bytes(LARGEST_EXPERT)).hexdigest()
