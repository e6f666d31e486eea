"""Evaluations of runs that have not finished: what a stopped study has measured so far.

A program's directory keeps them until its cells are stored (`work`). Nothing is changed there, so a program that is
training at the same time is not disturbed.
"""

from typing import Any

from understudy.core.errors import UnderstudyError
from understudy.core.reader import FileReader
from understudy.studies.cells import Store
from understudy.studies.groups import Cell, Group
from understudy.studies.points import EvalPoint, is_planned
from understudy.studies.records import is_key
from understudy.studies.returns import ReturnsFile
from understudy.studies.work import CELLS, RECORDS, work_directories
from understudy.train.tables import provenance

UNFINISHED = "unfinished"


def unfinished_records(groups: list[Group], store: Store) -> list[dict[str, Any]]:
    """A record for each unfinished cell that was evaluated; its training time is not known."""
    records = []
    for group in groups:
        missing = {cell.key: cell for cell in group.cells if not store.has(cell.key)}
        for directory in work_directories(store.directory / "work", group.key):
            if (directory / RECORDS).exists():  # it has finished, and will be stored
                continue
            try:
                keys = FileReader(directory / CELLS, "a list of cells", "remove it").json([is_key])
                episodes = next((cell.config["protocol"]["eval_episodes"] for cell in missing.values()), 0)
                returns = ReturnsFile(directory, episodes).intact({*keys} & {*missing})
            except UnderstudyError:  # damaged: the next run of the study says so, and starts the program again
                continue
            records += [_record(group, missing[key], returns) for key in keys if key in missing]
    return [record for record in records if record["evaluations"]]


def _record(group: Group, cell: Cell, returns: dict[EvalPoint, Any]) -> dict[str, Any]:
    points = sorted(point for point in returns if point.key == cell.key and is_planned(group, cell, point))
    evaluations = [
        {
            "x_kind": point.kind,
            "x": point.x,
            "steps": point.x if point.kind == "env_steps" else None,
            "payoff": None,
            "returns": [float(value) for value in returns[point]],
        }
        for point in points
    ]
    about = {"config": cell.config, "display": group.display, "status": UNFINISHED, "evaluations": evaluations}
    return {**about, "seconds": None, "provenance": provenance()}
