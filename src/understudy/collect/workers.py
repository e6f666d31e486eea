"""Workers: processes that hold Gymnasium environments and a NumPy copy of each run's policy.

A worker receives the policies of its runs, steps their environments, and answers with the chunk of steps: one message
each way, however many steps there are. All randomness of a run comes from its own seed, so its steps do not depend on
the number of workers.

A worker is a fresh interpreter, since JAX is multithreaded and must not be forked. It is not one of multiprocessing's
spawned processes: those run the user's script again, and a script without the `if __name__ == "__main__":` guard would
start workers that start workers.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import jax
import numpy as np

from understudy.collect.replay import Chunk, zero_chunk
from understudy.collect.runner import Runner, StepRequest, TimedChunk
from understudy.collect.worker_process import Failure, reason, tried
from understudy.core.errors import SettingError, WorkerError, check_whole
from understudy.envs import GymnasiumEnvironment
from understudy.envs.gymnasium import quiet

PATIENCE = 1.0
"""Seconds to wait for a worker to end after its pipe is closed."""
CHEAP = 1e-4
"""Seconds per step. Faster environments are stepped in this process, because workers take seconds to start."""
# Ctrl-C and standard output are redirected before any other import: output of an import would garble the messages.
BOOT = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
inbox, outbox, nowhere = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
os.dup2(nowhere, 0)
os.dup2(nowhere, 1)
from understudy.collect.worker_process import serve
serve(inbox, outbox, nowhere)
"""
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerPool:
    """The environments of all runs, in `workers` processes, or in this one if `workers` is 0.

    Each run has `envs` environments, and a request takes `steps` steps in each. Runs are distributed over the workers.
    If one worker fails, all are closed.
    """

    def __init__(
        self, env: GymnasiumEnvironment, seeds: Sequence[tuple[int, ...]], envs: int, steps: int, workers: int
    ):
        check_whole(1, envs=envs, steps=steps)
        check_whole(0, workers=workers)
        self.env_seconds = 0.0
        """Time spent in environments, summed over the runs."""
        self.act_seconds = 0.0
        """Time spent in policies, summed over the runs."""
        self._shape = env.spec, envs, steps
        self._requests: list[StepRequest | None] | None = None
        self._here: list[Runner] = []
        self._workers: list[_Worker] = []
        self.close = weakref.finalize(self, _close, self._here, self._workers)
        """Close the workers and their environments. Also called at the end of a `with`, and of the program."""
        if workers == 0:
            with quiet():
                self._here += [Runner(env, seed, envs, steps) for seed in seeds]
            return
        if reason := _unsendable(env):
            raise SettingError(
                f"environment {env.name} cannot be sent to workers ({reason}): give workers=0, a function of a module, "
                "or a name registered with Gymnasium"
            )
        for number in range(min(workers, len(seeds))):
            mine = range(number, len(seeds), workers)
            self._workers.append(_Worker(number, mine, (env, [tuple(seeds[i]) for i in mine], envs, steps)))

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
        for worker in self._workers:
            worker.send([self._requests[run] for run in worker.runs])

    def receive(self) -> list[Chunk]:
        """Wait for the requested steps: a chunk for each run, zeros for a run that has stopped."""
        if self._requests is None:
            raise WorkerError("nothing was requested: call request() first")
        requests, self._requests = self._requests, None
        chunks = [zero_chunk(*self._shape) for _ in requests]
        try:
            for run, (runner, request) in enumerate(zip(self._here, requests, strict=False)):
                if request is not None:
                    with quiet():
                        chunks[run] = self._counted(tried(runner, request))
            for worker in self._workers:
                for run, chunk in zip(worker.runs, worker.receive(), strict=True):
                    if chunk is not None:
                        chunks[run] = self._counted(chunk)
        except BaseException:  # a message may be half read: the pipe cannot be used any more
            self.close()
            raise
        return chunks

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


def worker_count(runs: int, env: GymnasiumEnvironment | None = None) -> int:
    """The default number of workers: one for each run, at most one for each core.

    0 on a single core, for an environment that cannot be pickled, or for one that steps in less than CHEAP.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores == 1 or (env is not None and (_unsendable(env) or _step_seconds(env) < CHEAP)):
        return 0
    return min(runs, cores)


def _step_seconds(env: GymnasiumEnvironment, tries: int = 20) -> float:
    """The median time of a step."""
    with quiet():
        one = env.make_env()
        one.action_space.seed(0)
        one.reset(seed=0)
        seconds = []
        for _ in range(tries):
            act, began = one.action_space.sample(), time.perf_counter()
            _, _, terminal, truncated, _ = one.step(act)
            seconds.append(time.perf_counter() - began)
            if terminal or truncated:
                one.reset(seed=0)
        one.close()
    return sorted(seconds)[tries // 2]


def _packed(request: StepRequest) -> StepRequest:
    """The request with contiguous NumPy leaves, so that a network rounds in the same way here and in a worker."""
    return request._replace(policy=jax.tree.map(lambda x: np.asarray(x, order="C"), request.policy))


def _unsendable(env: GymnasiumEnvironment) -> str:
    """The reason why an environment cannot be sent to another process; '' if it can."""
    try:
        pickled = pickle.dumps(env)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return reason(error)
    return "it is defined in the script itself, which workers do not run again" if b"__main__" in pickled else ""


class _Worker:
    """A worker process, seen from the parent, and the runs that it steps."""

    def __init__(self, number: int, runs: range, task: tuple[GymnasiumEnvironment, list[tuple[int, ...]], int, int]):
        self.runs, self.seeds, self.number = runs, task[1], number
        self.words = tempfile.TemporaryFile()  # noqa: SIM115 (until it is dismissed)
        variables = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            env={**os.environ, **ONE_THREAD, **variables},
        )
        self.send(task)

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.process.pid}, runs of seeds {', '.join(map(str, self.seeds))})"

    def send(self, message: Any) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: `receive` reports the reason
            pickle.dump(message, self.process.stdin, protocol=5)
            self.process.stdin.flush()

    def receive(self) -> list[TimedChunk | None]:
        assert self.process.stdout is not None
        try:
            answer = pickle.load(self.process.stdout)  # noqa: S301 (from a process of our own)
        except (EOFError, pickle.UnpicklingError) as error:
            raise WorkerError(f"{self} {self._end()}") from error
        if isinstance(answer, Failure):
            failed = answer.kind(f"{self}: {answer.reason}")
            failed.add_note(answer.trace)
            raise failed
        return answer

    def _end(self) -> str:
        """How its process ended."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return "stopped answering"
        if code < 0:
            name = signal.Signals(-code).name
            return f"was ended by {name}" + ", as when memory runs out" * (name == "SIGKILL")
        self.words.seek(0)
        said = self.words.read().decode(errors="replace").strip().splitlines()
        return f"exited with status {code}" + (f": {said[-1]}" if said else "")


def _close(here: list[Runner], workers: list[_Worker]) -> None:
    """Close all workers. A worker ends when its pipe is closed, or is killed."""
    for worker in workers:
        with suppress(OSError):
            worker.process.stdin.close()  # type: ignore[union-attr]
    until = time.monotonic() + PATIENCE
    for worker in workers:
        try:
            worker.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        worker.process.stdout.close()  # type: ignore[union-attr]
        worker.words.close()
    if here:
        with quiet():
            for run in here:
                run.close()
