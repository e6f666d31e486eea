"""When the policies of a run are evaluated."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from understudy.studies.groups import Cell, Group
from understudy.studies.records import FINAL, X_KINDS

POLICY_NAME = re.compile(rf"({'|'.join(X_KINDS)})-(\d{{1,16}}-)?(\d{{1,16}})-([0-9a-f]{{16}})\.policy\.npz")
"""Earlier versions wrote another number before x: x rounded down to a multiple of eval_every."""


class EvalPoint(NamedTuple):
    """One evaluation of one cell."""

    kind: str
    """A value of `records.X_KINDS`."""
    x: int
    """Environment steps, rounds or trajectories at that time: the position on the x axis."""
    key: str
    """Key of the cell."""

    @property
    def file_name(self) -> str:
        """Name of the file of its policy."""
        return f"{self.kind}-{self.x}-{self.key}.policy.npz"

    @classmethod
    def from_file_name(cls, name: str) -> "EvalPoint | None":
        """The inverse of `file_name`; None for the name of another file."""
        match = POLICY_NAME.fullmatch(name)
        return None if match is None or match[2] else cls(match[1], int(match[3]), match[4])


def final_point(group: Group, cell: Cell, status: str) -> EvalPoint | None:
    """The evaluation of a run's final policy, at the run's total of steps or rounds; None if the run diverged.

    For an offline algorithm x is the number of trajectories.
    """
    if status.startswith("diverged"):
        return None
    if "environment" not in group.algorithm.card.needs:
        return EvalPoint(FINAL, cell.trajectories, cell.key)
    return EvalPoint(FINAL, group.algorithm.rounds * round_steps(group), cell.key)


def due_evaluation(group: Group, rounds: int) -> tuple[str, int] | None:
    """Kind and x of the evaluation due after this many rounds, or None.

    An evaluation is due after the first round that reaches a multiple of eval_every (or eval_every_rounds). Its x is
    the number of environment steps (or rounds) so far, which may be more than that multiple: a round is not split.
    """
    planned = _schedule(group)
    if planned is None:
        return None
    kind, interval, per_round = planned
    x = rounds * per_round
    return None if x // interval == (x - per_round) // interval else (kind, x)


def due_evaluations(group: Group, rounds: int) -> Iterator[tuple[str, int]]:
    """The evaluations that are due in this many rounds."""
    planned = _schedule(group)
    if planned is not None:
        _, interval, per_round = planned
        for after in sorted({-(-x // per_round) for x in range(interval, rounds * per_round + 1, interval)}):
            due = due_evaluation(group, after)
            if due is not None:
                yield due


def is_planned(group: Group, cell: Cell, point: EvalPoint) -> bool:
    """Whether an evaluation of a cell belongs to its group's schedule."""
    if point == final_point(group, cell, "finished"):
        return True
    planned = _schedule(group)
    if planned is None:
        return False
    rounds, rest = divmod(point.x, planned[2])
    return rest == 0 and 1 <= rounds <= group.algorithm.rounds and due_evaluation(group, rounds) == point[:2]


def round_steps(group: Group) -> int:
    """Environment steps of a run in one round; 1 for algorithms without a schedule."""
    schedule = group.algorithm.schedule
    return 1 if schedule is None else schedule.updates * schedule.update_steps


def _schedule(group: Group) -> tuple[str, int, int] | None:
    """Kind of the evaluations during training, the interval of x between them, and x of one round."""
    protocol = group.cells[0].config["protocol"]
    every, every_rounds = protocol["eval_every"], protocol["eval_every_rounds"]
    if every is not None:
        return "env_steps", every, round_steps(group)
    return None if every_rounds is None else ("round", every_rounds, 1)
