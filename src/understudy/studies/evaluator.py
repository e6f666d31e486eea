"""Playing policies while their training goes on: in other processes, kept as they come.

    PLACE/KIND-X-STEPS-KEY.policy.npz    a policy that is to play, or has played
    PLACE/played.csv                     a line for each that has: kind, x, steps, key, returns

A policy that came but had not played when the program ended plays after a restart. Each plays from starts of its own,
by its run's seed and its time: with shared ones the means over seeds would move together. Runs of one seed have the
same starts whatever their algorithm, so that two algorithms can be compared seed by seed.
"""

import csv
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, Self

import equinox as eqx
import numpy as np

from understudy.collect.rollouts import rollout
from understudy.core.progress import Progress
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.evaluation.returns import play_named
from understudy.policies.actor import Actor
from understudy.policies.saved import load_policy


class Point(NamedTuple):
    """Which policy: that of a cell at a time, or the one it hands over."""

    kind: str
    x: int
    steps: int
    """Environment steps, rounds or trajectories by then, exactly."""
    key: str
    """The cell's."""


class Evaluator:
    """Plays policies as they come, and keeps what they return."""

    def __init__(self, env: Environment | GymnasiumEnvironment, place: Path, episodes: int, workers: int):
        self.env, self.place, self.episodes, self.workers = env, place, episodes, workers
        self._played: dict[Point, np.ndarray] = {}
        self._waiting: dict[Point, Future[np.ndarray]] = {}
        self._pool: ProcessPoolExecutor | None = None

    @contextmanager
    def working(self, seeds: dict[str, int]) -> Iterator[Self]:
        """While training goes on; `seeds` of the cells, by key."""
        self._seeds = seeds
        self._pool = players(self.env, self.workers)
        try:
            for kind, x, steps, key, *returns in self._lines():
                self._played[Point(kind, int(x), int(steps), key)] = np.array(returns, np.float64)
            for file in sorted(self.place.glob("*.policy.npz")):
                kind, x, steps, key = file.name.removesuffix(".policy.npz").split("-")
                point = Point(kind, int(x), int(steps), key)
                if point not in self._played:
                    self._play(point, load_policy(file))
            yield self
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)

    def add(self, point: Point, actor: Actor) -> None:
        for done in [point for point, waiting in self._waiting.items() if waiting.done()]:
            self._keep(done, self._waiting.pop(done).result())
        if point in self._played or point in self._waiting:
            before = self.path(point)
            if before.exists() and eqx.tree_equal(load_policy(before).policy, actor.policy):
                return
            # Training went on from before this time, in an environment that plays other episodes then.
            if point in self._waiting:
                self._waiting.pop(point).cancel()
        actor.save(self.path(point))
        self._play(point, actor)

    def path(self, point: Point) -> Path:
        return self.place / f"{point.kind}-{point.x}-{point.steps}-{point.key}.policy.npz"

    def returns(self, progress: Progress) -> dict[Point, np.ndarray]:
        """What every policy returned, once all have played."""
        total = len(self._waiting)
        for number, point in enumerate(list(self._waiting)):
            self._keep(point, self._waiting.pop(point).result())
            progress(number + 1, total, {"return": float(self._played[point].mean())})
        return self._played

    @property
    def _log(self) -> Path:
        return self.place / "played.csv"

    def _lines(self) -> list[list[str]]:
        """What is kept already. A last line that was cut off, by a full disk say, goes."""
        if not self._log.exists():
            return []
        text = self._log.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            os.truncate(self._log, len(whole))
        return [
            row for row in csv.reader(whole.decode().splitlines()) if len(row) == len(Point._fields) + self.episodes
        ]

    def _play(self, point: Point, actor: Actor) -> None:
        job = (actor.policy, self.episodes, start(self._seeds[point.key], point.steps))
        if self._pool is None:
            self._keep(point, rollout(self.env, *job).returns)
        else:
            self._waiting[point] = self._pool.submit(play_named, self.env.name, self.env.spec.horizon, job)

    def _keep(self, point: Point, returns: np.ndarray) -> None:
        with self._log.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow([*point, *returns])
        self._played[point] = returns


def start(seed: int, steps: int) -> int:
    """The seed of the episodes that a run's policy plays at a time."""
    return int(np.random.SeedSequence([seed, steps, 2]).generate_state(1)[0])


def players(env: Environment | GymnasiumEnvironment, workers: int) -> ProcessPoolExecutor | None:
    """Processes that policies play in; None where this one is as good, or no other can make the environment."""
    if not isinstance(env, GymnasiumEnvironment) or not env.registered or workers < 2:
        return None
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=begin, initargs=(os.getpid(),))


def begin(parent: int) -> None:
    """In a process that plays: Ctrl-C is its parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(parent)


def end_with(parent: int) -> None:
    """End this process when its parent has ended, however it did."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def silent(title: str) -> Any:
    """Progress that nobody watches."""
    return _silence()


@contextmanager
def _silence() -> Iterator[Progress]:
    yield lambda done, total, metrics: None
