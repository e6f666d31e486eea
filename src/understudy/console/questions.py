"""The questions of the newest round, and what the person says. Each answer is on the disk before it counts."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from understudy.console.choosing import WORDS, Chosen, reason
from understudy.console.clips import Clips
from understudy.console.protocol import Refused, action_of, plain_action
from understudy.console.rounds import Said, read_round
from understudy.console.settings import Settings
from understudy.console.store import Store
from understudy.core.types import ActionSpace
from understudy.experts.respondent import AskedRound

Tell = Callable[[Any, dict[str, Any]], None]
MOST_SHOWN = 64


class Questions:
    """`closed` is called when the questions of the round are over."""

    def __init__(self, store: Store, settings: Settings, space: ActionSpace, clips: Clips, tell: Tell):
        self._store, self._settings, self._clips, self._tell = store, settings, clips, tell
        self._action = action_of(space)
        self.closed: Callable[[int], None] = lambda number: None
        self._asked: AskedRound | None = None
        self._chosen = Chosen(np.zeros(0, int), np.zeros(0))
        self._said = Said({}, set())
        self._spent_before = 0
        rounds = store.rounds()
        if rounds:
            self.open_round(rounds[-1])

    @property
    def _number(self) -> int:
        """The number of the round, from 1; the first one has no questions."""
        return 0 if self._asked is None else self._asked.round + 1

    def open_round(self, number: int) -> None:
        """Show the questions of a round, with what was said before."""
        self._spent_before = 0
        for earlier in self._store.rounds():
            if earlier < number:
                self._spent_before += len(Said.of(self._store.said(earlier).read(), self._action).answers)
        self._asked, self._chosen = read_round(self._store.round_file(number))
        self._said = Said.of(self._store.said(number).read(), self._action)
        message = self.message()
        assert message is not None
        self._tell("questions", message)

    @property
    def spent(self) -> int:
        """Answers of all rounds."""
        return self._spent_before + len(self._said.answers)

    @property
    def pending(self) -> int:
        return len(self._chosen.rows) - len(self._said.answers) - len(self._said.skipped)

    def state(self) -> dict[str, Any]:
        return {
            "round": None if self._asked is None else self._number,
            "answered": len(self._said.answers),
            "skipped": len(self._said.skipped),
            "pending": 0 if self._said.finished else self.pending,
            "spent": self.spent,
            "budget": self._settings.budget,
        }

    def message(self) -> dict[str, Any] | None:
        """All questions of the round; None before the first."""
        asked = self._asked
        if asked is None:
            return None
        starts = np.cumsum(asked.lengths) - asked.lengths
        totals = np.add.reduceat(asked.rewards.astype(np.float64), starts)
        return {
            "type": "questions",
            "round": self._number,
            "open": not self._said.finished,
            "reason": WORDS[self._settings.choose],
            "episodes": [
                {"clip": self._clips.of_episode(self._number, episode), "steps": int(length), "return": float(total)}
                for episode, (length, total) in enumerate(zip(asked.lengths, totals, strict=True))
            ],
            "questions": [self._question(int(row)) for row in self._chosen.rows],
        }

    async def answer(self, question: str, action: Any) -> None:
        row = self._row(question)
        budget = self._settings.budget
        if budget is not None and row not in self._said.answers and self.spent >= budget:
            raise Refused("not-now", f"the budget of {budget} answers is spent: finish the round")
        await self._say({"row": row, "action": plain_action(action)})

    async def skip(self, question: str) -> None:
        await self._say({"row": self._row(question), "skip": True})

    async def reopen(self, question: str) -> None:
        await self._say({"row": self._row(question), "reopen": True})

    async def finish(self) -> None:
        """No more answers in this round."""
        if self._asked is None or self._said.finished:
            raise Refused("not-now", "there are no open questions")
        await self._write({"finish": True})
        message = self.message()
        assert message is not None
        self._tell("questions", message)
        self.closed(self._number)

    async def _say(self, line: dict[str, Any]) -> None:
        await self._write(line)
        self._tell(("question", line["row"]), {"type": "question", **self._question(line["row"])})
        budget = self._settings.budget
        if self.pending == 0 or (budget is not None and self.spent >= budget):
            await self.finish()

    async def _write(self, line: dict[str, Any]) -> None:
        assert self._asked is not None
        await asyncio.to_thread(self._store.said(self._number).append, line)
        self._said.add(line, self._action)

    def _row(self, question: str) -> int:
        """The row of a question that is open."""
        asked = self._asked
        index, _, row = question.partition("-")
        if asked is None or int(index) != self._number or int(row) not in self._chosen.rows:
            raise Refused("wrong-field", f"there is no question {question}")
        if self._said.finished:
            raise Refused("not-now", "the questions of this round are over")
        return int(row)

    def _question(self, row: int) -> dict[str, Any]:
        asked = self._asked
        assert asked is not None
        ends = np.cumsum(asked.lengths)
        episode = int(np.searchsorted(ends, row, side="right"))
        distance = float(self._chosen.distances[np.flatnonzero(self._chosen.rows == row)[0]])
        answered = row in self._said.answers
        return {
            "question": f"{self._number}-{row}",
            "episode": episode,
            "t": row - int(ends[episode] - asked.lengths[episode]),
            "status": "answered" if answered else "skipped" if row in self._said.skipped else "pending",
            "reason": reason(distance, asked.gated),
            "learner": plain_action(asked.steps.act[row]),
            "action": plain_action(self._said.answers[row]) if answered else None,
            "observation": np.asarray(asked.steps.obs[row], np.float64)[:MOST_SHOWN].tolist(),
        }
