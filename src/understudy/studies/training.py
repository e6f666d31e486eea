"""Training the cells of a group: from what is asked to records that can be stored.

Cells that want the same seeds on several numbers of trajectories are one program. While it trains, its policies play
(`evaluator`); it keeps its place in a directory of its own, and goes on from there after a kill -9. What it has come to
is written there, whole, before any cell is stored, so that a death in between loses nothing.

    WORK/GROUP-NAME/cells.json                    the keys of the program's cells
    WORK/GROUP-NAME/checkpoint.npz                training, as `imitate` keeps its place
    WORK/GROUP-NAME/*.policy.npz, played.csv      see `evaluator`
    WORK/GROUP-NAME/records.json                  the cells' records, once all is done
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
from understudy.studies.cells import FORMAT, FINAL
from understudy.studies.evaluator import Evaluator, Point
from understudy.studies.groups import Cell, Group
from understudy.train.imitate import HOLDOUT, imitate
from understudy.train.results import Result, provenance

Report = Callable[[str], AbstractContextManager[Progress]]
CELLS, RECORDS = "cells.json", "records.json"


class Done(NamedTuple):
    """A finished cell: its record, and the policy it hands over; none where it diverged."""

    record: dict[str, Any]
    policy: Actor | None


def programs(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells by what `imitate` can train at once: every seed on every number of trajectories."""
    by_count: dict[int, list[Cell]] = {}
    for cell in cells:
        by_count.setdefault(cell.trajectories, []).append(cell)
    by_seeds: dict[tuple[int, ...], list[Cell]] = {}
    for _, found in sorted(by_count.items()):
        found = sorted(found, key=lambda cell: cell.seed)
        by_seeds.setdefault(tuple(cell.seed for cell in found), []).extend(found)
    return list(by_seeds.values())


def trained(
    group: Group,
    cells: Sequence[Cell],
    demonstrations: Demonstrations,
    env: Environment | GymnasiumEnvironment,
    work: Path,
    workers: int,
    progress: Report,
) -> Iterator[list[Done]]:
    """Train what is asked, a program at a time. A program's place is removed when the next is asked for.

    First come programs that an earlier process had finished but not stored, then those that it had begun, as they were
    even if other cells are asked for as well now, then the rest.
    """
    left = {cell.key: cell for cell in cells}
    for place in sorted(work.glob(f"{group.key}-*")):
        finished = _read(place)
        if finished is not None:
            yield finished
            remove(place)
            for record, _ in finished:
                left.pop(record["key"], None)
    parts = []
    for path in sorted(work.glob(f"{group.key}-*/{CELLS}")):
        keys = json.loads(path.read_text(encoding="utf-8"))
        if all(key in left for key in keys):
            parts.append([left.pop(key) for key in keys])
    for part in [*parts, *programs(list(left.values()))]:
        place = work / named(group, part)
        write_json(place / CELLS, [cell.key for cell in part])
        _Program(group, part, demonstrations, env, place, workers, progress).run()
        yield _read(place) or []
        remove(place)


def called(group: Group) -> str:
    """A group as a person calls it."""
    return f"{group.entry.label} on {group.task.env}"


def kept_aside(protocol: Mapping[str, Any]) -> float:
    """The fraction of demonstrated steps that are held out."""
    return HOLDOUT if protocol["holdout"] is None else float(protocol["holdout"])


def remove(place: Path) -> None:
    """A program's place, at once: one that is half removed would be taken for one that is half done."""
    gone = place.with_name(f".{place.name.lstrip('.')}")
    if gone != place:
        shutil.rmtree(gone, ignore_errors=True)
        place.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def named(group: Group, cells: Sequence[Cell]) -> str:
    """The name of a program's place: the group's, and what tells its cells from others of the group."""
    return f"{group.key}-{hashlib.sha256(' '.join(cell.key for cell in cells).encode()).hexdigest()[:16]}"


def _read(place: Path) -> list[Done] | None:
    """What a program came to; None where it is not at its end."""
    path = place / RECORDS
    if not path.exists():
        return None
    return [
        Done(one["record"], None if one["policy"] is None else load_policy(place / one["policy"]))
        for one in json.loads(path.read_text(encoding="utf-8"))
    ]


class _Program:
    """One call of `imitate`."""

    def __init__(
        self,
        group: Group,
        cells: list[Cell],
        demonstrations: Demonstrations,
        env: Environment | GymnasiumEnvironment,
        place: Path,
        workers: int,
        progress: Report,
    ):
        self.group, self.cells, self.place, self.workers, self.progress = group, cells, place, workers, progress
        self.protocol = cells[0].asked["protocol"]
        self.demonstrations, self.env = demonstrations, env
        self.algorithm = group.algorithm

    def run(self) -> None:
        keys = {cell.key: cell.seed for cell in self.cells}
        title = called(self.group)
        with Evaluator(self.env, self.place, self.protocol["episodes"], self.workers).working(keys) as evaluator:
            with self.progress(title) as report:
                result = imitate(
                    self.algorithm,
                    self.demonstrations,
                    self.env,
                    expert=self.group.task.expert if "expert" in self.algorithm.card.needs else None,
                    seeds=sorted({cell.seed for cell in self.cells}),
                    episodes=sorted({cell.trajectories for cell in self.cells}),
                    holdout=kept_aside(self.protocol),
                    progress=report,
                    checkpoint=self.place / "checkpoint.npz",
                    visit=self._visitor(evaluator),
                    workers=min(len(self.cells), self.workers),
                )
            if result.interrupted:
                raise KeyboardInterrupt("training keeps its place")
            ends = [handed(self.group, cell, run.status) for cell, run in zip(self.cells, result.runs, strict=True)]
            for point, actor in zip(ends, result.policies, strict=True):
                if point is not None:
                    evaluator.add(point, actor)
            with self.progress(f"{title}: playing what is left") as report:
                returns = evaluator.returns(report)
        records = [
            {
                "record": record(self.group, self.cells[index], index, result, returns, len(self.cells)),
                "policy": None if point is None else evaluator.path(point).name,
            }
            for index, point in enumerate(ends)
        ]
        write_json(self.place / RECORDS, records)

    def _visitor(self, evaluator: Evaluator) -> Callable[[int, Callable[[], State]], None]:
        """When it is time, the policies as they are."""
        spec = replace(self.demonstrations.for_task(self.env.spec, self.env.name), env=public_name(self.env)).spec

        def visit(rounds: int, states: Callable[[], State]) -> None:
            at = due(self.group, rounds)
            if at is None:
                return
            policies = jax.device_get(jax.vmap(self.algorithm.policy)(states()))
            for index, cell in enumerate(self.cells):
                actor = Actor(jax.tree.map(lambda x, i=index: x[i], policies), spec)
                evaluator.add(Point(*at, cell.key), actor)

        return visit


def record(
    group: Group, cell: Cell, index: int, result: Result, returns: Mapping[Point, np.ndarray], together: int
) -> dict[str, Any]:
    """What is stored of a cell: run `index` of what `imitate` returned, and what its policies returned."""
    run, a_round = result.runs[index], _a_round(group)
    payoffs = result.metrics.get("payoff")
    rows = []
    for point, scores in sorted((point, scores) for point, scores in returns.items() if point.key == cell.key):
        payoff: float | None = None
        if point.kind == FINAL:
            payoff = run.payoff
        elif payoffs is not None:
            payoff = float(payoffs[index, point.steps // (a_round if point.kind == "env_steps" else 1) - 1])
        rows.append(
            {
                "x_kind": point.kind,
                "x": point.x,
                "steps": point.steps if point.kind != "round" and a_round > 1 else None,
                "payoff": payoff if payoff is not None and np.isfinite(payoff) else None,
                "returns": [round(float(score), 6) for score in scores],
            }
        )
    queries = result.metrics.get("queries")
    about = provenance()
    return {
        "format": FORMAT,
        "key": cell.key,
        "asked": cell.asked,
        "shown": group.shown,
        "rows": rows,
        "status": run.status,
        "seconds": result.config["seconds"],
        "together": together,
        "env_steps": group.algorithm.rounds * a_round if group.algorithm.schedule is not None else None,
        "queries": None if queries is None else int(np.nanmax(queries[index])),
        "made": {name: about[name] for name in ("command", "versions", "date", "device")},
    }


def handed(group: Group, cell: Cell, status: str) -> Point | None:
    """The policy that a run returns, at what the whole run took: steps, rounds, or trajectories to learn from.

    None where it diverged.
    """
    if status.startswith("diverged"):
        return None
    if "environment" not in group.algorithm.card.needs:
        return Point(FINAL, cell.trajectories, cell.trajectories, cell.key)
    total, every = group.algorithm.rounds * _a_round(group), cell.asked["protocol"]["every"]
    return Point(FINAL, total if every is None else max(total // every * every, every), total, cell.key)


def due(group: Group, rounds: int) -> tuple[str, int, int] | None:
    """Kind, place on the axis and exact number of the evaluation that a round's end is the time for, if it is.

    It is the first round that reaches a multiple of what the protocol says.
    """
    protocol = group.cells[0].asked["protocol"]
    every, by_rounds = protocol["every"], protocol["rounds_every"]
    if every is None and by_rounds is None:
        return None
    kind, between, a_round = ("round", by_rounds, 1) if every is None else ("env_steps", every, _a_round(group))
    steps = rounds * a_round
    return None if steps // between == (steps - a_round) // between else (kind, steps // between * between, steps)


def _a_round(group: Group) -> int:
    """Environment steps of a run in a round; 1 where it does not step."""
    schedule = group.algorithm.schedule
    return 1 if schedule is None else schedule.updates * schedule.update_steps
