"""The directory of a program that has not been stored yet.

    WORK/GROUP-DIGEST/cells.json                     keys of the program's cells
    WORK/GROUP-DIGEST/checkpoint.npz                 the checkpoint of `imitate`
    WORK/GROUP-DIGEST/*.policy.npz, returns.csv      see `evaluator`
    WORK/GROUP-DIGEST/records.json                   the cells' records, once the program has finished

Damage costs at most the work in this directory, and one line says so. Only files with these names are ever removed.
"""

import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from understudy.core.errors import RunError, UnderstudyError
from understudy.core.reader import FileReader
from understudy.core.storage import remove_files, write_json
from understudy.core.text import quoted
from understudy.policies.actor import Actor
from understudy.policies.saved import load_policy
from understudy.studies.groups import Cell, Group
from understudy.studies.points import POLICY_NAME
from understudy.studies.records import RECORD, checksum, flaw, is_digest, is_key
from understudy.studies.returns import RETURNS

CELLS, RECORDS, CHECKPOINT = "cells.json", "records.json", "checkpoint.npz"
STATE = (RECORDS, "checkpoint*.npz", "checkpoint.npz.lock", "*-*-*.policy.npz", RETURNS, ".*.????????.partial*")
"""Patterns of all files but cells.json, in the order in which they are removed: a kill in between leaves no
records.json without its policies."""


class FinishedCell(NamedTuple):
    """A cell's record and its final policy, which is None if the run diverged."""

    record: dict[str, Any]
    policy: Actor | None


class DamagedWorkError(RunError):
    """A program cannot resume from its directory."""


def work_directories(work: Path, group_key: str = "") -> list[Path]:
    """The directories of programs, of one group or of all. Links are left out."""
    form = re.compile(rf"{group_key or '[0-9a-f]{16}'}-[0-9a-f]{{16}}")
    found = sorted(work.iterdir()) if work.is_dir() else []
    return [path for path in found if form.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]


def program_name(group: Group, cells: Sequence[Cell]) -> str:
    """Name of a program's directory: the group's key and a digest of its cells."""
    return f"{group.key}-{hashlib.sha256(' '.join(cell.key for cell in cells).encode()).hexdigest()[:16]}"


def split_programs(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Split cells into programs of `imitate`. A program has all its seeds on all its numbers of trajectories."""
    by_count: dict[int, list[Cell]] = {}
    for cell in cells:
        by_count.setdefault(cell.trajectories, []).append(cell)
    by_seeds: dict[tuple[int, ...], list[Cell]] = {}
    for _, members in sorted(by_count.items()):
        members = sorted(members, key=lambda cell: cell.seed)
        by_seeds.setdefault(tuple(cell.seed for cell in members), []).extend(members)
    return list(by_seeds.values())


def begin_program(directory: Path, cells: Sequence[Cell]) -> None:
    """Write cells.json."""
    if directory.is_symlink():
        raise RunError(f"'{directory}' is a link, and a directory is needed: remove it")
    write_json(directory / CELLS, [cell.key for cell in cells])


def started_program(directory: Path, group: Group, remaining: Mapping[str, Cell]) -> list[Cell] | None:
    """The cells of a program that an earlier process began, if all of them are still missing."""
    path = directory / CELLS
    if not path.exists():
        return None
    reader = FileReader(path, "a list of cells", "remove it")
    try:
        keys = reader.json([is_key])
        if not all(key in remaining for key in keys):
            return None
        cells = [remaining[key] for key in keys]
        if program_name(group, cells) != directory.name or split_programs(cells) != [cells]:
            raise reader.damaged("its cells are not those of the directory")
        if any((found := POLICY_NAME.fullmatch(path.name)) and found[2] for path in directory.iterdir()):
            restart(directory, DamagedWorkError(f"'{directory}' was begun by an earlier version"))
    except RunError as error:
        _warn(error, "its program starts again")
        remove_files(directory, (CELLS,))
        return None
    return cells


def write_records(directory: Path, records: Sequence[Mapping[str, Any]], policies: Sequence[str | None]) -> None:
    """Write records.json: a record for each cell, and the name of its policy's file."""
    cells = [{"record": record, "policy": name} for record, name in zip(records, policies, strict=True)]
    write_json(directory / RECORDS, {"cells": cells, "checksum": checksum(cells)})


def read_records(directory: Path) -> list[FinishedCell] | None:
    """The cells of a finished program; None if it has not finished. If a file is damaged, records.json is removed."""
    if not (directory / RECORDS).exists():
        return None
    try:
        return _read_records(directory)
    except UnderstudyError as error:
        _warn(error, "its program is evaluated again")
        remove_files(directory, (RECORDS,))
        return None


def _read_records(directory: Path) -> list[FinishedCell]:
    reader = FileReader(directory / RECORDS, "a list of records", "remove it")
    content = reader.json({"cells": [{"record": RECORD, "policy": (None, _is_policy_name)}], "checksum": is_digest})
    with reader.guarded():
        intact = content["checksum"] == checksum(content["cells"])
    wrong = None if intact else "wrong checksum"
    finished = []
    for one in content["cells"]:
        wrong = wrong or flaw(one["record"])
        if wrong is not None:
            raise reader.damaged(wrong)
        policy = None if one["policy"] is None else load_policy(directory / one["policy"])
        finished.append(FinishedCell(one["record"], policy))
    return finished


def restart(directory: Path, reason: DamagedWorkError) -> None:
    """Remove the state of a program, which starts again."""
    _warn(reason, "its program starts again")
    remove_files(directory, STATE)


def remove_work(directory: Path) -> None:
    """Remove the directory of a program, except for files that are not ours."""
    remove_files(directory, (*STATE, CELLS))


def _is_policy_name(value: Any) -> bool:
    return isinstance(value, str) and POLICY_NAME.fullmatch(value) is not None


def _warn(error: UnderstudyError, consequence: str) -> None:
    print(f"warning: {quoted(error, 300)}; {consequence}", file=sys.stderr)
