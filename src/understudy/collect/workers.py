"""Workers: processes that hold Gymnasium environments and a NumPy copy of each run's policy.

A worker is sent the policies of its runs, steps their environments a chunk at a time and answers with the chunk: one
message there and one back, however many steps there are. Everything random of a run comes from its own seed, so that
its steps are the same alone or beside others, in whichever process.

A worker is a fresh interpreter (JAX is multithreaded, and a fork of it is not safe) that is spoken to through its
standard input and output. It is not one of multiprocessing's spawned processes, which run the user's script again:
there a script without the `if __name__ == "__main__":` guard would start workers that start workers.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import weakref
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

import jax
import numpy as np

from understudy.collect.playing import Order, Played, Run, blank
from understudy.collect.stepping import Chunk
from understudy.core.errors import SettingError, UnderstudyError, WorkerError, check_whole
from understudy.envs import GymnasiumEnvironment
from understudy.envs.gymnasium import quiet

PATIENCE = 1.0
"""Seconds a worker has to end by itself."""
CHEAP = 1e-4
"""Seconds. Workers save a few milliseconds a turn where environments step faster, and take seconds to start."""
# Before anything else is imported, what Ctrl-C does and where prints go: a word of an import would garble the messages.
BOOT = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
inbox, outbox, nowhere = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
os.dup2(nowhere, 0)
os.dup2(nowhere, 1)
from understudy.collect.workers import serve
serve(inbox, outbox, nowhere)
"""
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerPool:
    """All runs' environments, in `workers` processes or, if there are none, in this one.

    Each run has `envs` environments, and an order takes `steps` steps in each. The runs are dealt to the workers. Where
    one fails, all are dismissed.
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
        self._orders: list[Order | None] | None = None
        self._here: list[Run] = []
        self._workers: list[_Worker] = []
        self.close = weakref.finalize(self, _dismiss, self._here, self._workers)
        """End the workers and their environments; also at the end of a `with`, and of the program."""
        if workers == 0:
            with quiet():
                self._here += [Run(env, seed, envs, steps) for seed in seeds]
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

    def ask(self, orders: list[Order | None]) -> None:
        """Send an order for each run, None for one that has stopped, and return at once.

        (The first message waits until a worker has started, which takes a second or two.)
        """
        if self._orders is not None:
            raise WorkerError("the workers were asked twice: take their answers() in between")
        if not self.close.alive:
            raise WorkerError("the workers were dismissed: a new WorkerPool is needed")
        self._orders = [None if order is None else _packed(order) for order in orders]
        for worker in self._workers:
            worker.send([self._orders[run] for run in worker.runs])

    def answers(self) -> list[Chunk]:
        """Wait for what was asked: a chunk for each run; zeros for one that has stopped."""
        if self._orders is None:
            raise WorkerError("the workers were asked nothing: ask() them first")
        orders, self._orders = self._orders, None
        chunks = [blank(*self._shape) for _ in orders]
        try:
            for run, (player, order) in enumerate(zip(self._here, orders, strict=False)):
                if order is not None:
                    with quiet():
                        chunks[run] = self._counted(_tried(player, order))
            for worker in self._workers:
                for run, played in zip(worker.runs, worker.receive(), strict=True):
                    if played is not None:
                        chunks[run] = self._counted(played)
        except BaseException:  # a message may be half read
            self.close()
            raise
        return chunks

    def _counted(self, played: Played) -> Chunk:
        self.env_seconds += played.env_seconds
        self.act_seconds += played.act_seconds
        return played.chunk

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def worker_count(runs: int, env: GymnasiumEnvironment | None = None) -> int:
    """How many workers serve `runs` runs best here: one for each, as far as there are cores.

    None on a single core, for an environment that cannot be sent to them, or for one that steps in less than CHEAP.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores == 1 or (env is not None and (_unsendable(env) or _step_seconds(env) < CHEAP)):
        return 0
    return min(runs, cores)


def _step_seconds(env: GymnasiumEnvironment, tries: int = 20) -> float:
    """How long a step takes here."""
    with quiet():
        one = env.one()
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


class _Failure(NamedTuple):
    """Why a worker could not go on."""

    kind: type[UnderstudyError]
    reason: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> "_Failure":
        if isinstance(error, UnderstudyError):
            return cls(type(error), str(error), traceback.format_exc())
        return cls(WorkerError, _reason(error), traceback.format_exc())


def _packed(order: Order) -> Order:
    """As it is sent: plain contiguous NumPy leaves, so that a network rounds alike here and in a worker."""
    return order._replace(policy=jax.tree.map(lambda x: np.asarray(x, order="C"), order.policy))


def _tried(run: Run, order: Order) -> Played:
    try:
        return run.play(order)
    except UnderstudyError:
        raise
    except Exception as error:
        raise WorkerError(f"{_reason(error)} (environment {run.name}, run of seed {run.seed})") from error


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _unsendable(env: GymnasiumEnvironment) -> str:
    """Why an environment cannot be made in another process; '' where it can."""
    try:
        told = pickle.dumps(env)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return _reason(error)
    return "it is defined in the script itself, which workers do not run again" if b"__main__" in told else ""


class _Worker:
    """A worker as its employer sees it: a process, and the runs that it plays."""

    def __init__(self, number: int, runs: range, task: tuple[GymnasiumEnvironment, list[tuple[int, ...]], int, int]):
        self.runs, self.seeds, self.number = runs, task[1], number
        self.words = tempfile.TemporaryFile()  # noqa: SIM115 (until it is dismissed)
        surroundings = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            env={**os.environ, **ONE_THREAD, **surroundings},
        )
        self.send(task)

    def __str__(self) -> str:
        return f"worker {self.number} (process {self.process.pid}, runs of seeds {', '.join(map(str, self.seeds))})"

    def send(self, message: Any) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: `receive` says why
            pickle.dump(message, self.process.stdin, protocol=5)
            self.process.stdin.flush()

    def receive(self) -> list[Played | None]:
        assert self.process.stdout is not None
        try:
            answer = pickle.load(self.process.stdout)  # noqa: S301 (from a process of our own)
        except (EOFError, pickle.UnpicklingError) as error:
            raise WorkerError(f"{self} {self._end()}") from error
        if isinstance(answer, _Failure):
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


def _dismiss(here: list[Run], workers: list[_Worker]) -> None:
    """End all of them: a worker ends by itself when nobody can ask it any more, or is made to."""
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


def serve(inbox: int, outbox: int, nowhere: int) -> None:
    """A worker's life: make the environments of its runs, then play what is ordered until nobody orders any more."""
    os.dup2(nowhere, 2)
    warnings.simplefilter("ignore")
    runs: list[Run] = []
    with os.fdopen(inbox, "rb") as orders, os.fdopen(outbox, "wb") as answers:
        answer: list[Played | None] | _Failure = []
        while not isinstance(answer, _Failure) and orders.peek(1):
            try:
                message = pickle.load(orders)  # noqa: S301 (from the process that started this one)
                if not runs:
                    env, seeds, envs, steps = message
                    runs += [Run(env, seed, envs, steps) for seed in seeds]
                    continue
                answer = [o if o is None else _tried(run, o) for run, o in zip(runs, message, strict=True)]
            except Exception as error:  # noqa: BLE001 (whatever it is, the employer is told)
                answer = _Failure.of(error)
            with suppress(BrokenPipeError):  # nobody is left to be told: the next look at the orders says so
                pickle.dump(answer, answers, protocol=5)
                answers.flush()
        for run in runs:
            run.close()
        os._exit(0)  # what a simulator does in an interpreter that is being torn down is not our business
