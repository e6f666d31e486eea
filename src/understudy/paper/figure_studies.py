"""The studies behind the paper's figures: load them, change them, run them, and keep their results in CSV files.

A figure's study is a TOML file in `paper/studies`. Its cells are stored in a directory, as those of any study. Its CSV
file has one row per evaluation. Running a study replaces the rows of its own learners and keeps all others.
"""

import csv
import os
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from understudy.algorithms import available
from understudy.core.errors import RunError, SettingError
from understudy.core.imports import find_own_code
from understudy.core.paths import check_new_file, check_own_file
from understudy.game import DEFAULT
from understudy.paper import published
from understudy.studies import Entry, Hardware, Store, Study
from understudy.studies.groups import MISSING, study_records
from understudy.studies.plan import BUNDLED
from understudy.studies.report import table
from understudy.studies.running import RunSummary, run
from understudy.studies.training import ProgressFactory
from understudy.studies.unfinished import unfinished_records
from understudy.train.tables import write_csv

TaskName = Literal["halfcheetah", "ant"]
TASKS: dict[str, str] = {"halfcheetah": "HalfCheetahBulletEnv-v0", "ant": "AntBulletEnv-v0"}
TITLES = {"halfcheetah": "HalfCheetah", "ant": "Ant"}
START = "env,algorithm,preset,"
"""The first columns of every table of results: a file that begins otherwise is not replaced."""
IDENTITY = ("env", "algorithm", "preset", "settings", "trajectories", "demonstrations")
"""The columns that identify a learner's rows."""
Rows = list[dict[str, str]]


def load_study(name: str) -> Study:
    """The study of a figure."""
    with resources.as_file(resources.files("understudy.paper") / "studies" / f"{name}.toml") as path:
        return Study.load(path)


def adapt_study(
    study: Study,
    env: str,
    demos: str | None,
    seeds: int | None,
    cpus: int,
    entries: Sequence[Entry] = (),
    trajectories: Sequence[int] | None = None,
    **protocol: Any,
) -> Study:
    """A figure's study on one environment. Values that are None, and an empty `entries`, keep the study's own."""
    task = replace(study.tasks[0], env=env, demos=demos or BUNDLED)
    changes = {name: value for name, value in protocol.items() if value is not None}
    if seeds is not None:
        changes["seeds"] = tuple(range(seeds))
    return replace(
        study,
        tasks=(task if trajectories is None else replace(task, trajectories=tuple(trajectories)),),
        algorithms=tuple(entries) or study.algorithms,
        protocol=replace(study.protocol, **changes),
        hardware=Hardware(cpus=cpus),
    )


def parse_learner(name: str, trajectories: tuple[int, ...] | None = None) -> Entry:
    """The learner that "adril", "adril:paper", "adril:paper@20" or "adril:paper@20,round_steps=2500" names.

    Args:
        name: algorithm[:preset][@trajectories][,setting=value]... The algorithm may be module:Class.
        trajectories: Used if the name has no number: () for the task's, None for the paper's.
    """
    learner, *settings = _split_commas(name)
    learner, _, count = learner.partition("@")
    algorithm, _, preset = learner.partition(":")
    if preset and algorithm not in available():  # an algorithm of the user
        attribute, _, preset = preset.partition(":")
        algorithm = f"{algorithm}:{attribute}"
        find_own_code(algorithm)
    changes: dict[str, Any] = {}
    try:
        for setting in settings:
            key, _, value = setting.partition("=")
            changes[key.strip()] = literal_eval(value.strip())
        if count:
            trajectories = (int(count),)
    except (ValueError, SyntaxError) as error:
        raise SettingError(
            f"learner '{name}' cannot be read: write adril, adril:paper, adril:paper@20 or "
            "adril:paper@20,round_steps=2500"
        ) from error
    if trajectories is None:
        trajectories = (published.REWARD_TRAJECTORIES.get(algorithm, 20),)
    return Entry(algorithm, preset or DEFAULT, changes, trajectories, label=name)


def _split_commas(name: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth = [""], 0
    for letter in name:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def parse_learners(names: Sequence[str], trajectories: tuple[int, ...] | None = None) -> list[Entry]:
    """The learners of several names."""
    if len(set(names)) < len(names):
        raise SettingError(f"learners is {', '.join(names)}: name each learner once")
    return [parse_learner(name, trajectories) for name in names]


def run_study(study: Study, directory: str | os.PathLike[str], path: Path, progress: ProgressFactory) -> Rows:
    """Run the cells of a study that have not finished, and merge all of them into the CSV file; return all its rows."""
    before = read_rows(path)  # raises before training if the file has other columns
    raise_failures(run(study, directory, jobs=1, progress=progress))
    return merge_rows(before, stored_rows(study, directory), path)


def raise_failures(summary: RunSummary) -> None:
    """Raise RunError if learners of a study have failed. It names each reason once."""
    reasons: dict[str, list[str]] = {}
    for name, reason in summary.failed.items():
        reasons.setdefault(str(reason), []).append(name)
    if reasons:
        raise RunError("; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items()))


def stored_rows(study: Study, directory: str | os.PathLike[str]) -> Rows:
    """The rows of a study's cells that have finished."""
    records = study_records(study.groups(), Store(directory))
    return table.csv_rows([record for record in records if record["status"] != MISSING])


def unfinished_rows(study: Study, directory: str | os.PathLike[str]) -> Rows:
    """The rows of the evaluations so far of cells that have not finished."""
    return table.csv_rows(unfinished_records(list(study.groups()), Store(directory)))


def merge_rows(
    before: Sequence[dict[str, str]],
    new: Rows,
    path: Path,
    columns: list[str] = table.COLUMNS,
    identity: Sequence[str] = IDENTITY,
) -> Rows:
    """Write a CSV file in which new rows replace earlier rows with the same `identity`; return its rows."""
    replaced = {tuple(row[name] for name in identity) for row in new}
    kept = [row for row in before if tuple(row[name] for name in identity) not in replaced]
    rows = sorted([*kept, *new], key=lambda row: [row[name] for name in IDENTITY])
    write_csv(path, columns, ([row[name] for name in columns] for row in rows))
    return rows


def check_out(path: Path, *others: Path) -> None:
    """Raise if the path is not a .csv file, cannot be written, or holds a file that is no table of results.

    `others` are further tables that the command writes.
    """
    if path.suffix != ".csv":
        raise SettingError(f"out is '{path}': pass a path that ends in .csv (the figure is written next to it)")
    for table_path in (path, *others):
        check_own_file(table_path, START)
    if not path.exists():
        check_new_file(path.with_suffix(".png"))


def read_rows(path: Path, columns: list[str] = table.COLUMNS) -> Rows:
    """The rows of a results file; none if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != columns:
            raise SettingError(f"out is '{path}', a file with other columns: choose another path")
        return list(reader)
