"""Episodes in a Gymnasium environment that steps in worker processes.

A policy is sent to a worker, which rolls out whole episodes. A function of the user, or an algorithm's gate, stays in
this process; then each step of the environments is one message each way.

A worker that hangs or dies is replaced, and its episodes start again with other seeds.
"""

import queue
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import jax
import numpy as np

from understudy.collect.acting import ActingExpert
from understudy.collect.recorder import Episodes, Outcomes
from understudy.collect.rollouts import MakeVector, rollout
from understudy.collect.worker import (
    REPLACEMENTS,
    Worker,
    WorkerLost,
    given_up,
    report_replaced,
    worker_count,
)
from understudy.collect.workers import check_sendable
from understudy.core.errors import check_not_negative, check_whole
from understudy.envs import Environment, GymnasiumEnvironment
from understudy.envs.gymnasium import VectorEnvironment, VectorStep
from understudy.envs.stepping import NO_RUN, Report
from understudy.policies import Policy

T = TypeVar("T")


class RolloutService:
    """What a worker process holds: an environment, and copies of it that the parent steps."""

    def __init__(self, env: GymnasiumEnvironment, report: Report):
        self._env, self._report = env, report
        self._vector: VectorEnvironment | None = None

    def rollout(
        self,
        policy: Policy,
        episodes: int,
        seed: int,
        deterministic: bool,
        run: int = NO_RUN,
        starts: np.ndarray | None = None,
    ) -> Episodes:
        def vector(count: int) -> VectorEnvironment:
            return self._make(count, run)

        return rollout(self._env, policy, episodes, seed, deterministic, None, vector, starts)

    def outcomes(self, policy: Policy, episodes: int, seed: int, deterministic: bool) -> Outcomes:
        return self.rollout(policy, episodes, seed, deterministic).outcomes

    def open(self, count: int, run: int) -> None:
        self.close()
        self._vector = self._make(count, run)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        assert self._vector is not None
        return self._vector.reset(seeds)

    def step(self, actions: np.ndarray, alive: np.ndarray) -> VectorStep:
        assert self._vector is not None
        return self._vector.step(actions, alive)

    def close(self) -> None:
        if self._vector is not None:
            self._vector.close()
            self._vector = None

    def _make(self, count: int, run: int) -> VectorEnvironment:
        return self._env.vector(count, run, self._report)


class _RemoteVector:
    """A `VectorEnvironment` in a worker."""

    def __init__(self, worker: Worker, count: int, run: int):
        self._worker = worker
        worker.call("open", count, run)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        obs: np.ndarray = self._worker.call("reset", list(seeds))
        return obs

    def step(self, actions: np.ndarray, alive: np.ndarray) -> VectorStep:
        new: VectorStep = self._worker.call("step", actions, alive)
        return new

    def close(self) -> None:
        """The worker closes it before it opens the next one, or when it ends: it may be gone or busy now."""


class RolloutPool:
    """Worker processes for the episodes of one environment. They start at once, in the background.

    With `yields` they have a low priority: the processes that step environments for training go first.
    """

    def __init__(self, env: GymnasiumEnvironment, workers: int, step_timeout: float, yields: bool = False):
        check_sendable(env)
        self._env, self._timeout, self._yields = env, step_timeout, yields
        self._workers: list[Worker] = []
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(workers)
        self.close = weakref.finalize(self, _close, self._workers, self._threads)
        """End the workers, whatever they do."""
        for _ in range(workers):
            self._free.put(self._start())

    def outcomes(self, policy: Policy, episodes: int, seed: int, deterministic: bool = True) -> "Future[Outcomes]":
        """Returns, lengths and successes of a policy's episodes, once they are there."""
        return self._threads.submit(self._rollout, "outcomes", policy, episodes, seed, deterministic)

    def paired(
        self, policy: Policy, expert: ActingExpert, episodes: int, seed: int
    ) -> "Future[tuple[Outcomes, Outcomes]]":
        """Outcomes of a policy, and of an expert that starts from the same states.

        If the worker is lost, both start again from other states. An expert that is a function is called in this
        thread, one step of the environments after the other.
        """
        sent = jax.tree.map(np.asarray, policy)

        def attempt(worker: Worker, number: int) -> tuple[Outcomes, Outcomes]:
            start, mode = another_seed(seed, number), expert.deterministic
            learned = worker.call("outcomes", sent, episodes, start, True)
            if expert.policy is not None:
                acting = jax.tree.map(np.asarray, expert.policy)
                return learned, worker.call("outcomes", acting, episodes, start, mode)
            source = expert.source(start)
            vector = partial(_RemoteVector, worker, run=NO_RUN)
            return learned, rollout(self._env, source, episodes, start, mode, vector=vector).outcomes

        if expert.policy is not None:
            return self._threads.submit(self._attempts, attempt)
        done: Future[tuple[Outcomes, Outcomes]] = Future()
        done.set_result(self._attempts(attempt))
        return done

    def rollout(
        self,
        policy: Policy,
        episodes: int,
        seed: int,
        deterministic: bool = True,
        run: int = NO_RUN,
        starts: np.ndarray | None = None,
    ) -> "Future[Episodes]":
        """A policy's episodes, once they are there. `run` is the seed of the run, for errors."""
        return self._threads.submit(self._rollout, "rollout", policy, episodes, seed, deterministic, run, starts)

    def stepwise(self, play: Callable[[MakeVector, int], T], run: int = NO_RUN) -> T:
        """`play(vector, attempt)`, where `vector(n)` are n copies in a worker. It runs in this thread.

        If the worker is lost, `play` is called again with the next attempt's number, from 0, and another worker.
        """

        def attempt(worker: Worker, number: int) -> T:
            return play(lambda count: _RemoteVector(worker, count, run), number)

        return self._attempts(attempt)

    def _rollout(self, what: str, policy: Policy, episodes: int, seed: int, *more: Any) -> Any:
        sent = jax.tree.map(np.asarray, policy)

        def attempt(worker: Worker, number: int) -> Any:
            return worker.call(what, sent, episodes, another_seed(seed, number), *more)

        return self._attempts(attempt)

    def _attempts(self, attempt: Callable[[Worker, int], T]) -> T:
        worker = self._free.get()
        try:
            for number in range(REPLACEMENTS + 1):
                try:
                    return attempt(worker, number)
                except WorkerLost as error:
                    if number == REPLACEMENTS:
                        raise given_up(error) from error
                    if not self.close.alive:  # it was ended by us
                        raise
                    report_replaced(error)
                    worker.close()
                    worker = self._start()
        finally:
            self._free.put(worker)
        raise AssertionError("unreachable")

    def _start(self) -> Worker:
        worker = Worker(self._env.name, self._timeout, RolloutService, self._env)
        if self._yields:
            worker.lower_priority()
        self._workers.append(worker)
        return worker

    def __enter__(self) -> "RolloutPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def rollout_pool(
    env: Environment | GymnasiumEnvironment,
    jobs: int,
    workers: int | None,
    step_timeout: float,
    yields: bool = False,
) -> RolloutPool | None:
    """Workers for some rollouts, or None if the environment steps in this process.

    This is so for JAX environments, for `workers=0`, and by default for an environment that cannot be sent.
    """
    check_not_negative(step_timeout=step_timeout)
    if workers is not None:
        check_whole(0, workers=workers)
    count = worker_count(env, jobs) if workers is None else min(workers, jobs)
    if count == 0 or not isinstance(env, GymnasiumEnvironment):
        return None
    return RolloutPool(env, count, step_timeout, yields)


def another_seed(seed: int, attempt: int) -> int:
    """The seed of episodes that start again: the same for the first attempt, others for the next ones."""
    return seed if attempt == 0 else int(np.random.SeedSequence([seed, attempt, 3]).generate_state(1)[0])


def _close(workers: list[Worker], threads: ThreadPoolExecutor) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.close()
