"""The file of a round: the learner's episodes, and the states that the person is asked about.

The training process writes it once; the server and later trainings read it. `rounds/ROUND.jsonl` has what the person
said: lines {"row": 17, "action": [...]}, {"row": 17, "skip": true}, {"row": 17, "reopen": true} and, when the questions
of the round are over, {"finish": true}.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from understudy.console.choosing import Chosen
from understudy.core.errors import RunError
from understudy.core.reader import NUMBERS, Expected, FileReader
from understudy.core.storage import write_npz
from understudy.core.types import Transition
from understudy.experts.respondent import AskedRound

STEP = Expected(NUMBERS)
PREFIX = "step_"
FIELDS = ("lengths", "rewards", "candidates", "gated", "seed", "rows", "distances")


@dataclass
class Said:
    """What the person said about a round's states: row → action, or None for a skipped one."""

    answers: dict[int, Any]
    skipped: set[int]
    finished: bool = False

    @classmethod
    def of(cls, lines: list[dict[str, Any]], action: Callable[[Any], Any]) -> "Said":
        said = cls({}, set())
        try:
            for line in lines:
                said.add(line, action)
        except ValueError as error:
            raise RunError(f"an answer of the console does not fit the environment ({error})") from error
        return said

    def add(self, line: dict[str, Any], action: Callable[[Any], Any]) -> None:
        """Apply one line of the file."""
        if "finish" in line:
            self.finished = True
            return
        row = line["row"]
        self.answers.pop(row, None)
        self.skipped.discard(row)
        if "action" in line:
            self.answers[row] = action(line["action"])
        elif "skip" in line:
            self.skipped.add(row)


def write_round(path: Path, asked: AskedRound, chosen: Chosen) -> None:
    steps = {f"{PREFIX}{name}": np.asarray(column) for name, column in asked.steps._asdict().items()}
    fields = {
        "lengths": asked.lengths,
        "rewards": asked.rewards,
        "candidates": asked.candidates,
        "gated": np.array(asked.gated),
        "seed": np.array(asked.seed),
        "rows": chosen.rows,
        "distances": chosen.distances,
    }
    write_npz(path, {**steps, **fields})


def read_round(path: Path) -> tuple[AskedRound, Chosen]:
    names = [f"{PREFIX}{name}" for name in Transition._fields] + list(FIELDS)
    arrays = FileReader(path, "a round of a console", "remove it: its answers stay in the file .jsonl").npz(
        lambda name: STEP if name in names else None, names
    )
    steps = Transition(*(arrays[f"{PREFIX}{name}"] for name in Transition._fields))
    asked = AskedRound(
        int(path.stem) - 1,  # rounds are counted from 0 in training, from 1 here
        steps,
        arrays["lengths"],
        arrays["rewards"],
        arrays["candidates"],
        bool(arrays["gated"]),
        int(arrays["seed"]),
    )
    return asked, Chosen(arrays["rows"], arrays["distances"])
