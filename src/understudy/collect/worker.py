"""A worker: another process that steps environments, seen from the process that started it.

Environments step in worker processes, since nothing can stop a call of an environment in our own. A worker is a fresh
interpreter, because JAX is multithreaded and must not be forked. It is not one of multiprocessing's spawned processes:
those run the user's script again, and import from the current directory.
"""

import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

from understudy.collect.heartbeat import Heartbeat
from understudy.collect.worker_process import Failure
from understudy.core.errors import WorkerError
from understudy.core.processes import start_python
from understudy.core.text import quoted
from understudy.envs import GymnasiumEnvironment
from understudy.envs.stepping import MAKE, reason, where

STEP_TIMEOUT = 60.0
"""Default seconds that an environment may take for a step or a reset."""
CONSTRUCTOR_TIMEOUT = 60.0
"""Seconds that an environment's constructor may take in any case: it may load files that a step does not."""
REPLACEMENTS = 3
"""How often in a row a lost worker is replaced."""
LOW_PRIORITY = 10
"""The niceness of workers that nothing waits for."""
PATIENCE = 1.0
"""Seconds to wait for a worker to end after its pipe is closed."""
# Ctrl-C and standard output are redirected before any other import: output of an import would garble the messages.
# Until the worker serves, its standard error is a file, whose last line explains a failure; then it is the parent's.
# The current directory comes last on the import path, and only if this process imports from it too.
BOOT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
inbox, outbox, nowhere = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
os.dup2(nowhere, 0)
os.dup2(nowhere, 1)
from understudy.core.processes import exit_with_parent
exit_with_parent()
from understudy.collect.worker_process import serve
sys.path += sys.argv[3:]
serve(inbox, outbox, int(sys.argv[1]), int(sys.argv[2]))
"""
VARIABLES = {
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "JAX_PLATFORMS": "cpu",
}


class WorkerLost(WorkerError):
    """A worker hung or died. Another one can take its place."""


class Worker:
    """A worker process that holds `kind(*arguments, report=...)` and calls its methods on request.

    `name` is the environment's, for errors. A method's call of an environment may take `step_timeout` seconds (0: any).
    `variables` are added to the process's environment variables.
    """

    def __init__(
        self,
        name: str,
        step_timeout: float,
        kind: type,
        *arguments: Any,
        variables: Mapping[str, str] = MappingProxyType({}),
    ):
        self.name, self.step_timeout = name, step_timeout
        self._ready = False
        self._heartbeat = Heartbeat()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 (until it is closed)
        here = [os.getcwd()] if "" in sys.path else []
        with _standard_error() as messages:
            descriptors = (self._heartbeat.descriptor, messages)
            self.process = start_python(
                ["-c", BOOT, *map(str, descriptors), *here],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                pass_fds=descriptors,
                env={**VARIABLES, **variables},
            )
        self._send((kind, arguments))

    def lower_priority(self) -> None:
        """Let other processes go first."""
        with suppress(OSError):  # it has ended: `_receive` reports the reason
            os.setpriority(os.PRIO_PROCESS, self.process.pid, LOW_PRIORITY)

    def wait_until_ready(self) -> None:
        """Wait until the process has started and made its object. It takes a second or two."""
        if not self._ready:
            self._receive()
            self._ready = True

    def request(self, method: str, *arguments: Any) -> None:
        """Ask for a call of a method, and return at once. `answer` waits for what it returns."""
        self.wait_until_ready()
        self._send((method, arguments))

    def answer(self) -> Any:
        return self._receive()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method, and wait for what it returns."""
        self.request(method, *arguments)
        return self._receive()

    def stop_reading(self) -> None:
        """Close the pipe of requests. The worker ends once it has answered the last one."""
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]

    def close(self, patience: float = 0.0) -> None:
        """End the process, at the latest after `patience` seconds."""
        self.stop_reading()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if not self._words.closed:
            self.process.stdout.close()  # type: ignore[union-attr]
            self._words.close()
            self._heartbeat.close()

    def _send(self, message: Any) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: `_receive` reports the reason
            pickle.dump(message, self.process.stdin, protocol=5)
            self.process.stdin.flush()

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        self._watch()
        try:
            answer = pickle.load(self.process.stdout)  # noqa: S301 (from a process of our own)
        except (EOFError, pickle.UnpicklingError) as error:
            raise self._died() from error
        if isinstance(answer, Failure):
            words = f"the process that steps {self.name} failed: {answer.reason}"
            failed = WorkerError(words) if answer.kind is None else answer.kind(answer.reason)
            failed.add_note(answer.trace)
            raise failed
        return answer

    def _watch(self) -> None:
        """Wait for an answer. Kill the worker if a call of the environment takes longer than the timeout.

        The time is counted here in small waits. So the time in which both processes were stopped, as by Ctrl-Z, does
        not count.
        """
        waiting = select.poll()
        waiting.register(self.process.stdout, select.POLLIN)  # type: ignore[arg-type]
        wait = min(1.0, self.step_timeout / 4) if self.step_timeout else None
        waited, before = 0.0, self._heartbeat.read()
        while not waiting.poll(None if wait is None else wait * 1000):
            now = self._heartbeat.read()
            waited = waited + wait if wait and now.in_environment and now.reports == before.reports else 0.0
            before = now
            limit = max(self.step_timeout, CONSTRUCTOR_TIMEOUT) if now.phase == MAKE else self.step_timeout
            if waited >= limit:
                self.process.kill()
                place = where(*now[1:])
                raise WorkerLost(f"{self.name} did not return from {place} within {limit:g} s")

    def _died(self) -> WorkerError:
        """The error for a process that has ended by itself."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return WorkerLost(f"the process that steps {self.name} stopped answering")
        position = self._heartbeat.read()
        place = f" in {where(*position[1:])}" if position.in_environment else ""
        if code < 0:
            name = signal.Signals(-code).name
            how = f"was ended by {name}" + ", as when memory runs out," * (name == "SIGKILL")
        else:
            how = f"exited with status {code}"
        words = f"the process that steps {self.name} {how}{place}"
        if self._ready:
            return WorkerLost(words)
        self._words.seek(0)
        said = self._words.read().decode(errors="replace").strip().splitlines()
        return WorkerError(words + (f": {quoted(said[-1], 300)}" if said else ""))


@contextmanager
def _standard_error() -> Iterator[int]:
    """A copy of the descriptor of standard error, for what environments print; the null device if it is closed."""
    try:
        descriptor = os.dup(2)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(env: Any, jobs: int) -> int:
    """The default number of workers: one for each job, at most one for each core.

    0 for a JAX environment, and for one that cannot be sent to another process.
    """
    if not isinstance(env, GymnasiumEnvironment) or unsendable(env):
        return 0
    return max(1, min(jobs, cores()))


def unsendable(env: GymnasiumEnvironment) -> str:
    """The reason why an environment cannot be sent to another process; '' if it can."""
    try:
        pickled = pickle.dumps(env)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return reason(error)
    return "it is defined in the script itself, which workers do not run again" if b"__main__" in pickled else ""


def report_replaced(error: WorkerLost) -> None:
    """Print one line about a worker that is replaced."""
    print(f"warning: {error}: another process starts new episodes", file=sys.stderr, flush=True)


def given_up(error: WorkerLost) -> WorkerError:
    """The error after the last replacement."""
    return WorkerError(
        f"{error}, after {REPLACEMENTS} replacements of the process: look at the environment, or set another "
        "step_timeout (in the shell --step-timeout; 0: no limit)"
    )
