"""A small study's directory without training: one group is stored, another has a work directory."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

import understudy as us
from support.mutations import mutate_directory, mutate_file
from understudy.core.errors import RunError
from understudy.core.reader import Expected, FileReader
from understudy.policies import deterministic_policy
from understudy.studies import Store, Study, training
from understudy.studies.points import final_point
from understudy.studies.records import FORMAT, record_checksum
from understudy.studies.returns import ReturnsFile
from understudy.studies.running import Plan
from understudy.studies.work import CHECKPOINT, begin_program, program_name, write_records
from understudy.train.results import Result, Run

TEXT = """
[protocol]
seeds = 2
eval_episodes = 2
holdout = 0.0
[[task]]
env = "Pendulum"
trajectories = 1
[[algorithm]]
name = "bc"
label = "one"
settings = { rounds = 1, gradient_steps = 1, hidden = [4] }
[[algorithm]]
name = "bc"
label = "two"
settings = { rounds = 1, gradient_steps = 1, hidden = [4], lr = 1e-4 }
"""
OWN = ("study/notes.txt", "study/work/notes.txt", "thesis.tex")
"""Files of the user, which no command may touch."""


def policy(seed: int = 0) -> us.Actor:
    env = us.make("Pendulum")
    return us.Actor(deterministic_policy(jax.random.key(seed), env.spec, (4,)), env.spec)


def record(group: Any, cell: Any) -> dict[str, Any]:
    """The record of a cell, as if it had been trained."""
    point = final_point(group, cell, "finished")
    assert point is not None
    row = {"x_kind": point.kind, "x": point.x, "steps": None, "payoff": 0.5, "returns": [-150.0 - cell.seed, -160.5]}
    return {
        "format": FORMAT,
        "key": cell.key,
        "config": cell.config,
        "display": group.display,
        "evaluations": [row],
        "status": "finished",
        "seconds": 1.5,
        "runs_in_program": 2,
        "env_steps": None,
        "queries": None,
        "provenance": {"command": "understudy", "versions": {"jax": "1"}, "date": "2026-01-01", "device": "cpu"},
    }


def make_directory(folder: Path, finished: bool = False) -> Study:
    """Write FOLDER/study and files of the user. `finished`: the second group is trained, but not stored."""
    (folder / "s.toml").write_text(TEXT)
    study, directory = Study.load(folder / "s.toml"), folder / "study"
    store, plan = Store(directory), Plan.load(study)
    store.begin(study.to_dict())
    stored, begun = plan.groups
    for cell in stored.cells:
        store.write(record(stored, cell), policy(cell.seed))
    work = directory / "work" / program_name(begun, begun.cells)
    begin_program(work, begun.cells)
    np.savez(work / CHECKPOINT, state=np.arange(3.0))
    points = [final_point(begun, cell, "finished") for cell in begun.cells]
    returns = ReturnsFile(work, 2)
    for cell, point in zip(begun.cells, points, strict=True):
        assert point is not None
        policy(cell.seed).save(work / point.file_name)
        returns.add(point, np.array([-150.0, -160.5]))
    if finished:
        write_records(work, [record(begun, cell) for cell in begun.cells], [p and p.file_name for p in points])
    (directory / "failures").mkdir()
    (directory / "failures" / f"{begun.key}.txt").write_text("it failed\n\nTraceback\n")
    store.claim(begun.key).release()
    os.utime(directory / "failures" / f"{begun.key}.txt", (time.time(), time.time() - 3600))
    for name in OWN:
        (folder / name).write_text("mine")
    return study


def damage(folder: Path, seed: int) -> str:
    """Damage FOLDER/study. Every third seed forges the checksum of a damaged cell."""
    directory = folder / "study"
    if seed % 3:
        own = {name: (folder / name) for name in OWN}
        for path in own.values():
            path.rename(folder / f"{path.parent.name}-{path.name}")
        done = mutate_directory(directory, seed)
        for path in own.values():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
            path.parent.mkdir(exist_ok=True)
            (folder / f"{path.parent.name}-{path.name}").rename(path)
        return done
    cells = sorted((directory / "cells").glob("*.json"))
    path = cells[seed // 3 % len(cells)]
    done = mutate_file(path, seed)
    try:
        content = json.loads(path.read_bytes())
        path.write_text(json.dumps({**content, "checksum": record_checksum(content)}))
    except (ValueError, TypeError, RecursionError):
        return done
    return f"{done}, with its checksum"


def fake_imitate(algorithm: Any, demonstrations: Any, env: Any, **named: Any) -> Result:
    """As `imitate`, which trains for no time at all. It refuses a checkpoint that is damaged."""
    path = named["checkpoint"]
    if path.exists() or path.is_symlink():
        arrays = FileReader(path, "a checkpoint", "remove it").npz(lambda name: Expected("f", (3,), True), ["state"])
        if not np.array_equal(arrays["state"], np.arange(3.0)):
            raise RunError(f"'{path}' is a checkpoint of another run: remove it")
    runs = [Run(seed, count, "finished", 0.5) for count in named["episodes"] for seed in named["seeds"]]
    return Result({"seconds": 0.1}, runs, [policy(run.seed) for run in runs], {}, False, env)


@contextmanager
def without_training() -> Iterator[None]:
    """Replace `imitate` in studies by `fake_imitate`."""
    real = training.imitate
    training.imitate = fake_imitate
    try:
        yield
    finally:
        training.imitate = real
