"""A study's numbers as tables: Markdown for READMEs, and the project's standard columns for CSV files."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from understudy.core.statistics import Sample, interval
from understudy.paper import published
from understudy.studies.report.lines import (
    LAST,
    LOWEST,
    NOTHING,
    Cell,
    Line,
    Task,
    bracket,
    gather,
    plural,
    plus_minus,
    troubled,
)
from understudy.studies.report.summary import sentence

COLUMNS = [
    *("env", "algorithm", "preset", "seed", "x_kind", "x", "mean_return", "std_return", "trajectories"),
    *("demonstrations", "settings", "steps", "episodes", "payoff", "expert_return", "train_seconds", "device"),
    *("command", "versions", "date"),
]
HEADERS = (
    "algorithm",
    "seeds",
    "last evaluation",
    f"mean of the last {LAST}",
    "handed over (selected by payoff)",
    f"lowest of the last {LOWEST}",
    "imitation gap",
)
CAPTION = (
    "Return, mean ± standard error over the seeds that finished, with the 95% interval. "
    "The gap is the expert's return less that of the policy handed over."
)


class Row(NamedTuple):
    """A line of the results: its name, and (mean ± standard error, 95% interval) for each of the other columns."""

    name: str
    seeds: str
    numbers: tuple[tuple[str, str], ...]
    published: bool = False


def results(task: Task) -> tuple[list[str], list[Row]]:
    """Headers, and each line of a task followed by what was published of its algorithm; empty columns are left out."""
    made: list[Row] = []
    for line in task.lines:
        gap = ("", "") if line.gap is None else (bare(line), bracket(line.gap))
        samples = (line.last, line.last_five, line.handed, line.lowest)
        seeds = {cell["asked"]["seed"] for cell in line.cells}
        ended = f"{len(line.handed_seeds)} of {len(seeds)}" if len(line.handed_seeds) < len(seeds) else str(len(seeds))
        made.append(Row(line.name, ended, (*(_both(sample) for sample in samples), gap)))
        theirs = _published(line)
        if theirs is not None and theirs not in made:
            made.append(theirs)
    kept = [i for i in range(len(HEADERS) - 2) if any(row.numbers[i][0] for row in made)]
    rows_ = [row._replace(numbers=tuple(row.numbers[i] for i in kept)) for row in made]
    return [*HEADERS[:2], *(HEADERS[i + 2] for i in kept)], rows_


def bare(line: Line) -> str:
    """The imitation gap with its standard error, which is the learner's: the expert's return is taken as given."""
    assert line.gap is not None
    assert line.best_known is not None
    return plus_minus(line.best_known._replace(mean=line.gap.mean))


def markdown(cells: Sequence[Cell]) -> str:
    """A sentence and a table for each task, and what is missing."""
    parts = []
    for task in gather(cells):
        headers, found = results(task)
        ruled = [headers, ["---", *["---:"] * (len(headers) - 1)]]
        for row in found:
            ruled.append([_escaped(row.name), row.seeds, *(" ".join(pair).strip() for pair in row.numbers)])
        lines = [f"### {_escaped(task.name)}", _escaped(sentence(task)), "\n".join(map(_markdown_row, ruled))]
        if task.expert is not None:
            lines.append(f"The expert returns {plus_minus(Sample(task.expert, float('nan'), 1))}. {CAPTION}")
        else:
            lines.append(CAPTION)
        parts.append("\n\n".join(lines))
    trouble = troubled(cells)
    if trouble:
        items = "\n".join(f"- {_escaped(which)}: {_escaped(status)}" for which, status in trouble)
        parts.append(f"Without a result ({plural(len(trouble), 'cell')}):\n\n{items}")
    return "\n\n".join(parts) + "\n"


def rows(cells: Sequence[Cell]) -> list[list[Any]]:
    """A line for each evaluation of each cell, in the project's standard columns."""
    made = []
    for cell in cells:
        if cell["status"].startswith(NOTHING):
            continue
        asked, shown, by = cell["asked"], cell["shown"], cell["made"]
        who = learner(asked, shown)
        for row in cell["rows"]:
            returns = np.asarray(row["returns"], np.float64)
            made.append(
                [
                    *(who["env"], who["algorithm"], who["preset"], asked["seed"], row["x_kind"], row["x"]),
                    *(round(float(returns.mean()), 3), round(float(returns.std()), 3), who["trajectories"]),
                    *(who["demonstrations"], who["settings"]),
                    *(row.get("steps"), len(returns), row.get("payoff"), shown.get("expert_return")),
                    *(round(float(cell["seconds"]), 1), by["device"], by["command"]),
                    " ".join(f"{name}={version}" for name, version in by["versions"].items()),
                    by["date"],
                ]
            )
    return [["" if value is None else value for value in row] for row in made]


def lines(cells: Sequence[Cell]) -> list[dict[str, str]]:
    """The same, by column, as a file has them."""
    return [dict(zip(COLUMNS, map(str, row), strict=True)) for row in rows(cells)]


def learner(asked: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that tell a learner's lines from another's."""
    algorithm, task = asked["algorithm"], asked["task"]
    return {
        "env": task["env"],
        "algorithm": algorithm["name"],
        "preset": algorithm["preset"],
        "settings": json.dumps(algorithm["settings"], sort_keys=True, ensure_ascii=False),
        "trajectories": task["trajectories"],
        "demonstrations": f"{shown.get('demos')}@{str(task['demonstrations'])[:12]}",
    }


def _both(sample: Sample | None) -> tuple[str, str]:
    return ("", "") if sample is None else (plus_minus(sample), bracket(interval(sample)))


def _published(line: Line) -> Row | None:
    """What the paper has of an algorithm on a task: its curve, or its return at this number of trajectories."""
    curve = list(line.published_curve.values())
    if curve:
        count = plural(published.REWARD_TRAJECTORIES[line.published_name], "trajectory")
        means = [sample.mean for sample in curve]
        five = Sample(float(np.mean(means[-LAST:])), float("nan"), 1)
        low = Sample(min(means[-LOWEST:]), float("nan"), 1)
        numbers = (_both(curve[-1]), _both(five), ("", ""), _both(low), ("", ""))
        return Row(f"{line.published_name}, published ({count})", str(curve[-1].size), numbers, published=True)
    point = line.published_counts.get(line.trajectories)
    if point is None:
        return None
    numbers = (("", ""), ("", ""), _both(point), ("", ""), ("", ""))
    count = plural(line.trajectories, "trajectory")
    return Row(f"{line.algorithm}, published ({count})", str(point.size), numbers, published=True)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|~])", r"\\\1", plain)
