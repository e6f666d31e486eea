"""Sections of the page about cost and provenance."""

from collections import Counter
from collections.abc import Sequence
from html import escape

from understudy.core.text import printable
from understudy.studies.report.formatting import plural
from understudy.studies.report.learners import NO_RESULT, Record, TaskResults
from understudy.studies.report.markup import table

COST_HEADERS = (
    *("algorithm", "training time", "trained together", "environment steps per run", "expert queries per run"),
    "status of its runs",
)


def cost_section(tasks: Sequence[TaskResults]) -> str:
    """Training time, environment steps and expert queries of each algorithm and task."""
    rows = []
    for task in tasks:
        for label in dict.fromkeys(learner.label for learner in task.learners):
            records = [record for one in task.learners if one.label == label for record in one.records]
            name = f"{label} on {task.name}" if len(tasks) > 1 else label
            rows.append([escape(name), *(escape(text) for text in _cost(records))])
    caption = "Training time is the wall-clock time of the program, which trains several runs together."
    return f"<section><h2>Cost</h2>{table(caption, COST_HEADERS, rows, wrap=True)}</section>" if rows else ""


def provenance_section(records: Sequence[Record], command: str, study_file: str = "") -> str:
    """The commands that make runs and report again, the study file, and the device, versions and dates of the runs."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for record in records:
        if not record["status"].startswith(NO_RESULT):
            info = record["provenance"]
            versions = ", ".join(f"{name} {version}" for name, version in info["versions"].items())
            groups.setdefault((info["command"], info["device"], versions), []).append(info["date"])
    rows = [
        [
            f"<code>{escape(run_command)}</code>",
            str(len(dates)),
            escape(device),
            escape(versions),
            escape(" to ".join(dict.fromkeys([min(dates), max(dates)]))),
        ]
        for (run_command, device, versions), dates in groups.items()
    ]
    headers = ("command", "runs", "device", "versions", "date")
    runs = table("How the runs were made.", headers, rows, wrap=True) if rows else ""
    commands = dict.fromkeys([*(run_command for run_command, _, _ in groups), command])
    text = printable(study_file.expandtabs(4))
    again = "".join(f"<li><code>{escape(one)}</code></li>" for one in commands)
    file = f"<details><summary>The study file</summary><pre>{escape(text)}</pre></details>" if text else ""
    return (
        f"<section><h2>Make it again</h2><ol>{again}</ol><p>The last command made this report of "
        f"{plural(sum(len(dates) for dates in groups.values()), 'run')}.</p>{file}{runs}</section>"
    )


def _cost(records: Sequence[Record]) -> list[str]:
    seconds = sorted({float(record["seconds"]) for record in records})
    together = sorted({int(record["runs_in_program"]) for record in records})
    steps = sorted({int(record["env_steps"]) for record in records if record["env_steps"] is not None})
    queries = sorted({int(record["queries"]) for record in records if record["queries"] is not None})
    return [
        _range([duration(seconds[0]), duration(seconds[-1])]),
        _range([plural(together[0], "run"), plural(together[-1], "run")]),
        _range([f"{steps[0]:,}", f"{steps[-1]:,}"]) if steps else "none",
        _range([f"{queries[0]:,}", f"{queries[-1]:,}"]) if queries else "none",
        "; ".join(f"{count} {status}" for status, count in Counter(record["status"] for record in records).items()),
    ]


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _range(ends: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(ends))
