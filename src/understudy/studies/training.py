"""Trains the cells of a group and makes their records.

Cells with the same seeds on several numbers of trajectories train in one program, a call of `imitate`. Its policies are
evaluated while it trains (`evaluator`). A program has its own directory (`work`) and resumes from there after a kill.
Records are written to that directory, in one file, before any cell is stored, so that none is lost in between.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from understudy.core.errors import RunError
from understudy.core.progress import Bar
from understudy.core.text import quoted
from understudy.core.types import State
from understudy.data import Demonstrations
from understudy.envs import Environment, GymnasiumEnvironment, public_name
from understudy.policies.actor import Actor
from understudy.studies.evaluator import Evaluator
from understudy.studies.groups import Cell, Group
from understudy.studies.plan import Hardware
from understudy.studies.points import (
    EvalPoint,
    due_evaluation,
    due_evaluations,
    final_point,
    is_planned,
    round_steps,
)
from understudy.studies.records import FINAL, FORMAT, LONGEST
from understudy.studies.work import (
    CHECKPOINT,
    DamagedWorkError,
    FinishedCell,
    begin_program,
    program_name,
    read_records,
    remove_work,
    restart,
    split_programs,
    started_program,
    work_directories,
    write_records,
)
from understudy.train.checkpoints import has_checkpoint
from understudy.train.imitate import HOLDOUT, imitate
from understudy.train.results import Result
from understudy.train.tables import provenance

ProgressFactory = Callable[[str], AbstractContextManager[Bar]]
"""Takes a title; the context manager gives the function that reports progress. Training has the group's name."""
Stop = Callable[[], bool]
"""Asked after each round, and between programs, whether to stop there and keep the checkpoint."""


class StudyStopped(KeyboardInterrupt):
    """A study has stopped because its `Stop` said so. As after Ctrl-C, the same call continues."""


def never() -> bool:
    """A `Stop` that lets everything finish."""
    return False


def train_cells(
    group: Group,
    cells: Sequence[Cell],
    demonstrations: Demonstrations,
    env: Environment | GymnasiumEnvironment,
    work: Path,
    hardware: Hardware,
    progress: ProgressFactory,
    stop: Stop = never,
) -> Iterator[list[FinishedCell]]:
    """Train cells of a group, one program at a time, and yield each program's cells.

    The order is: programs that an earlier process finished but did not store, programs that it started, the rest. A
    started program keeps its cells even if more cells are missing now. A program's directory is removed after its cells
    were stored, that is when the caller requests the next program. Raises StudyStopped once `stop()` is true.
    """
    remaining, started = {cell.key: cell for cell in cells}, []
    for directory in work_directories(work, group.key):
        finished = read_records(directory)
        if finished is not None:
            yield finished
            remove_work(directory)
            for record, _ in finished:
                remaining.pop(record["key"], None)
    for directory in work_directories(work, group.key):
        part = started_program(directory, group, remaining)
        if part:
            started.append(part)
            for cell in part:
                del remaining[cell.key]
    for part in [*started, *split_programs(list(remaining.values()))]:
        if stop():
            raise StudyStopped
        directory = work / program_name(group, part)
        begin_program(directory, part)
        try:
            _Program(group, part, demonstrations, env, directory, hardware, progress, stop).run()
        except DamagedWorkError as error:
            restart(directory, error)
            _Program(group, part, demonstrations, env, directory, hardware, progress, stop).run()
        written = read_records(directory)
        if written is None:  # it has said why
            kept = "checkpoint" if has_checkpoint(directory / CHECKPOINT) else "evaluations"
            raise RunError(f"the records in '{directory}' cannot be read back: its {kept} stay, run the study again")
        yield written
        remove_work(directory)


def holdout_fraction(protocol: Mapping[str, Any]) -> float:
    """The fraction of demonstrated steps that is held out."""
    return HOLDOUT if protocol["holdout"] is None else float(protocol["holdout"])


class _Program:
    """One call of `imitate` with the evaluations of its policies."""

    def __init__(
        self,
        group: Group,
        cells: list[Cell],
        demonstrations: Demonstrations,
        env: Environment | GymnasiumEnvironment,
        directory: Path,
        hardware: Hardware,
        progress: ProgressFactory,
        stop: Stop,
    ):
        self.group, self.cells, self.directory, self.progress = group, cells, directory, progress
        self.hardware, self.stop = hardware, stop
        self.protocol = cells[0].config["protocol"]
        self.demonstrations, self.env = demonstrations, env
        self.algorithm = group.algorithm

    def run(self) -> None:
        """Train, evaluate, and write the records."""
        seeds = {cell.key: cell.seed for cell in self.cells}
        episodes, hardware = self.protocol["eval_episodes"], self.hardware
        evaluator = Evaluator(self.env, self.directory, episodes, hardware.cpus, hardware.step_timeout)
        with evaluator.running(seeds):
            result = self._train(evaluator)
            if result.interrupted:
                raise StudyStopped if self.stop() else KeyboardInterrupt("interrupted; the checkpoint is kept")
            self._check_evaluations(evaluator, result)
            finals = [
                final_point(self.group, cell, run.status) for cell, run in zip(self.cells, result.runs, strict=True)
            ]
            for point, actor in zip(finals, result.policies, strict=True):
                if point is not None:
                    evaluator.submit(point, actor)
            with self.progress(f"{self.group.name}: evaluating") as report:
                returns = evaluator.returns(self._stopping(report))
        by_key = {cell.key: cell for cell in self.cells}
        returns = {point: found for point, found in returns.items() if is_planned(self.group, by_key[point.key], point)}
        records = [
            make_record(self.group, cell, index, result, returns, len(self.cells))
            for index, cell in enumerate(self.cells)
        ]
        write_records(self.directory, records, [None if point is None else point.file_name for point in finals])

    def _stopping(self, report: Bar) -> Bar:
        """Progress of the evaluations, which also end if they are to stop: each is stored when it has finished."""

        def reporting(done: int, total: int, metrics: Mapping[str, float | str]) -> None:
            report(done, total, metrics)
            if done < total and self.stop():
                raise StudyStopped

        return reporting

    def _train(self, evaluator: Evaluator) -> Result:
        checkpoint, rounds = self.directory / CHECKPOINT, 0
        resumes = has_checkpoint(checkpoint)
        with self.progress(self.group.name) as report:

            def counting(done: int, total: int, metrics: dict[str, float]) -> None:
                nonlocal rounds
                rounds += 1
                report(done, total, metrics)

            try:
                return imitate(
                    self.algorithm,
                    self.demonstrations,
                    self.env,
                    expert=self.group.task.expert if "expert" in self.algorithm.card.needs else None,
                    seeds=sorted({cell.seed for cell in self.cells}),
                    episodes=sorted({cell.trajectories for cell in self.cells}),
                    holdout=holdout_fraction(self.protocol),
                    progress=counting,
                    checkpoint=checkpoint,
                    visit=self._visitor(evaluator),
                    workers=min(len(self.cells), self.hardware.cpus),
                    step_timeout=self.hardware.step_timeout,
                )
            except RunError as error:
                if resumes and rounds == 0:  # the checkpoint cannot be read
                    raise DamagedWorkError(str(error)) from error
                raise

    def _check_evaluations(self, evaluator: Evaluator, result: Result) -> None:
        """Raise if an evaluation is lost, whose policy training has left behind."""
        rounds = max((metric.shape[1] for metric in result.metrics.values()), default=0)
        evaluated = evaluator.evaluated
        for due in due_evaluations(self.group, rounds):
            for cell in self.cells:
                if EvalPoint(*due, cell.key) not in evaluated:
                    lost = f"the policy of seed {cell.seed} at {due[0]} {due[1]}"
                    raise DamagedWorkError(f"'{self.directory}' has lost {lost}")

    def _visitor(self, evaluator: Evaluator) -> Callable[[int, Callable[[], State]], bool]:
        """A callback of `imitate` that submits the current policies when an evaluation is due, and ends training."""
        spec = replace(self.demonstrations.for_task(self.env.spec, self.env.name), env=public_name(self.env)).spec

        def visit(rounds: int, states: Callable[[], State]) -> bool:
            due = due_evaluation(self.group, rounds)
            if due is not None:
                policies = jax.device_get(jax.vmap(self.algorithm.policy)(states()))
                for index, cell in enumerate(self.cells):
                    actor = Actor(jax.tree.map(lambda x, i=index: x[i], policies), spec)
                    evaluator.submit(EvalPoint(*due, cell.key), actor)
            # After the last round it changes nothing but that a checkpoint is written, from which evaluation can go on.
            return self.stop() or (self.stop is not never and rounds == self.algorithm.rounds)

        return visit


def make_record(
    group: Group, cell: Cell, index: int, result: Result, returns: Mapping[EvalPoint, np.ndarray], program_runs: int
) -> dict[str, Any]:
    """The record of a cell: run `index` of the result of `imitate`, and the returns of its evaluations."""
    run, per_round = result.runs[index], round_steps(group)
    payoffs = result.metrics.get("payoff")
    evaluations = []
    for point, scores in sorted((point, scores) for point, scores in returns.items() if point.key == cell.key):
        payoff: float | None = None
        if point.kind == FINAL:
            payoff = run.payoff
        elif payoffs is not None:
            payoff = float(payoffs[index, point.x // (per_round if point.kind == "env_steps" else 1) - 1])
        evaluations.append(
            {
                "x_kind": point.kind,
                "x": point.x,
                "steps": point.x if point.kind != "round" and per_round > 1 else None,
                "payoff": payoff if payoff is not None and np.isfinite(payoff) else None,
                "returns": [round(float(score), 6) for score in scores],
            }
        )
    queries = result.metrics.get("queries")
    about = provenance()
    about |= {name: quoted(about[name], LONGEST) for name in ("command", "device")}
    return {
        "format": FORMAT,
        "key": cell.key,
        "config": cell.config,
        "display": group.display,
        "evaluations": evaluations,
        "status": quoted(run.status, LONGEST),
        "seconds": result.config["seconds"],
        "runs_in_program": program_runs,
        "env_steps": group.algorithm.rounds * per_round if group.algorithm.schedule is not None else None,
        "queries": None if queries is None else int(np.nanmax(queries[index])),
        "provenance": {name: about[name] for name in ("command", "versions", "date", "device")},
    }
