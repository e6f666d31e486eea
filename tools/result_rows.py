"""The stored returns of each algorithm, for the section "Results" of its page: one row for each file and task.

A file of docs/results has a row for each seed and evaluation, and names the algorithm in `algorithm` or `learner`. A
run counts with its returned policy; where a file does not have it, with the final one, else with its last evaluation.
"""

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean

from comparison import markdown, read
from understudy.algorithms import ALGORITHMS

RESULTS = Path(__file__).parents[1] / "docs/results"
RETURNS = ("mean_return", "return", "learner_mean", "network")
"""Columns with a return: the first that a file has."""
ENDS = ("returned", "final")
"""Kinds of x that mark the policy of a finished run, best first."""
REFERENCES = ("expert", "random")
"""Kinds of x that are of other policies."""
SIZE = "trajectories"
"""The kind of x that is the number of demonstrations, not a time."""
HEADER = ("task", "variants", "demonstrations", "seeds", "return", "data")
ABOUT = (
    "A variant is a preset, other settings, or a number of demonstrations. Of one variant: the mean over seeds. "
    "Of several: the lowest and the highest mean. Of runs without a returned policy: the last evaluation."
)
NONE = "No return of this algorithm is stored yet."
Row = Mapping[str, str]


def returns_table(name: str, results: Path = RESULTS) -> str:
    """The table of an algorithm, and links to the files that measure something else."""
    rows, others = [], []
    for path in sorted(results.glob("*.csv")):
        link = f"[{path.stem}](results/{path.name})"
        found = [[*row, link] for row in file_rows(path, name)]
        rows += found
        if not found and any(algorithm(row) == name for row in _read(path)):
            others.append(link)
    parts = [ABOUT, markdown(HEADER, rows)] if rows else [NONE]
    if others:
        parts.append(f"Other stored measurements: {', '.join(others)}.")
    return "\n\n".join(parts)


def file_rows(path: Path, name: str) -> Iterator[list[str]]:
    """The rows of a file, one for each task. A variant is a preset, a record of settings, or an amount of data."""
    tasks: dict[str, dict[tuple[str, str], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in of_algorithm(path, name):
        tasks[row.get("env") or row["task"]][variant(row), demonstrations(row)].append(row)
    for task, groups in tasks.items():
        sizes = sorted({size for _, size in groups}, key=lambda size: (len(size), size))
        counts = sorted({seeds(rows) for rows in groups.values()})
        runs = [*groups.values()]
        yield [task, str(len(groups)), span(sizes), span(counts), shown(runs) + reached(runs)]


@functools.cache
def _read(path: Path) -> tuple[Row, ...]:
    return tuple(read(path))


def of_algorithm(path: Path, name: str) -> list[Row]:
    """The rows of a file that have a return of the algorithm, of each run those of the best kind."""
    groups: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    for row in _read(path):
        if algorithm(row) == name and column(row) and row.get("x_kind") not in REFERENCES:
            run = row.get("env") or row["task"], variant(row), demonstrations(row), row.get("seed", "")
            groups[run].append(row)
    found = []
    for rows in groups.values():
        kinds = {row.get("x_kind") for row in rows}
        best = next((kind for kind in ENDS if kind in kinds), None)
        found += [row for row in rows if row.get("x_kind") == best] if best else rows
    return found


def algorithm(row: Row) -> str:
    """The algorithm of a row: `learner` is its name, after which words or settings may follow."""
    name = row.get("algorithm") or row.get("learner", "").partition(":")[0].partition(",")[0]
    return name if name in ALGORITHMS else ""


def column(row: Row) -> str | None:
    """The column with the return, if the row has one."""
    return next((name for name in RETURNS if row.get(name)), None)


def variant(row: Row) -> str:
    """What tells runs of one algorithm apart: preset, settings, or the rest of the learner's name."""
    words = [row.get("preset", ""), row.get("settings", ""), row.get("variant", ""), row.get("actions", "")]
    learner = row.get("learner", "")
    words.append(learner.partition("," if "," in learner else ":")[2].strip())
    return ", ".join(word for word in words if word and word != "{}") or "default"


def demonstrations(row: Row) -> str:
    """The number of demonstrated trajectories, if the file has it."""
    return row["x"] if row.get("x_kind") == SIZE else row.get("trajectories") or row.get("demonstrations") or ""


def seed_returns(rows: list[Row]) -> list[float]:
    """One return for each seed: of its last evaluation, or the mean where all have the same x."""
    by_seed: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_seed[row.get("seed", "")].append(row)
    found = []
    for of_seed in by_seed.values():
        time = max(when(row) for row in of_seed)
        found.append(fmean(float(row[column(row) or ""]) for row in of_seed if when(row) == time))
    return found


def when(row: Row) -> float:
    """The time of an evaluation within its run. Another amount of data, or another task, is not another time."""
    return 0.0 if row.get("x_kind") in (None, SIZE, "unseen_forest") else float(row["x"])


def seeds(rows: list[Row]) -> str:
    """The number of seeds."""
    return rows[0].get("seeds") or str(len(seed_returns(rows)))


def shown(groups: list[list[Row]]) -> str:
    """Mean over seeds, and the lowest seed; the lowest and the highest mean of several variants."""
    means = [fmean(seed_returns(rows)) for rows in groups]
    if len(groups) > 1:
        return f"{number(min(means))} to {number(max(means))}"
    (rows,) = groups
    if "seeds" in rows[0]:  # the file has one row for all seeds
        lowest = float(rows[0]["lowest"]) if rows[0].get("lowest") else None
    else:
        lowest = min(seed_returns(rows)) if seeds(rows) != "1" else None
    return number(means[0]) + ("" if lowest is None else f" (lowest seed {number(lowest)})")


def reached(groups: list[list[Row]]) -> str:
    """The environment steps of the only variant, or how many of several count with their last evaluation."""
    unfinished = [rows for rows in groups if rows[0].get("x_kind") == "env_steps"]
    if not unfinished:
        return ""
    if len(groups) > 1:
        return f" ({len(unfinished)} of {len(groups)} variants: last evaluation)"
    return f", after {max(when(row) for row in unfinished[0]) / 1000:.0f}k steps"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def span(sizes: list[str]) -> str:
    return sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
