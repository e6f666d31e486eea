"""Ctrl-C before and after a command runs: one line or nothing, and no traceback.

The package imports this first. Importing the rest takes a second or more, and while a command runs, `cli.failures`
handles Ctrl-C. In a program that imports the library, nothing changes.
"""

import os
import signal
import sys
import threading
from typing import Any

SOON = 0.05
"""Seconds until a lost signal is sent again."""
PLUGINS = "jax._src.xla_bridge"
"""The module that loads JAX's plugins."""


def _is_command() -> bool:
    """Whether this process was started as `understudy` or `python -m understudy`."""
    if sys.argv[:1] == ["-m"]:  # the package is imported to find its __main__
        before = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
        return before[-2:] == ["-m", "understudy"] or before[-1] == "-munderstudy"
    return os.path.basename(sys.argv[0] if sys.argv else "") == "understudy"


def _end(signum: int, frame: Any) -> None:
    os.write(2, b"\ninterrupted: nothing was written\n")
    os._exit(128 + signum)


_command = _is_command()
_in_main_thread = threading.current_thread() is threading.main_thread()
_handles = _command and _in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""Whether Ctrl-C is handled: it stays ignored in a job that a shell runs in the background."""
_last = signal.SIGINT
"""The last signal that interrupted the command."""
if _handles:
    signal.signal(signal.SIGINT, _end)


def begin() -> None:
    """The command runs: Ctrl-C raises KeyboardInterrupt."""
    if _command:
        sys.unraisablehook = _unraisable
    if _handles:
        signal.signal(signal.SIGINT, interrupt)


def interrupt(signum: int, frame: Any) -> None:
    """Raise KeyboardInterrupt, but not while JAX loads its plugins: it would log a traceback, and go on."""
    global _last
    _last = signal.Signals(signum)
    caller = frame
    while caller is not None:
        if caller.f_globals.get("__name__") == PLUGINS:
            _send_again()
            return
        caller = caller.f_back
    raise KeyboardInterrupt


def _unraisable(lost: Any) -> None:
    """Python drops a KeyboardInterrupt that is raised in a callback of the garbage collector."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _send_again()
    else:
        sys.__unraisablehook__(lost)


def _send_again() -> None:
    again = threading.Timer(SOON, os.kill, (os.getpid(), _last))
    again.daemon = True  # a command that ends before is not held up
    again.start()


def end() -> None:
    """The command has ended: there is nothing left to interrupt."""
    if _handles:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
