"""The program of a worker process: it makes one object, then calls the methods that it is asked to call.

It is a fresh interpreter that reads pickled requests from one pipe and writes one pickled answer to each to another:

    (class, arguments)     first: makes the object, class(*arguments, report=...); the answer is None
    (method, arguments)    then: the answer is what the method returns

Whatever is raised is sent back as a `Failure`.
"""

import os
import pickle
import traceback
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from understudy.collect.heartbeat import Heartbeat
from understudy.core.errors import UnderstudyError
from understudy.envs.output import flush, redirect_worker
from understudy.envs.stepping import MAKE, NO_RUN, OURS, reason


class Failure(NamedTuple):
    """The reason why a request failed."""

    kind: type[UnderstudyError] | None
    """The error to raise; None: an exception that is not one of ours."""
    reason: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        if isinstance(error, UnderstudyError):
            return cls(type(error), str(error), traceback.format_exc())
        return cls(None, reason(error), traceback.format_exc())


def serve(inbox: int, outbox: int, descriptor: int, messages: int) -> None:
    """Answer requests until the pipe is closed. Output goes to the file with the descriptor `messages`."""
    redirect_worker(messages)
    heartbeat, served, own = Heartbeat(descriptor), None, os.getpid()
    # A child that an environment forks must not hold the pipes open, or the parent does not see that this process died.
    for pipe in (inbox, outbox):
        os.register_at_fork(after_in_child=partial(os.close, pipe))
    with os.fdopen(inbox, "rb") as requests, os.fdopen(outbox, "wb") as answers:
        while requests.peek(1):
            answer: Any = None
            try:
                # Reading the first request imports the module of the user's environment.
                heartbeat.report(MAKE if served is None else OURS, NO_RUN)
                target, arguments = pickle.load(requests)  # noqa: S301 (from the process that started this one)
                if served is None:
                    served = target(*arguments, report=heartbeat.report)
                else:
                    answer = getattr(served, target)(*arguments)
            except BaseException as error:  # noqa: BLE001 (every failure is sent to the parent)
                answer = Failure.of(error)
            if os.getpid() != own:  # a forked child that returned from the environment
                os._exit(0)
            heartbeat.report(OURS)
            flush()
            with suppress(BrokenPipeError):  # the parent is gone: the next read ends the loop
                pickle.dump(answer, answers, protocol=5)
                answers.flush()
        if served is not None:
            with suppress(Exception):
                served.close()
        flush()
        os._exit(0)  # some simulators crash while the interpreter shuts down
