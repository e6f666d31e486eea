"""Figures of the paper as studies: which ones there are, how they are run, and the CSV files that they are drawn from.

A figure's study is a file of `studies/paper`. Its cells are kept in a directory of runs, as those of any study. Its CSV
file holds an evaluation a line, and lines of other learners or demonstrations that it has already stay there.
"""

import csv
import os
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from understudy.core.errors import RunError, SettingError
from understudy.game import DEFAULT
from understudy.paper import published
from understudy.studies import Entry, Hardware, Store, Study
from understudy.studies.groups import Group
from understudy.studies.plan import BUNDLED
from understudy.studies.report import table
from understudy.studies.running import run
from understudy.studies.training import Report
from understudy.train.results import write_csv

IDENTITY = ("env", "algorithm", "preset", "settings", "trajectories", "demonstrations")
"""The columns that tell one learner's lines from another's."""


def paper(name: str) -> Study:
    """A figure's study."""
    with resources.as_file(resources.files("understudy.studies") / "paper" / f"{name}.toml") as path:
        return Study.load(path)


def entry(name: str, trajectories: tuple[int, ...] | None = None) -> Entry:
    """The learner that "adril", "adril:paper", "adril:paper@20" or "adril:paper@20,round_steps=2500" stands for.

    Where it names no number of trajectories they are those given, () for the task's; None: the paper's.
    """
    who, *settings = _parts(name)
    who, _, count = who.partition("@")
    algorithm, _, preset = who.partition(":")
    changed: dict[str, Any] = {}
    try:
        for setting in settings:
            key, _, value = setting.partition("=")
            changed[key.strip()] = literal_eval(value.strip())
        if count:
            trajectories = (int(count),)
    except (ValueError, SyntaxError) as error:
        raise SettingError(
            f"learner '{name}': write it as adril, adril:paper, adril:paper@20 or adril:paper@20,round_steps=2500"
        ) from error
    if trajectories is None:
        trajectories = (published.REWARD_TRAJECTORIES.get(algorithm, 20),)
    return Entry(algorithm, preset or DEFAULT, changed, trajectories, label=name)


def _parts(name: str) -> list[str]:
    """What its commas set apart, but for those inside brackets."""
    parts, depth = [""], 0
    for letter in name:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def entries(names: Sequence[str], trajectories: tuple[int, ...] | None = None) -> list[Entry]:
    """The learners of several names."""
    if len(set(names)) < len(names):
        raise SettingError(f"learners is {', '.join(names)}: each can be given once")
    return [entry(name, trajectories) for name in names]


def measured(study: Study, directory: str | os.PathLike[str], path: Path, progress: Report) -> list[dict[str, str]]:
    """Run what is missing of a study and put it into the CSV file; all lines of the file."""
    before = lines(path)  # a file of something else is refused before anything is trained
    outcome = run(study, directory, jobs=1, progress=progress)
    if outcome.failed:
        reasons: dict[str, list[str]] = {}
        for name, why in outcome.failed.items():
            reasons.setdefault(str(why), []).append(name)
        raise RunError("; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items()))
    return stored(study.groups(), Store(directory), path, before)


def stored(groups: Sequence[Group], store: Store, path: Path, before: list[dict[str, str]]) -> list[dict[str, str]]:
    """The file with the cells of these groups in place of those lines that they make anew."""
    cells = [{**store.read(cell.key), "shown": group.shown} for group in groups for cell in group.cells]
    return merged(before, table.lines(cells), path)


def merged(
    before: Sequence[dict[str, str]], new: Sequence[dict[str, str]], path: Path, columns: list[str] = table.COLUMNS
) -> list[dict[str, str]]:
    """The file of lines from before and new ones, which take the place of those of the same learners."""
    made = {tuple(line[name] for name in IDENTITY) for line in new}
    kept = [line for line in before if tuple(line[name] for name in IDENTITY) not in made]
    all_ = sorted([*kept, *new], key=lambda line: [line[name] for name in IDENTITY])
    write_csv(path, columns, ([line[name] for name in columns] for line in all_))
    return all_


def lines(path: Path, columns: list[str] = table.COLUMNS) -> list[dict[str, str]]:
    """Those of a results file; none where there is no file."""
    if path.suffix != ".csv":
        raise SettingError(f"out is '{path}': a .csv file is needed (the figure goes beside it, as .png)")
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != columns:
            raise SettingError(f"out is '{path}', which holds something else: choose another file")
        return list(reader)


def adapted(
    study: Study,
    env: str,
    demos: str | None,
    seeds: int | None,
    cpus: int,
    entries: Sequence[Entry] = (),
    trajectories: Sequence[int] | None = None,
    **protocol: Any,
) -> Study:
    """A figure's study on one environment, with other demonstrations, seeds, learners, trajectories or lengths."""
    task = replace(study.tasks[0], env=env, demos=demos or BUNDLED)
    given = {name: value for name, value in protocol.items() if value is not None}
    if seeds is not None:
        given["seeds"] = tuple(range(seeds))
    return replace(
        study,
        tasks=(task if trajectories is None else replace(task, trajectories=tuple(trajectories)),),
        algorithms=tuple(entries) or study.algorithms,
        protocol=replace(study.protocol, **given),
        hardware=Hardware(cpus=cpus),
    )
