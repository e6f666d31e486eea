"""Evaluates policies in other processes while training continues, and stores their returns as they arrive.

    DIR/KIND-X-KEY.policy.npz    a policy that was submitted for evaluation
    DIR/returns.csv              one row per finished evaluation (`returns`)

A policy that was submitted but not evaluated when the process ended is evaluated after a restart. The seed of its
episodes depends on the run's seed and the time of the evaluation only. So two evaluations never share initial states,
which would make an interval over seeds too narrow, and runs of one seed start from the same states in every algorithm,
which allows paired comparisons.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import equinox as eqx
import numpy as np

from understudy.collect.recorder import Outcomes
from understudy.collect.rollout_pool import RolloutPool, rollout_pool
from understudy.collect.rollouts import rollout
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core.errors import UnderstudyError
from understudy.core.progress import Progress
from understudy.core.text import quoted
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.policies.actor import Actor, check_fits
from understudy.policies.saved import load_policy
from understudy.studies.points import EvalPoint
from understudy.studies.returns import ReturnsFile


class Evaluator:
    """Evaluates submitted policies and keeps their returns in a directory."""

    def __init__(
        self,
        env: Environment | GymnasiumEnvironment,
        directory: Path,
        episodes: int,
        workers: int,
        step_timeout: float = STEP_TIMEOUT,
    ):
        self.env, self.directory, self.episodes, self.workers = env, directory, episodes, workers
        self.step_timeout = step_timeout
        self._file = ReturnsFile(directory, episodes)
        self._returns: dict[EvalPoint, np.ndarray] = {}
        self._pending: dict[EvalPoint, Future[Outcomes]] = {}
        self._pool: RolloutPool | None = None

    @contextmanager
    def running(self, seeds: dict[str, int]) -> Iterator[Self]:
        """Start the processes and resume earlier evaluations. `seeds`: cell key → seed.

        A damaged policy is removed, and one line says so. `evaluated` shows whether an evaluation is missing then.
        """
        self._seeds = seeds
        self._pool = rollout_pool(self.env, self.workers, self.workers, self.step_timeout, yields=True)
        try:
            self._returns = self._file.read(seeds)
            for file in sorted(self.directory.glob("*.policy.npz")):
                point = EvalPoint.from_file_name(file.name)
                if point is not None and point.key in seeds and point not in self._returns:
                    actor = self._load(point)
                    if actor is None:
                        file.unlink()
                    else:
                        self._start(point, actor)
            yield self
        finally:
            if self._pool is not None:
                self._pool.close()

    def submit(self, point: EvalPoint, actor: Actor) -> None:
        """Evaluate a policy, unless the same policy was already submitted for this point."""
        for done in [point for point, future in self._pending.items() if future.done()]:
            self._store(done, self._pending.pop(done).result().returns)
        if point in self._returns or point in self._pending:
            before = self._load(point) if self.path(point).exists() else None
            if before is not None and eqx.tree_equal(before.policy, actor.policy):
                return
            # Training resumed from an earlier checkpoint and reached another policy, because Gymnasium environments
            # restart with new episodes.
            if point in self._pending:
                self._pending.pop(point).cancel()
        actor.save(self.path(point))
        self._start(point, actor)

    def path(self, point: EvalPoint) -> Path:
        """File of the policy at a point."""
        return self.directory / point.file_name

    @property
    def evaluated(self) -> set[EvalPoint]:
        """All evaluations that are finished or under way."""
        return {*self._returns, *self._pending}

    def returns(self, progress: Progress) -> dict[EvalPoint, np.ndarray]:
        """Wait for all evaluations. Returns the episode returns of each."""
        total = len(self._pending)
        for number, point in enumerate(list(self._pending)):
            self._store(point, self._pending.pop(point).result().returns)
            progress(number + 1, total, {"return": float(self._returns[point].mean())})
        return self._returns

    def _load(self, point: EvalPoint) -> Actor | None:
        """A policy that was submitted before; None if its file is damaged."""
        try:
            actor = load_policy(self.path(point))
            check_fits(actor, self.env)
        except UnderstudyError as error:
            print(f"warning: {quoted(error, 300)}; it was not evaluated", file=sys.stderr)
            return None
        return actor

    def _start(self, point: EvalPoint, actor: Actor) -> None:
        job = (actor.policy, self.episodes, rollout_seed(self._seeds[point.key], point.x))
        if self._pool is None:
            self._store(point, rollout(self.env, *job).returns)
        else:
            self._pending[point] = self._pool.outcomes(*job)

    def _store(self, point: EvalPoint, returns: np.ndarray) -> None:
        self._file.add(point, returns)
        self._returns[point] = returns


def rollout_seed(seed: int, x: int) -> int:
    """The seed of the evaluation episodes of a run at a time."""
    return int(np.random.SeedSequence([seed, x, 2]).generate_state(1)[0])


def no_progress(title: str) -> Any:
    """A ProgressFactory that shows nothing."""
    return _no_progress()


@contextmanager
def _no_progress() -> Iterator[Progress]:
    yield lambda done, total, metrics: None
