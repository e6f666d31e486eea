"""The program of a worker process: it makes the environments of its runs and steps them on request.

It is a fresh interpreter that reads pickled requests from its standard input and writes answers to its standard output.
"""

import os
import pickle
import traceback
import warnings
from contextlib import suppress
from typing import NamedTuple

from understudy.collect.runner import Runner, StepRequest, TimedChunk
from understudy.core.errors import UnderstudyError, WorkerError


class Failure(NamedTuple):
    """The reason why a worker failed."""

    kind: type[UnderstudyError]
    reason: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        if isinstance(error, UnderstudyError):
            return cls(type(error), str(error), traceback.format_exc())
        return cls(WorkerError, reason(error), traceback.format_exc())


def tried(run: Runner, request: StepRequest) -> TimedChunk:
    try:
        return run.play(request)
    except UnderstudyError:
        raise
    except Exception as error:
        raise WorkerError(f"{reason(error)} (environment {run.name}, run of seed {run.seed})") from error


def reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def serve(inbox: int, outbox: int, nowhere: int) -> None:
    """Make the environments of the runs, then step them on request until the pipe is closed."""
    os.dup2(nowhere, 2)
    warnings.simplefilter("ignore")
    runs: list[Runner] = []
    with os.fdopen(inbox, "rb") as requests, os.fdopen(outbox, "wb") as answers:
        answer: list[TimedChunk | None] | Failure = []
        while not isinstance(answer, Failure) and requests.peek(1):
            try:
                message = pickle.load(requests)  # noqa: S301 (from the process that started this one)
                if not runs:
                    env, seeds, envs, steps = message
                    runs += [Runner(env, seed, envs, steps) for seed in seeds]
                    continue
                answer = [o if o is None else tried(run, o) for run, o in zip(runs, message, strict=True)]
            except Exception as error:  # noqa: BLE001 (every failure is sent to the parent)
                answer = Failure.of(error)
            with suppress(BrokenPipeError):  # the parent is gone: the next read ends the loop
                pickle.dump(answer, answers, protocol=5)
                answers.flush()
        for run in runs:
            run.close()
        os._exit(0)  # some simulators crash while the interpreter shuts down
