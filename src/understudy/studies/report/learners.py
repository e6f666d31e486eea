"""Groups a study's records by task and learner. A learner's records differ only in the seed.

An evaluation of one seed gives one number, the mean return of its episodes. Statistics are over seeds, so that standard
errors and 95% intervals (Student's t) describe other seeds. If some runs diverged, final statistics are over the runs
that finished, and the curve includes the diverged runs until they stopped.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from understudy.core.errors import RunError
from understudy.core.statistics import Interval, Sample, interval
from understudy.studies.curves import Curve, learner_name
from understudy.studies.published import FindPublished, Published, nothing_published
from understudy.studies.records import FINAL, position
from understudy.studies.report.formatting import plural

Record = dict[str, Any]
"""A cell's record, as `Store.read` returns it."""
X_TITLES = {"env_steps": "environment steps", "round": "rounds"}
NO_RESULT = ("missing", "quarantined")
"""Prefixes of the status of a cell without results."""


class Panel(NamedTuple):
    """Learning curves that share their axes."""

    title: str
    kind: str
    """A key of `X_TITLES`."""
    learners: list["LearnerResults"]
    offline: list["LearnerResults"]
    """Learners without environment steps: their final policies are horizontal lines."""


@dataclass(frozen=True)
class LearnerResults:
    """The records of one task that differ only in their seed."""

    env: str
    demonstrations: str
    name: str
    """Unique among the learners of the task: the label, and the trajectories if they differ."""
    label: str
    algorithm: str
    preset: str
    settings: dict[str, Any]
    trajectories: int
    published: Published
    records: tuple[Record, ...]

    @property
    def expert(self) -> float | None:
        """The expert's mean return."""
        returns = (record["display"].get("expert_return") for record in self.records)
        return next((float(known) for known in returns if known is not None), None)

    @property
    def name_in_sentence(self) -> str:
        count = plural(self.trajectories, "trajectory")
        return self.name.replace(f", {count}", f" from {count}")

    @property
    def diverged(self) -> int:
        """The number of seeds that have no final policy, if others have one."""
        return len(self.records) - len(self.curve.final) if self.curve.final else 0

    @cached_property
    def x_kind(self) -> str | None:
        """Unit of the curve's x axis; None if only the final policies were evaluated."""
        kinds = [row["x_kind"] for record in self.records for row in record["evaluations"]]
        return next((kind for kind in kinds if kind in X_TITLES), None)

    @property
    def offline(self) -> bool:
        """Whether it learns from demonstrations alone: it has no environment steps and queries no expert."""
        return self.x_kind is None and all(
            record["env_steps"] is None and record["queries"] is None and record["config"]["task"]["expert"] is None
            for record in self.records
        )

    @cached_property
    def curve(self) -> Curve:
        """Mean returns by seed and by x."""
        seeds: dict[int, dict[int, float]] = {}
        final: dict[int, float] = {}
        for record in self.records:
            seed = record["config"]["seed"]
            for row in record["evaluations"]:
                if row["x_kind"] == self.x_kind:
                    seeds.setdefault(seed, {})[position(row)] = _mean_return(record, row)
                elif row["x_kind"] == FINAL:
                    final[seed] = _mean_return(record, row)
        return Curve(self.algorithm, self.preset, seeds, final, self.settings, self.trajectories, expert=self.expert)

    @property
    def score(self) -> Sample | None:
        """Returns of the final policies over seeds; of the last evaluations if there are no final policies."""
        return self.curve.last if self.curve.final_sample is None else self.curve.final_sample

    @property
    def gap(self) -> Interval | None:
        """J(π_E) − J(π). The expert's mean return counts as exact, because its spread is not recorded."""
        if self.expert is None or self.score is None:
            return None
        mean, low, high = interval(self.score)
        return Interval(self.expert - mean, self.expert - high, self.expert - low)

    @property
    def published_curve(self) -> dict[float, Sample]:
        """Published returns by environment steps, if that is the unit of this curve."""
        points = self.published.by_steps if self.x_kind == "env_steps" else {}
        return {float(x): sample for x, sample in points.items()}


@dataclass(frozen=True)
class TaskResults:
    """A task and its learners."""

    name: str
    env: str
    learners: tuple[LearnerResults, ...]

    @property
    def expert(self) -> float | None:
        """The expert's mean return."""
        return next((learner.expert for learner in self.learners if learner.expert is not None), None)

    @property
    def several_counts(self) -> bool:
        """Whether an algorithm was trained on different numbers of trajectories."""
        return _label_repeats(self.learners)

    def panels(self) -> list[Panel]:
        """Learning curves to plot. Several trajectory counts have one panel each."""
        panels = []
        offline = [learner for learner in self.learners if learner.offline and learner.curve.final]
        for kind in X_TITLES:
            learners = [learner for learner in self.learners if learner.x_kind == kind]
            if _label_repeats(learners) or (learners and _label_repeats(offline)):
                for count in sorted({learner.trajectories for learner in learners}):
                    members, levels = (
                        [one for one in some if one.trajectories == count] for some in (learners, offline)
                    )
                    panels.append(Panel(plural(count, "trajectory"), kind, members, levels))
            elif learners:
                panels.append(Panel("", kind, learners, offline))
        return panels


def group_by_task(records: Sequence[Record], find_published: FindPublished = nothing_published) -> list[TaskResults]:
    """Tasks with their learners, in the order of the records."""
    by_learner: dict[str, list[Record]] = {}
    for record in records:
        if not record["status"].startswith(NO_RESULT):
            config = {key: value for key, value in record["config"].items() if key != "seed"}
            by_learner.setdefault(json.dumps(config, sort_keys=True), []).append(record)
    by_task: dict[tuple[str, str], list[LearnerResults]] = {}
    for members in by_learner.values():
        learner = _make_learner(members, find_published)
        by_task.setdefault((learner.env, learner.demonstrations), []).append(learner)
    envs = [env for env, _ in by_task]
    tasks = []
    for (env, _), learners in by_task.items():
        demos = learners[0].records[0]["display"].get("demos")
        name = env if envs.count(env) == 1 else f"{env} ({demos})"
        tasks.append(TaskResults(name, env, tuple(_with_unique_names(learners))))
    return tasks


def citations(task: TaskResults) -> list[str]:
    """Where the published results of a task come from, each publication once."""
    return list(dict.fromkeys(one.published.citation for one in published_learners(task) if one.published.citation))


def published_learners(task: TaskResults) -> list[LearnerResults]:
    """The learners whose algorithm has published results on the task."""
    return [one for one in task.learners if one.published_curve or one.published.by_trajectories]


def labels(tasks: Sequence[TaskResults]) -> list[str]:
    """All labels, each once, in order. A label has one colour in all charts."""
    return list(dict.fromkeys(learner.label for task in tasks for learner in task.learners))


def without_result(records: Sequence[Record]) -> list[tuple[str, str]]:
    """(description, status) of the cells that have no final policy."""
    return [
        (describe(record), record["status"])
        for record in records
        if record["status"].startswith(NO_RESULT) or not any(row["x_kind"] == FINAL for row in record["evaluations"])
    ]


def describe(record: Record) -> str:
    """Label, task, trajectories and seed of a cell."""
    config = record["config"]
    count = plural(config["task"]["trajectories"], "trajectory")
    return f"{_label(record)} on {config['task']['env']}, {count}, seed {config['seed']}"


def _label_repeats(learners: Sequence[LearnerResults]) -> bool:
    return len({learner.label for learner in learners}) < len(learners)


def _make_learner(records: list[Record], find_published: FindPublished) -> LearnerResults:
    config = records[0]["config"]
    algorithm, task = config["algorithm"], config["task"]
    return LearnerResults(
        env=task["env"],
        demonstrations=str(task["demonstrations"]),
        name=_label(records[0]),
        label=_label(records[0]),
        algorithm=algorithm["name"],
        preset=algorithm["preset"],
        settings=algorithm["settings"],
        trajectories=task["trajectories"],
        published=find_published(task["env"], algorithm["name"], algorithm["hyperparameters"]),
        records=tuple(sorted(records, key=lambda record: record["config"]["seed"])),
    )


def _label(record: Record) -> str:
    """The label of the study, or algorithm, preset and settings."""
    if record["display"].get("label"):
        return str(record["display"]["label"])
    algorithm = record["config"]["algorithm"]
    return learner_name(algorithm["name"], algorithm["preset"], algorithm["settings"])


def _with_unique_names(learners: list[LearnerResults]) -> list[LearnerResults]:
    """Add the number of trajectories to names if it differs, and [2], [3], ... to names that are still equal."""
    counts = len({learner.trajectories for learner in learners}) > 1
    used: dict[str, int] = {}
    renamed = []
    for learner in learners:
        name = f"{learner.label}, {plural(learner.trajectories, 'trajectory')}" if counts else learner.label
        used[name] = used.get(name, 0) + 1
        suffix = "" if used[name] == 1 else f" [{used[name]}]"
        renamed.append(replace(learner, name=name + suffix, label=learner.label + suffix))
    return renamed


def _mean_return(record: Record, row: dict[str, Any]) -> float:
    returns = np.asarray(row["returns"], np.float64)
    if returns.size == 0 or not np.isfinite(returns).all():
        point = f"{row['x_kind']} {row['x']}"
        raise RunError(f"cell {record['key']} has returns that are not finite at {point}: remove its file and rerun")
    return float(returns.mean())
