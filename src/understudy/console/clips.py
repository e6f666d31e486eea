"""Clips: the pictures of whole episodes, drawn in a process of their own when they are asked for.

A clip is named by what it shows: SESSION-policy-3, SESSION-round-2-0 (an episode of a round) or SESSION-pair-5-left.
Names of two directories differ, so that a browser may keep pictures for good.
"""

import asyncio
import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.collect.rollouts import episode_seeds
from understudy.collect.worker import Worker
from understudy.console.protocol import Refused
from understudy.console.rounds import read_round
from understudy.console.stage import Clip, open_stage
from understudy.console.store import Store
from understudy.core.errors import UnderstudyError
from understudy.envs import Environment, GymnasiumEnvironment

MOST_BYTES = 256_000_000
"""Of pictures that are kept in memory."""


@dataclass(frozen=True)
class DrawnClip:
    pictures: list[bytes]
    total: float
    terminal: bool
    note: str

    def message(self, name: str, fps: float) -> dict[str, Any]:
        about = {"type": "clip", "clip": name, "pictures": len(self.pictures), "fps": fps}
        return {**about, "return": self.total, "terminal": self.terminal, "note": self.note}


class Clips:
    """Draws clips, one after the other, and keeps the newest."""

    def __init__(self, env: Environment | GymnasiumEnvironment, store: Store, step_timeout: float):
        self._env, self._store, self._step_timeout = env, store, step_timeout
        self.prefix = hashlib.sha256(store.token.encode()).hexdigest()[:8]
        self.pairs: dict[str, tuple[int, int]] = {}
        """Policy and seed of each clip of a pair."""
        self._drawn: OrderedDict[str, DrawnClip] = OrderedDict()
        self._drawing: dict[str, asyncio.Task[DrawnClip]] = {}
        self._worker: Worker | None = None
        self._lock = asyncio.Lock()

    def of_policy(self, number: int) -> str:
        return f"{self.prefix}-policy-{number}"

    def of_episode(self, index: int, episode: int) -> str:
        return f"{self.prefix}-round-{index}-{episode}"

    def of_pair(self, number: int, side: str) -> str:
        return f"{self.prefix}-pair-{number}-{side}"

    async def get(self, name: str) -> DrawnClip:
        """A clip, drawn now if it is not there."""
        if name in self._drawn:
            self._drawn.move_to_end(name)
            return self._drawn[name]
        request = self._request(name)
        if name not in self._drawing:
            self._drawing[name] = asyncio.create_task(self._draw(name, *request))
        return await asyncio.shield(self._drawing[name])

    async def close(self) -> None:
        for task in list(self._drawing.values()):
            task.cancel()
        if self._worker is not None:
            await asyncio.to_thread(self._worker.close)
            self._worker = None

    def _request(self, name: str) -> tuple[Any, ...]:
        """What to call for a clip. Raises if there is no such clip."""
        given = re.fullmatch(f"{self.prefix}-(policy|round)-([0-9]{{1,6}})(?:-([0-9]{{1,6}}))?", name)
        if name in self.pairs:
            policy, seed = self.pairs[name]
            return "film", seed, str(self._store.policy_file(policy))
        if given is not None and given[1] == "policy" and given[3] is None:
            file = self._store.policy_file(int(given[2]))
            if file.exists():
                return "film", 0, str(file)
        elif given is not None and given[1] == "round" and given[3] is not None:
            file = self._store.round_file(int(given[2]))
            if file.exists():
                asked, _ = read_round(file)
                if int(given[3]) < len(asked.lengths):
                    return self._episode(asked, int(given[3]))
        raise Refused("wrong-field", "there is no such clip")

    def _episode(self, asked: Any, number: int) -> tuple[Any, ...]:
        start = int(asked.lengths[:number].sum())
        rows = slice(start, start + int(asked.lengths[number]))
        steps = asked.steps
        seen = np.concatenate([steps.obs[rows], steps.next_obs[rows][-1:]])
        seed = episode_seeds(asked.seed, len(asked.lengths))[number]
        return "film_again", seed, steps.act[rows], seen, asked.rewards[rows], bool(steps.terminal[rows][-1])

    async def _draw(self, name: str, method: str, *arguments: Any) -> DrawnClip:
        try:
            async with self._lock:
                worker = self._worker or (await asyncio.to_thread(open_stage, self._env, self._step_timeout))[0]
                self._worker = worker
                try:
                    clip: Clip = await asyncio.to_thread(worker.call, method, *arguments)
                except UnderstudyError as error:
                    await asyncio.to_thread(worker.close)
                    self._worker = None
                    raise Refused("failed", str(error).splitlines()[0]) from error
            drawn = DrawnClip(*clip)
            self._drawn[name] = drawn
            while len(self._drawn) > 1 and _size(self._drawn) > MOST_BYTES:
                self._drawn.popitem(last=False)
            return drawn
        finally:
            self._drawing.pop(name, None)


def _size(drawn: OrderedDict[str, DrawnClip]) -> int:
    return sum(len(picture) for clip in drawn.values() for picture in clip.pictures)
