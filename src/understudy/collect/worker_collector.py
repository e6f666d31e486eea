"""Collecting steps in Gymnasium environments, by worker processes, an update's steps at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np

from understudy.collect.base import Collector, Request
from understudy.collect.replay import Chunk
from understudy.collect.runner import StepRequest
from understudy.collect.starts import Starts
from understudy.collect.steps import GivenSteps
from understudy.collect.worker import STEP_TIMEOUT
from understudy.collect.workers import WorkerPool
from understudy.envs import GymnasiumEnvironment
from understudy.game.schedule import Schedule


class WorkerCollector(Collector):
    """Collects the steps of all runs on the host. They depend on seeds and policies, never on timing.

    With staleness 0, the steps before an update are taken by the newest policy. With staleness 1 they are taken by the
    policy before it: they are requested when the previous update begins, so environments and updates run in parallel.
    """

    checkpoint_first_round = True

    def __init__(
        self,
        env: GymnasiumEnvironment,
        seeds: list[int],
        schedule: Schedule,
        rounds: int,
        workers: int,
        step_timeout: float = STEP_TIMEOUT,
        starts: Starts | None = None,
    ):
        super().__init__(GivenSteps(schedule, starts is not None))
        self._starts = None if starts is None else [starts.of_run(run) for run in range(len(seeds))]
        self.env, self.seeds, self.schedule, self.rounds = env, seeds, schedule, rounds
        self.workers, self.step_timeout = workers, step_timeout
        self.calls_per_round = schedule.updates
        self.looks_ahead = schedule.staleness > 0
        self._pool: WorkerPool | None = None
        self._requested = False

    @contextmanager
    def opened(self, first_round: int) -> Iterator[None]:
        """Start the worker processes. A run that resumes in `first_round` starts new episodes, with other seeds."""
        entropy = [(seed, first_round) for seed in self.seeds]
        envs, steps = self.schedule.envs, self.schedule.steps_per_env
        with WorkerPool(self.env, entropy, envs, steps, self.workers, self.step_timeout, self._starts) as self._pool:
            self._requested = False
            yield

    @property
    def pool(self) -> WorkerPool:
        """The worker processes, with the time spent in environments and in policies."""
        assert self._pool is not None
        return self._pool

    def gather(self, request: Request) -> Chunk:
        """The steps of all runs before an update, stacked."""
        if not self._requested:
            self._request(request, request.round, request.update)
        chunks = self.pool.receive()
        self._requested = False
        return jax.tree.map(lambda *parts: np.stack(parts), *chunks)

    def ahead(self, request: Request) -> None:
        following = divmod(request.round * self.schedule.updates + request.update + 1, self.schedule.updates)
        if self.looks_ahead and following[0] < self.rounds:
            self._request(request, *following)

    def _request(self, request: Request, index: int, update: int) -> None:
        reset = bool(self.schedule.begins(index, update))
        random_steps = int(self.schedule.random_steps_left(index, update))
        share = float(request.algorithm.start_share)
        stacked, active = request.policies(), request.active()
        policies = [jax.tree.map(lambda x, i=run: x[i], stacked) for run in range(len(self.seeds))]
        self.pool.request(
            [
                StepRequest(policy, reset, random_steps, share) if active[run] else None
                for run, policy in enumerate(policies)
            ]
        )
        self._requested = True
