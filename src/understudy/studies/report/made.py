"""What a study took, and what made it."""

from collections import Counter
from collections.abc import Sequence
from html import escape

from understudy.studies.report.lines import NOTHING, Cell, Task, plural
from understudy.studies.report.markup import table

COST = (
    *("algorithm", "wall-clock of the training", "trained together", "environment steps a run", "asked of the expert"),
    "how its runs ended",
)


def cost(tasks: Sequence[Task]) -> str:
    """Wall-clock, environment steps and questions, a table over all tasks."""
    rows = []
    for task in tasks:
        for label in dict.fromkeys(line.label for line in task.lines):
            cells = [cell for line in task.lines if line.label == label for cell in line.cells]
            name = f"{label} on {task.name}" if len(tasks) > 1 else label
            rows.append([escape(name), *(escape(told) for told in _cost(cells))])
    caption = "The wall-clock is that of the program a run was trained in, together with the runs beside it."
    return f"<section><h2>What it took</h2>{table(caption, COST, rows, wrap=True)}</section>" if rows else ""


def provenance(cells: Sequence[Cell], command: str) -> str:
    """The exact command, and for each set of cells what made them: command, device, versions, dates."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        if not cell["status"].startswith(NOTHING):
            by = cell["made"]
            versions = ", ".join(f"{name} {version}" for name, version in by["versions"].items())
            groups.setdefault((by["command"], by["device"], versions), []).append(by["date"])
    rows = [
        [
            f"<code>{escape(called)}</code>",
            str(len(dates)),
            escape(device),
            escape(versions),
            escape(" to ".join(dict.fromkeys([min(dates), max(dates)]))),
        ]
        for (called, device, versions), dates in groups.items()
    ]
    headers = ("command", "cells", "device", "versions", "date")
    made = table("What made the cells.", headers, rows, wrap=True) if rows else ""
    return (
        f"<section><h2>How to make it again</h2><p>This report: <code>{escape(command)}</code>. "
        f"It has {plural(sum(len(dates) for dates in groups.values()), 'cell')}.</p>{made}</section>"
    )


def _cost(cells: Sequence[Cell]) -> list[str]:
    seconds = sorted({float(cell["seconds"]) for cell in cells})
    together = sorted({int(cell["together"]) for cell in cells})
    steps = sorted({int(cell["env_steps"]) for cell in cells if cell["env_steps"] is not None})
    queries = sorted({int(cell["queries"]) for cell in cells if cell["queries"] is not None})
    return [
        _between([duration(seconds[0]), duration(seconds[-1])]),
        _between([plural(together[0], "run"), plural(together[-1], "run")]),
        _between([f"{steps[0]:,}", f"{steps[-1]:,}"]) if steps else "none",
        _between([f"{queries[0]:,}", f"{queries[-1]:,}"]) if queries else "nothing",
        "; ".join(f"{count} {status}" for status, count in Counter(cell["status"] for cell in cells).items()),
    ]


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _between(ends: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys(ends))
