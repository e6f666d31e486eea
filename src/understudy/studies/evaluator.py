"""Evaluates policies in other processes while training continues, and stores their returns as they arrive.

    DIR/KIND-X-EXACT-KEY.policy.npz    a policy that was submitted for evaluation
    DIR/returns.csv                    one row per finished evaluation: kind, x, exact x, key, returns

A policy that was submitted but not evaluated when the process ended is evaluated after a restart. The seed of its
episodes depends on the run's seed and the time of the evaluation only. So two evaluations never share initial states,
which would make an interval over seeds too narrow, and runs of one seed start from the same states in every algorithm,
which allows paired comparisons.
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
from understudy.evaluation.returns import rollout_by_name
from understudy.policies.actor import Actor
from understudy.policies.saved import load_policy

RETURNS = "returns.csv"


class EvalPoint(NamedTuple):
    """One evaluation of one cell."""

    kind: str
    """A value of `cells.X_KINDS`."""
    x: int
    """Position on the report's x axis: a multiple of the protocol's eval_every."""
    exact_x: int
    """Environment steps, rounds or trajectories at that time, not rounded to the x axis."""
    key: str
    """Key of the cell."""


class Evaluator:
    """Evaluates submitted policies and keeps their returns in a directory."""

    def __init__(self, env: Environment | GymnasiumEnvironment, directory: Path, episodes: int, workers: int):
        self.env, self.directory, self.episodes, self.workers = env, directory, episodes, workers
        self._returns: dict[EvalPoint, np.ndarray] = {}
        self._pending: dict[EvalPoint, Future[np.ndarray]] = {}
        self._pool: ProcessPoolExecutor | None = None

    @contextmanager
    def running(self, seeds: dict[str, int]) -> Iterator[Self]:
        """Start the processes and resume earlier evaluations. `seeds`: cell key → seed."""
        self._seeds = seeds
        self._pool = rollout_pool(self.env, self.workers)
        try:
            for kind, x, exact_x, key, *returns in self._read_rows():
                self._returns[EvalPoint(kind, int(x), int(exact_x), key)] = np.array(returns, np.float64)
            for file in sorted(self.directory.glob("*.policy.npz")):
                kind, x, exact_x, key = file.name.removesuffix(".policy.npz").split("-")
                point = EvalPoint(kind, int(x), int(exact_x), key)
                if point not in self._returns:
                    self._start(point, load_policy(file))
            yield self
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, point: EvalPoint, actor: Actor) -> None:
        """Evaluate a policy, unless the same policy was already submitted for this point."""
        for done in [point for point, future in self._pending.items() if future.done()]:
            self._store(done, self._pending.pop(done).result())
        if point in self._returns or point in self._pending:
            before = self.path(point)
            if before.exists() and eqx.tree_equal(load_policy(before).policy, actor.policy):
                return
            # Training resumed from an earlier checkpoint and reached another policy, because Gymnasium environments
            # restart with new episodes.
            if point in self._pending:
                self._pending.pop(point).cancel()
        actor.save(self.path(point))
        self._start(point, actor)

    def path(self, point: EvalPoint) -> Path:
        """File of the policy at a point."""
        return self.directory / f"{point.kind}-{point.x}-{point.exact_x}-{point.key}.policy.npz"

    def returns(self, progress: Progress) -> dict[EvalPoint, np.ndarray]:
        """Wait for all evaluations. Returns the episode returns of each."""
        total = len(self._pending)
        for number, point in enumerate(list(self._pending)):
            self._store(point, self._pending.pop(point).result())
            progress(number + 1, total, {"return": float(self._returns[point].mean())})
        return self._returns

    @property
    def _csv(self) -> Path:
        return self.directory / RETURNS

    def _read_rows(self) -> list[list[str]]:
        """Rows of the CSV file. An incomplete last row, for example after a full disk, is removed."""
        if not self._csv.exists():
            return []
        text = self._csv.read_bytes()
        complete = text[: text.rfind(b"\n") + 1]
        if complete != text:
            os.truncate(self._csv, len(complete))
        columns = len(EvalPoint._fields) + self.episodes
        return [row for row in csv.reader(complete.decode().splitlines()) if len(row) == columns]

    def _start(self, point: EvalPoint, actor: Actor) -> None:
        job = (actor.policy, self.episodes, rollout_seed(self._seeds[point.key], point.exact_x))
        if self._pool is None:
            self._store(point, rollout(self.env, *job).returns)
        else:
            self._pending[point] = self._pool.submit(rollout_by_name, self.env.name, self.env.spec.horizon, job)

    def _store(self, point: EvalPoint, returns: np.ndarray) -> None:
        with self._csv.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow([*point, *returns])
        self._returns[point] = returns


def rollout_seed(seed: int, exact_x: int) -> int:
    """The seed of the evaluation episodes of a run at a time."""
    return int(np.random.SeedSequence([seed, exact_x, 2]).generate_state(1)[0])


def rollout_pool(env: Environment | GymnasiumEnvironment, workers: int) -> ProcessPoolExecutor | None:
    """Processes for rollouts. None for JAX environments, for one worker, and if only this process can make the env."""
    if not isinstance(env, GymnasiumEnvironment) or not env.registered or workers < 2:
        return None
    initargs = (os.getpid(),)
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_init_worker, initargs=initargs)


def _init_worker(parent: int) -> None:
    """Ignore Ctrl-C, which the parent handles, and exit with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_with_parent(parent)


def exit_with_parent(parent: int) -> None:
    """End this process when its parent has ended, even by kill -9."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def no_progress(title: str) -> Any:
    """A ProgressFactory that shows nothing."""
    return _no_progress()


@contextmanager
def _no_progress() -> Iterator[Progress]:
    yield lambda done, total, metrics: None
