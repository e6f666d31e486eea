"""A study's results as tables: Markdown, and CSV in the project's standard columns."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from understudy.core.statistics import Sample, interval
from understudy.studies.curves import LAST, LOWEST
from understudy.studies.published import FindPublished, Published, nothing_published
from understudy.studies.records import position
from understudy.studies.report.certified import CAPTION as CERTIFICATE
from understudy.studies.report.certified import HEADER, CertificateCells
from understudy.studies.report.formatting import bracket, plural, plus_minus
from understudy.studies.report.learners import (
    NO_RESULT,
    LearnerResults,
    Record,
    TaskResults,
    citations,
    group_by_task,
    without_result,
)
from understudy.studies.report.summary import summarize

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
    "final policy (selected by payoff)",
    f"lowest of the last {LOWEST}",
    "imitation gap",
    HEADER,
)
CAPTION = (
    "Return, mean ± standard error over the seeds that finished, and [the 95% interval of that mean] (Student's t over "
    "the same seeds). The imitation gap is the expert's mean return, which counts as exact, minus the final policy's."
)


class Row(NamedTuple):
    """A row of the results table."""

    name: str
    seeds: str
    numbers: tuple[tuple[str, str], ...]
    """(mean ± standard error, 95% interval) for each of the other columns."""
    published: bool = False


def results_table(task: TaskResults, certificates: CertificateCells | None = None) -> tuple[list[str], list[Row]]:
    """Headers and rows. Published results follow the learner they belong to. Empty columns are left out."""
    table: list[Row] = []
    for learner in task.learners:
        curve = learner.curve
        gap = ("", "") if learner.gap is None else (_gap(learner), bracket(learner.gap))
        samples = (curve.last, curve.last_five, curve.final_sample, curve.lowest)
        seeds = len({record["config"]["seed"] for record in learner.records})
        finished = f"{len(curve.final)} of {seeds}" if len(curve.final) < seeds else str(seeds)
        certificate = (certificates or {}).get(learner.name, ("", ""))
        table.append(Row(learner.name, finished, (*(_both(sample) for sample in samples), gap, certificate)))
        published = _published_row(learner)
        if published is not None and published not in table:
            table.append(published)
    used = [i for i in range(len(HEADERS) - 2) if any(row.numbers[i][0] for row in table)]
    rows = [row._replace(numbers=tuple(row.numbers[i] for i in used)) for row in table]
    return [*HEADERS[:2], *(HEADERS[i + 2] for i in used)], rows


def _gap(learner: LearnerResults) -> str:
    """The imitation gap with the learner's standard error. The expert's return counts as exact."""
    assert learner.gap is not None
    assert learner.score is not None
    return plus_minus(learner.score._replace(mean=learner.gap.mean))


def markdown(
    records: Sequence[Record],
    find_published: FindPublished = nothing_published,
    certificates: Mapping[str, CertificateCells] | None = None,
) -> str:
    """A summary and a table for each task, and the runs without a result. `certificates`: by environment."""
    parts = []
    for task in group_by_task(records, find_published):
        headers, rows = results_table(task, (certificates or {}).get(task.env))
        cells = [headers, ["---", *["---:"] * (len(headers) - 1)]]
        for row in rows:
            cells.append([_escape(row.name), row.seeds, *(" ".join(pair).strip() for pair in row.numbers)])
        lines = [f"### {_escape(task.name)}", _escape(summarize(task)), "\n".join(map(_markdown_row, cells))]
        if task.expert is not None:
            lines.append(f"The expert's return is {plus_minus(Sample(task.expert, float('nan'), 1))}. {CAPTION}")
        else:
            lines.append(CAPTION)
        lines += [CERTIFICATE] if HEADER in headers else []
        lines += [f"Published: {_escape(text)}." for text in citations(task)]
        parts.append("\n\n".join(lines))
    unfinished = without_result(records)
    if unfinished:
        items = "\n".join(f"- {_escape(description)}: {_escape(status)}" for description, status in unfinished)
        parts.append(f"Without a result ({plural(len(unfinished), 'run')}):\n\n{items}")
    return "\n\n".join(parts) + "\n"


def result_rows(records: Sequence[Record]) -> list[list[Any]]:
    """One row per evaluation of each cell, in the order of `COLUMNS`."""
    rows = []
    for record in records:
        if record["status"].startswith(NO_RESULT):
            continue
        config, display, provenance = record["config"], record["display"], record["provenance"]
        columns = learner_columns(config, display)
        for row in record["evaluations"]:
            returns = np.asarray(row["returns"], np.float64)
            rows.append(
                [
                    *(columns["env"], columns["algorithm"], columns["preset"]),
                    *(config["seed"], row["x_kind"], position(row)),
                    *(round(float(returns.mean()), 3), round(float(returns.std()), 3), columns["trajectories"]),
                    *(columns["demonstrations"], columns["settings"]),
                    *(row.get("steps"), len(returns), row.get("payoff"), display.get("expert_return")),
                    None if record["seconds"] is None else round(float(record["seconds"]), 1),
                    *(provenance["device"], provenance["command"]),
                    " ".join(f"{name}={version}" for name, version in provenance["versions"].items()),
                    provenance["date"],
                ]
            )
    return [["" if value is None else value for value in row] for row in rows]


def csv_rows(records: Sequence[Record]) -> list[dict[str, str]]:
    """The same rows as `csv.DictReader` would read them."""
    return [dict(zip(COLUMNS, map(str, row), strict=True)) for row in result_rows(records)]


def learner_columns(config: Mapping[str, Any], display: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that identify a learner."""
    algorithm, task = config["algorithm"], config["task"]
    return {
        "env": task["env"],
        "algorithm": algorithm["name"],
        "preset": algorithm["preset"],
        "settings": json.dumps(algorithm["settings"], sort_keys=True, ensure_ascii=False),
        "trajectories": task["trajectories"],
        "demonstrations": f"{display.get('demos')}@{str(task['demonstrations'])[:12]}",
    }


def _both(sample: Sample | None) -> tuple[str, str]:
    return ("", "") if sample is None else (plus_minus(sample), bracket(interval(sample)))


def _published_row(learner: LearnerResults) -> Row | None:
    """The published learning curve of a learner's algorithm, or its return at the same number of trajectories."""
    published, empty = learner.published, ("", "")
    curve = list(learner.published_curve.values())
    if curve:
        count = plural(published.trajectories, "trajectory")
        means = [sample.mean for sample in curve]
        last_five = Sample(float(np.mean(means[-LAST:])), float("nan"), 1)
        lowest = Sample(min(means[-LOWEST:]), float("nan"), 1)
        numbers = (_both(curve[-1]), _both(last_five), empty, _both(lowest), empty, empty)
        return Row(_published_name(published, count), str(curve[-1].size), numbers, published=True)
    point = published.by_trajectories.get(learner.trajectories)
    if point is None:
        return None
    count = plural(learner.trajectories, "trajectory")
    numbers = (empty, empty, _both(point), empty, empty, empty)
    return Row(_published_name(published, count), str(point.size), numbers, published=True)


def _published_name(published: Published, count: str) -> str:
    return f"{published.name}, published ({count}{'; ' if published.source else ''}{published.source})"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Text without Markdown or HTML meaning."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|~])", r"\\\1", plain)
