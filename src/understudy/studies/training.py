"""Trains the cells of a group and makes their records.

Cells with the same seeds on several numbers of trajectories train in one program, a call of `imitate`. Its policies are
evaluated while it trains (`evaluator`). A program has its own directory and resumes from there after a kill -9.
Records are written to that directory, in one file, before any cell is stored, so that none is lost in between.

    WORK/GROUP-DIGEST/cells.json                     keys of the program's cells
    WORK/GROUP-DIGEST/checkpoint.npz                 the checkpoint of `imitate`
    WORK/GROUP-DIGEST/*.policy.npz, returns.csv      see `evaluator`
    WORK/GROUP-DIGEST/records.json                   the cells' records, once the program has finished
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from understudy.core.progress import Progress
from understudy.core.storage import write_json
from understudy.core.types import State
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment, public_name
from understudy.policies.actor import Actor
from understudy.policies.saved import load_policy
from understudy.studies.cells import FINAL, FORMAT
from understudy.studies.evaluator import EvalPoint, Evaluator
from understudy.studies.groups import Cell, Group
from understudy.train.imitate import HOLDOUT, imitate
from understudy.train.results import Result, provenance

ProgressFactory = Callable[[str], AbstractContextManager[Progress]]
"""Takes a title; the context manager gives the function that reports progress."""
CELLS, RECORDS = "cells.json", "records.json"


class FinishedCell(NamedTuple):
    """A cell's record and its final policy, which is None if the run diverged."""

    record: dict[str, Any]
    policy: Actor | None


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


def train_cells(
    group: Group,
    cells: Sequence[Cell],
    demonstrations: Demonstrations,
    env: Environment | GymnasiumEnvironment,
    work: Path,
    workers: int,
    progress: ProgressFactory,
) -> Iterator[list[FinishedCell]]:
    """Train cells of a group, one program at a time, and yield each program's cells.

    The order is: programs that an earlier process finished but did not store, programs that it started, the rest. A
    started program keeps its cells even if more cells are missing now. A program's directory is removed after its cells
    were stored, that is when the caller requests the next program.
    """
    remaining = {cell.key: cell for cell in cells}
    for directory in sorted(work.glob(f"{group.key}-*")):
        finished = _read_records(directory)
        if finished is not None:
            yield finished
            remove_directory(directory)
            for record, _ in finished:
                remaining.pop(record["key"], None)
    started = []
    for path in sorted(work.glob(f"{group.key}-*/{CELLS}")):
        keys = json.loads(path.read_text(encoding="utf-8"))
        if all(key in remaining for key in keys):
            started.append([remaining.pop(key) for key in keys])
    for part in [*started, *split_programs(list(remaining.values()))]:
        directory = work / program_name(group, part)
        write_json(directory / CELLS, [cell.key for cell in part])
        _Program(group, part, demonstrations, env, directory, workers, progress).run()
        yield _read_records(directory) or []
        remove_directory(directory)


def holdout_fraction(protocol: Mapping[str, Any]) -> float:
    """The fraction of demonstrated steps that is held out."""
    return HOLDOUT if protocol["holdout"] is None else float(protocol["holdout"])


def remove_directory(directory: Path) -> None:
    """Remove a program's directory. It is renamed first: a half-removed one would look like an unfinished program."""
    hidden = directory.with_name(f".{directory.name.lstrip('.')}")
    if hidden != directory:
        shutil.rmtree(hidden, ignore_errors=True)
        directory.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def program_name(group: Group, cells: Sequence[Cell]) -> str:
    """Name of a program's directory: the group's key and a digest of its cells."""
    return f"{group.key}-{hashlib.sha256(' '.join(cell.key for cell in cells).encode()).hexdigest()[:16]}"


def _read_records(directory: Path) -> list[FinishedCell] | None:
    """The cells of a finished program; None if it has not finished."""
    path = directory / RECORDS
    if not path.exists():
        return None
    return [
        FinishedCell(one["record"], None if one["policy"] is None else load_policy(directory / one["policy"]))
        for one in json.loads(path.read_text(encoding="utf-8"))
    ]


class _Program:
    """One call of `imitate` with the evaluations of its policies."""

    def __init__(
        self,
        group: Group,
        cells: list[Cell],
        demonstrations: Demonstrations,
        env: Environment | GymnasiumEnvironment,
        directory: Path,
        workers: int,
        progress: ProgressFactory,
    ):
        self.group, self.cells, self.directory, self.workers, self.progress = group, cells, directory, workers, progress
        self.protocol = cells[0].config["protocol"]
        self.demonstrations, self.env = demonstrations, env
        self.algorithm = group.algorithm

    def run(self) -> None:
        """Train, evaluate, and write the records."""
        seeds = {cell.key: cell.seed for cell in self.cells}
        evaluator = Evaluator(self.env, self.directory, self.protocol["eval_episodes"], self.workers)
        with evaluator.running(seeds):
            with self.progress(self.group.name) as report:
                result = imitate(
                    self.algorithm,
                    self.demonstrations,
                    self.env,
                    expert=self.group.task.expert if "expert" in self.algorithm.card.needs else None,
                    seeds=sorted({cell.seed for cell in self.cells}),
                    episodes=sorted({cell.trajectories for cell in self.cells}),
                    holdout=holdout_fraction(self.protocol),
                    progress=report,
                    checkpoint=self.directory / "checkpoint.npz",
                    visit=self._visitor(evaluator),
                    workers=min(len(self.cells), self.workers),
                )
            if result.interrupted:
                raise KeyboardInterrupt("interrupted; the checkpoint is kept")
            finals = [
                final_point(self.group, cell, run.status) for cell, run in zip(self.cells, result.runs, strict=True)
            ]
            for point, actor in zip(finals, result.policies, strict=True):
                if point is not None:
                    evaluator.submit(point, actor)
            with self.progress(f"{self.group.name}: evaluating") as report:
                returns = evaluator.returns(report)
        records = [
            {
                "record": make_record(self.group, self.cells[index], index, result, returns, len(self.cells)),
                "policy": None if point is None else evaluator.path(point).name,
            }
            for index, point in enumerate(finals)
        ]
        write_json(self.directory / RECORDS, records)

    def _visitor(self, evaluator: Evaluator) -> Callable[[int, Callable[[], State]], None]:
        """A callback of `imitate` that submits the current policies when an evaluation is due."""
        spec = replace(self.demonstrations.for_task(self.env.spec, self.env.name), env=public_name(self.env)).spec

        def visit(rounds: int, states: Callable[[], State]) -> None:
            due = due_evaluation(self.group, rounds)
            if due is None:
                return
            policies = jax.device_get(jax.vmap(self.algorithm.policy)(states()))
            for index, cell in enumerate(self.cells):
                actor = Actor(jax.tree.map(lambda x, i=index: x[i], policies), spec)
                evaluator.submit(EvalPoint(*due, cell.key), actor)

        return visit


def make_record(
    group: Group, cell: Cell, index: int, result: Result, returns: Mapping[EvalPoint, np.ndarray], program_runs: int
) -> dict[str, Any]:
    """The record of a cell: run `index` of the result of `imitate`, and the returns of its evaluations."""
    run, round_steps = result.runs[index], _round_steps(group)
    payoffs = result.metrics.get("payoff")
    evaluations = []
    for point, scores in sorted((point, scores) for point, scores in returns.items() if point.key == cell.key):
        payoff: float | None = None
        if point.kind == FINAL:
            payoff = run.payoff
        elif payoffs is not None:
            payoff = float(payoffs[index, point.exact_x // (round_steps if point.kind == "env_steps" else 1) - 1])
        evaluations.append(
            {
                "x_kind": point.kind,
                "x": point.x,
                "steps": point.exact_x if point.kind != "round" and round_steps > 1 else None,
                "payoff": payoff if payoff is not None and np.isfinite(payoff) else None,
                "returns": [round(float(score), 6) for score in scores],
            }
        )
    queries = result.metrics.get("queries")
    about = provenance()
    return {
        "format": FORMAT,
        "key": cell.key,
        "config": cell.config,
        "display": group.display,
        "evaluations": evaluations,
        "status": run.status,
        "seconds": result.config["seconds"],
        "runs_in_program": program_runs,
        "env_steps": group.algorithm.rounds * round_steps if group.algorithm.schedule is not None else None,
        "queries": None if queries is None else int(np.nanmax(queries[index])),
        "provenance": {name: about[name] for name in ("command", "versions", "date", "device")},
    }


def final_point(group: Group, cell: Cell, status: str) -> EvalPoint | None:
    """The evaluation of a run's final policy, at the run's total of steps or rounds; None if the run diverged.

    For an offline algorithm x is the number of trajectories.
    """
    if status.startswith("diverged"):
        return None
    if "environment" not in group.algorithm.card.needs:
        return EvalPoint(FINAL, cell.trajectories, cell.trajectories, cell.key)
    total, every = group.algorithm.rounds * _round_steps(group), cell.config["protocol"]["eval_every"]
    return EvalPoint(FINAL, total if every is None else max(total // every * every, every), total, cell.key)


def due_evaluation(group: Group, rounds: int) -> tuple[str, int, int] | None:
    """Kind, x and exact x of the evaluation due after this many rounds, or None.

    An evaluation is due after the first round that reaches a multiple of eval_every (or eval_every_rounds).
    """
    protocol = group.cells[0].config["protocol"]
    every, every_rounds = protocol["eval_every"], protocol["eval_every_rounds"]
    if every is None and every_rounds is None:
        return None
    kind, interval, per_round = (
        ("round", every_rounds, 1) if every is None else ("env_steps", every, _round_steps(group))
    )
    exact_x = rounds * per_round
    if exact_x // interval == (exact_x - per_round) // interval:
        return None
    return kind, exact_x // interval * interval, exact_x


def _round_steps(group: Group) -> int:
    """Environment steps of a run in one round; 1 for algorithms without a schedule."""
    schedule = group.algorithm.schedule
    return 1 if schedule is None else schedule.updates * schedule.update_steps
