"""Cells put together: a task has lines, a line is what differs only by its seed, and its numbers are over seeds.

A seed's evaluation is the mean of its episodes. Every number here is a `Sample` of one such value for each seed, so
that its standard error and its 95% interval (Student's t) say what other seeds would give. Where some runs diverged,
a line's numbers are over those that finished; its curve has the others, too, as far as they got.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from understudy.core.errors import RunError
from understudy.core.statistics import Interval, Sample, interval
from understudy.game import DEFAULT
from understudy.paper import published

Cell = dict[str, Any]
"""A record as the study's store keeps it."""
HANDED = "final"
CURVES = {"env_steps": "environment steps", "round": "rounds"}
LAST, LOWEST = 5, 10
"""How many evaluations at the end are averaged, and among how many the lowest is looked for."""
NOTHING = ("missing", "quarantined")
"""How the status of a cell begins that has no results."""


@dataclass(frozen=True)
class Line:
    """The cells of one task that differ only by their seed."""

    env: str
    demonstrations: str
    name: str
    """How it is called beside the other lines of its task."""
    label: str
    algorithm: str
    preset: str
    settings: dict[str, Any]
    balanced: bool
    trajectories: int
    cells: tuple[Cell, ...]

    @property
    def expert(self) -> float | None:
        told = (cell["shown"].get("expert_return") for cell in self.cells)
        return next((float(known) for known in told if known is not None), None)

    @property
    def spoken(self) -> str:
        """Its name within a sentence."""
        count = plural(self.trajectories, "trajectory")
        return self.name.replace(f", {count}", f" from {count}")

    @cached_property
    def kind(self) -> str | None:
        """The kind of its curve's x; None where only the policies handed over were played."""
        found = [row["x_kind"] for cell in self.cells for row in cell["rows"] if row["x_kind"] in CURVES]
        return found[0] if found else None

    @cached_property
    def traces(self) -> dict[int, dict[float, float]]:
        """seed → x → mean return, by x."""
        made = {
            cell["asked"]["seed"]: {row["x"]: _mean(cell, row) for row in cell["rows"] if row["x_kind"] == self.kind}
            for cell in self.cells
        }
        return {seed: dict(sorted(points.items())) for seed, points in sorted(made.items()) if points}

    @cached_property
    def curve(self) -> dict[float, Sample]:
        """x → the seeds that were played there."""
        xs = sorted({x for points in self.traces.values() for x in points})
        return {x: Sample.of([points[x] for points in self.traces.values() if x in points]) for x in xs}

    @property
    def last(self) -> Sample | None:
        return self._over_seeds(lambda values: values[-1])

    @property
    def last_five(self) -> Sample | None:
        """Of each seed's mean over its last five evaluations."""
        return self._over_seeds(lambda values: float(np.mean(values[-LAST:])))

    @property
    def lowest(self) -> Sample | None:
        """Of each seed's lowest among its last ten evaluations: the first ones are low for everybody."""
        return self._over_seeds(lambda values: min(values[-LOWEST:]))

    @cached_property
    def handed_seeds(self) -> dict[int, float]:
        """seed → mean return of the policy handed over."""
        made = {
            cell["asked"]["seed"]: _mean(cell, row)
            for cell in self.cells
            for row in cell["rows"]
            if row["x_kind"] == HANDED
        }
        return dict(sorted(made.items()))

    @property
    def handed(self) -> Sample | None:
        return Sample.of(list(self.handed_seeds.values())) if self.handed_seeds else None

    @property
    def best_known(self) -> Sample | None:
        """What it is judged by: the policy handed over, or the last evaluation where there is none."""
        return self.handed if self.handed is not None else self.last

    @property
    def gap(self) -> Interval | None:
        """J(π_E) − J(π), the expert's return taken as given: its recorded mean has no spread here."""
        if self.expert is None or self.best_known is None:
            return None
        mean, low, high = interval(self.best_known)
        return Interval(self.expert - mean, self.expert - high, self.expert - low)

    @property
    def published_name(self) -> str:
        return "adril-balanced" if self.algorithm == "adril" and self.balanced else self.algorithm

    @property
    def published_curve(self) -> dict[int, Sample]:
        """By environment steps, where the paper has this algorithm on this task."""
        return published.reward(self.env, self.published_name) if self.kind == "env_steps" else {}

    @property
    def published_counts(self) -> dict[int, Sample]:
        """By the number of trajectories, where the paper has this algorithm on this task."""
        return published.off_q(self.env, self.algorithm)

    def _over_seeds(self, of: Callable[[list[float]], float]) -> Sample | None:
        finished = self.handed_seeds or self.traces
        values = [of(list(points.values())) for seed, points in self.traces.items() if seed in finished]
        return Sample.of(values) if values else None


@dataclass(frozen=True)
class Task:
    """A task and its lines."""

    name: str
    env: str
    lines: tuple[Line, ...]

    @property
    def expert(self) -> float | None:
        return next((line.expert for line in self.lines if line.expert is not None), None)

    @property
    def counts(self) -> list[int]:
        return sorted({line.trajectories for line in self.lines})

    @property
    def several_counts(self) -> bool:
        """Whether the same algorithm learned from different numbers of trajectories."""
        return _repeat(self.lines)

    def panels(self) -> list[tuple[str, str, list[Line]]]:
        """What is drawn side by side: (title, kind of x, lines), a panel for each number of trajectories if several."""
        made = []
        for kind in CURVES:
            curved = [line for line in self.lines if line.kind == kind]
            if _repeat(curved):
                for count in sorted({line.trajectories for line in curved}):
                    made.append((plural(count, "trajectory"), kind, [x for x in curved if x.trajectories == count]))
            elif curved:
                made.append(("", kind, curved))
        return made


def gather(cells: Sequence[Cell]) -> list[Task]:
    """Tasks with their lines, in the order that the cells come in."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if not cell["status"].startswith(NOTHING):
            groups.setdefault(_same(cell), []).append(cell)
    lines = [_line(group) for group in groups.values()]
    tasks: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        tasks.setdefault((line.env, line.demonstrations), []).append(line)
    envs = [env for env, _ in tasks]
    made = []
    for (env, _), members in tasks.items():
        demos = members[0].cells[0]["shown"].get("demos")
        name = env if envs.count(env) == 1 else f"{env} ({demos})"
        made.append(Task(name, env, tuple(_named(members))))
    return made


def labels(tasks: Sequence[Task]) -> list[str]:
    """Every line's label once, in order: a label keeps its colour throughout."""
    return list(dict.fromkeys(line.label for task in tasks for line in task.lines))


def troubled(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """(which cell, what happened) for those that have not finished."""
    return [
        (in_words(cell), cell["status"])
        for cell in cells
        if cell["status"].startswith(NOTHING) or not any(row["x_kind"] == HANDED for row in cell["rows"])
    ]


def in_words(cell: Cell) -> str:
    asked = cell["asked"]
    count = plural(asked["task"]["trajectories"], "trajectory")
    return f"{_label(cell)} on {asked['task']['env']}, {count}, seed {asked['seed']}"


def plural(count: int, word: str) -> str:
    if count == 1:
        return f"1 {word}"
    return f"{count:,} {word[:-1] + 'ies' if word.endswith('y') else word + 's'}"


def number(value: float, beside: float = 0.0) -> str:
    """As many digits as a return needs, or one that stands beside it: 2154, 65.3, 0.482."""
    size = max(abs(value), abs(beside))
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}".replace("-", "−")


def plus_minus(sample: Sample) -> str:
    """Mean ± standard error."""
    mean, error = sample.mean, sample.standard_error
    return f"{number(mean, error)} ± {number(error, mean)}" if math.isfinite(error) else number(mean)


def bracket(found: Interval) -> str:
    """The 95% interval; empty where a single seed cannot have one."""
    low, high = found.low, found.high
    return f"[{number(low, high)}, {number(high, low)}]" if math.isfinite(low) else ""


def _repeat(lines: Sequence[Line]) -> bool:
    return len({line.label for line in lines}) < len(lines)


def _same(cell: Cell) -> str:
    return json.dumps({key: value for key, value in cell["asked"].items() if key != "seed"}, sort_keys=True)


def _line(cells: list[Cell]) -> Line:
    asked = cells[0]["asked"]
    algorithm, task = asked["algorithm"], asked["task"]
    return Line(
        env=task["env"],
        demonstrations=str(task["demonstrations"]),
        name=_label(cells[0]),
        label=_label(cells[0]),
        algorithm=algorithm["name"],
        preset=algorithm["preset"],
        settings=algorithm["settings"],
        balanced=bool(algorithm["hyperparameters"].get("balanced", False)),
        trajectories=task["trajectories"],
        cells=tuple(sorted(cells, key=lambda cell: cell["asked"]["seed"])),
    )


def _label(cell: Cell) -> str:
    """As the study calls it; otherwise the name, the preset and the settings."""
    if cell["shown"].get("label"):
        return str(cell["shown"]["label"])
    algorithm = cell["asked"]["algorithm"]
    preset = "" if algorithm["preset"] == DEFAULT else f" ({algorithm['preset']})"
    settings = [f"{name}={value}" for name, value in algorithm["settings"].items()]
    return ", ".join([algorithm["name"] + preset, *settings])


def _named(lines: list[Line]) -> list[Line]:
    """Lines with names that tell them apart: by their number of trajectories, and where that is not enough, a count."""
    counts = len({line.trajectories for line in lines}) > 1
    seen: dict[str, int] = {}
    made = []
    for line in lines:
        name = f"{line.label}, {plural(line.trajectories, 'trajectory')}" if counts else line.label
        seen[name] = seen.get(name, 0) + 1
        unlike = name if seen[name] == 1 else f"{name} [{seen[name]}]"
        label = line.label if seen[name] == 1 else f"{line.label} [{seen[name]}]"
        made.append(replace(line, name=unlike, label=label))
    return made


def _mean(cell: Cell, row: dict[str, Any]) -> float:
    returns = np.asarray(row["returns"], np.float64)
    if returns.size == 0 or not np.isfinite(returns).all():
        where = f"{row['x_kind']} {row['x']}"
        raise RunError(f"cell {cell['key']} has returns that are not finite at {where}: remove its file, run again")
    return float(returns.mean())
