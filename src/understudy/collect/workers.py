"""The environments of all runs of a training call, in worker processes or in this one.

A worker receives the policies of its runs, steps their environments, and answers with the chunk of steps: one message
each way, however many steps there are. All randomness of a run comes from its own seed, so its steps do not depend on
the number of workers.

A worker that hangs or dies is replaced. Its runs then start new episodes, with seeds that depend on the run's seed and
the number of replacements only.
"""

import weakref
from collections.abc import Sequence
from types import TracebackType

import jax
import numpy as np

from understudy.collect.replay import Chunk, zero_chunk
from understudy.collect.runner import Runner, Runners, StepRequest, TimedChunk
from understudy.collect.starts import Starts
from understudy.collect.worker import (
    PATIENCE,
    REPLACEMENTS,
    STEP_TIMEOUT,
    Worker,
    WorkerLost,
    given_up,
    report_replaced,
    unsendable,
)
from understudy.core.errors import SettingError, WorkerError, check_not_negative, check_whole
from understudy.envs import GymnasiumEnvironment
from understudy.envs.output import redirected


class WorkerPool:
    """The environments of all runs, in `workers` processes, or in this one if `workers` is 0.

    Each run has `envs` environments, and a request takes `steps` steps in each. Runs are distributed over the workers.
    If an environment fails, all workers are closed. `step_timeout` limits each call of an environment in a worker.
    `starts` are the demonstrated steps at which the episodes of each run may begin; None: they do not.
    """

    def __init__(
        self,
        env: GymnasiumEnvironment,
        seeds: Sequence[tuple[int, ...]],
        envs: int,
        steps: int,
        workers: int,
        step_timeout: float = STEP_TIMEOUT,
        starts: Sequence[Starts] | None = None,
    ):
        check_whole(1, envs=envs, steps=steps)
        check_whole(0, workers=workers)
        check_not_negative(step_timeout=step_timeout)
        self.env_seconds = 0.0
        """Time spent in environments, summed over the runs."""
        self.act_seconds = 0.0
        """Time spent in policies, summed over the runs."""
        self._env, self._seeds, self._timeout = env, [tuple(seed) for seed in seeds], step_timeout
        self._shape, self._starts = (env.spec, envs, steps), starts
        self._replaced = [0] * len(seeds)
        self._requests: list[StepRequest | None] | None = None
        self._here: list[Runner] = []
        self._workers: list[Worker] = []
        self.close = weakref.finalize(self, _close, self._here, self._workers, env.quiet)
        """Close the workers and their environments. Also called at the end of a `with`, and of the program."""
        if workers == 0:
            try:
                with redirected(env.quiet):
                    for one, own in zip(self._seeds, self._starts_of(range(len(seeds))), strict=True):
                        self._here.append(Runner(env, one, envs, steps, own))
            except BaseException:
                self.close()
                raise
            return
        check_sendable(env)
        self._workers += [self._start(runs) for runs in self._shares(workers)]

    @property
    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [worker.process.pid for worker in self._workers]

    def request(self, requests: list[StepRequest | None]) -> None:
        """Send a request for each run, None for one that has stopped, and return at once.

        The first request waits until the worker has started, which takes a second or two.
        """
        if self._requests is not None:
            raise WorkerError("request() was called twice: call receive() in between")
        if not self.close.alive:
            raise WorkerError("the worker pool is closed: make a new WorkerPool")
        self._requests = [None if request is None else _packed(request) for request in requests]
        try:
            for worker, runs in zip(self._workers, self._shares(len(self._workers)), strict=True):
                worker.request("play", [self._requests[run] for run in runs])
        except BaseException:
            self.close()
            raise

    def receive(self) -> list[Chunk]:
        """Wait for the requested steps: a chunk for each run, zeros for a run that has stopped."""
        if self._requests is None:
            raise WorkerError("nothing was requested: call request() first")
        requests, self._requests = self._requests, None
        chunks = [zero_chunk(*self._shape, marked=self._starts is not None) for _ in requests]
        try:
            for run, (runner, request) in enumerate(zip(self._here, requests, strict=False)):
                if request is not None:
                    with redirected(self._env.quiet):
                        chunks[run] = self._counted(runner.play(request))
            for number, runs in enumerate(self._shares(len(self._workers))):
                answer = self._answer(number, [requests[run] for run in runs])
                for run, chunk in zip(runs, answer, strict=True):
                    if chunk is not None:
                        chunks[run] = self._counted(chunk)
        except BaseException:  # a message may be half read: the pipe cannot be used any more
            self.close()
            raise
        return chunks

    def _shares(self, workers: int) -> list[range]:
        """The runs of each worker."""
        return [range(number, len(self._seeds), workers) for number in range(min(workers, len(self._seeds)))]

    def _start(self, runs: range) -> Worker:
        """Start a worker. If it is not the first one of its runs, they begin with other seeds."""
        seeds = [(*self._seeds[run], self._replaced[run]) if self._replaced[run] else self._seeds[run] for run in runs]
        return Worker(self._env.name, self._timeout, Runners, self._env, seeds, *self._shape[1:], self._starts_of(runs))

    def _starts_of(self, runs: range) -> list[Starts | None]:
        return [None if self._starts is None else self._starts[run] for run in runs]

    def _answer(self, number: int, requests: list[StepRequest | None]) -> list[TimedChunk | None]:
        """The answer of a worker, or of the one that replaces it."""
        runs = self._shares(len(self._workers))[number]
        for attempt in range(REPLACEMENTS + 1):
            try:
                if attempt:
                    self._workers[number].request("play", requests)
                answer: list[TimedChunk | None] = self._workers[number].answer()
                return answer
            except WorkerLost as error:
                if attempt == REPLACEMENTS:
                    raise given_up(error) from error
                report_replaced(error)
                self._workers[number].close()
                for run in runs:
                    self._replaced[run] += 1
                self._workers[number] = self._start(runs)
        raise AssertionError("unreachable")

    def _counted(self, timed: TimedChunk) -> Chunk:
        self.env_seconds += timed.env_seconds
        self.act_seconds += timed.act_seconds
        return timed.chunk

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_sendable(env: GymnasiumEnvironment) -> None:
    """Raise if an environment cannot be sent to another process."""
    if why := unsendable(env):
        raise SettingError(
            f"environment {env.name} cannot be sent to workers ({why}): give workers=0, a function of a module, "
            "or a name registered with Gymnasium"
        )


def _packed(request: StepRequest) -> StepRequest:
    """The request with contiguous NumPy leaves, so that a network rounds in the same way here and in a worker."""
    return request._replace(policy=jax.tree.map(lambda x: np.asarray(x, order="C"), request.policy))


def _close(here: list[Runner], workers: list[Worker], quiet: bool) -> None:
    """Close all workers. A worker ends when its pipe is closed, or is killed."""
    for worker in workers:
        worker.stop_reading()
    for worker in workers:
        worker.close(PATIENCE)
    if here:
        with redirected(quiet):
            for run in here:
                run.close()
