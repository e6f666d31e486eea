"""How a command ends that does not succeed: one line on standard error, and an exit status.

    1      an unexpected error of understudy, or some runs of a study failed
    2      a mistake in the command or a file, or something that this machine cannot do
    129    SIGHUP: the terminal was closed
    130    Ctrl-C
    141    the reader of the output has closed it, as `| head` does
    143    SIGTERM

SIGTERM and SIGHUP end a command like Ctrl-C: training stops after its round and saves what it has.
"""

import errno
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from understudy.core import display, streams
from understudy.core.errors import UnderstudyError
from understudy.core.memory import machine_memory, readable
from understudy.core.startup import interrupt
from understudy.core.text import quoted

DEBUG = "UNDERSTUDY_DEBUG"
"""If this variable is 1, an error shows its traceback."""
BUG, MISTAKE, INTERRUPTED, CUT_OFF = 1, 2, 128 + signal.SIGINT, 128 + signal.SIGPIPE
REMEDIES = {
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
    errno.EROFS: "choose another place",
    errno.EACCES: "choose another place, or change its permissions",
    errno.EPERM: "choose another place, or change its permissions",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close other programs: all files that this machine can open are open",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "remove the links that lead to each other, or choose another place",
    errno.EEXIST: "choose another name, or move it away first",
    errno.ENOENT: "choose another place",
    errno.ENOTDIR: "choose another place",
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
}
OUT_OF_MEMORY = "lower the sizes, such as the batch size, hidden layers, seeds or episodes"


def reported(error: BaseException) -> int:
    """Print one line for an error; return the exit status."""
    if isinstance(error, SystemExit):  # a message to print
        display.error(error.code)
        return BUG
    if isinstance(error, BrokenPipeError) and streams.is_cut_off(sys.stdout):
        streams.silence(1)  # Python flushes the rest when it exits
        return CUT_OFF
    if isinstance(error, KeyboardInterrupt):
        display.warn(f"\ninterrupted: {str(error) or 'nothing was written'}")
        return INTERRUPTED
    if os.environ.get(DEBUG) == "1":
        display.warn("".join(traceback.format_exception(error)))
    line = _explained(error)
    if line is None:
        kept = f"{DEBUG}=1 showed its traceback" if os.environ.get(DEBUG) == "1" else _kept(error)
        display.error(f"{_summary(error)}. This is a bug in understudy, please report it: {kept}")
    else:
        display.error(line)
    if not _flushes():
        streams.silence(1)
    return BUG if line is None else MISTAKE


def _explained(error: BaseException) -> str | None:
    """The line for an error that has a known cause; None for a bug."""
    if isinstance(error, UnderstudyError):
        return str(error)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return f"out of memory, this machine has {readable(machine_memory())}: {OUT_OF_MEMORY}"
    jax = sys.modules.get("jax")  # if it is not imported, the error is not its
    if jax is not None and isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error):
        reason = quoted(str(error).split("RESOURCE_EXHAUSTED:")[-1])
        return f"out of memory on {jax.devices()[0].device_kind} ({reason}): {OUT_OF_MEMORY}"
    if isinstance(error, RuntimeError) and str(error).startswith("Unable to initialize backend"):
        return quoted(error, 400)  # JAX says what to set
    if isinstance(error, OSError) and error.errno is not None:
        given = (error.filename, error.filename2)
        names = [os.fsdecode(name) for name in given if isinstance(name, str | bytes | os.PathLike)]
        where = " -> ".join(f"'{quoted(name, 1000)}'" for name in names)
        remedy = REMEDIES.get(error.errno)
        if error.errno == errno.ENOENT and not _has_directory():
            remedy = "the current directory was removed, change to another one"
        return f"{error.strerror}{where and f': {where}'}{f': {remedy}' if remedy else ''}"
    if isinstance(error, OSError) and str(error):
        return str(error)
    if isinstance(error, UnicodeError):
        return f"a name or a file has text that is not valid UTF-8 ({quoted(error)}): rename it, or save it as UTF-8"
    return None


def _has_directory() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _flushes() -> bool:
    """Whether what was printed can be written."""
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _summary(error: BaseException) -> str:
    reason = quoted(next(iter(str(error).splitlines()), ""), 200)
    return f"{type(error).__name__}{reason and f': {reason}'}"


def _kept(error: BaseException) -> str:
    """Write the traceback to a file and say where; print it if there is no place for a file."""
    text = "".join(traceback.format_exception(error))
    try:
        handle, name = tempfile.mkstemp(prefix="understudy-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        display.warn(text)
        return "the traceback is above"
    return f"the traceback is in {name}"


class Stopped:
    """The signal that ended a command, if any."""

    signum: int | None = None

    def status(self, status: int) -> int:
        """The exit status: that of the signal, if the command was interrupted by it."""
        return 128 + self.signum if self.signum is not None and status == INTERRUPTED else status


@contextmanager
def stoppable() -> Iterator[Stopped]:
    """SIGTERM and SIGHUP interrupt the command as Ctrl-C does. A signal that is ignored, as by nohup, stays so."""
    stopped = Stopped()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    terminals = [number for number in (1, 2) if os.isatty(number)]

    def stop(signum: int, frame: object) -> None:
        stopped.signum = signum
        if signum == signal.SIGHUP and terminals:
            streams.silence(*terminals)  # the terminal is gone, and every write to it would fail
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL, None):
            interrupt(signum, frame)
        else:
            signal.raise_signal(signal.SIGINT)

    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in previous.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
