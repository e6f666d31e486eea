"""Helper processes of our own: fresh Python interpreters that import nothing from the current directory and never
outlive the process that started them.
"""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from understudy.core.text import printable, shortened

PARENT = "UNDERSTUDY_PARENT"
"""Environment variable with the process id of a helper's parent."""
COMMAND = "UNDERSTUDY_COMMAND"
"""Environment variable with the command that the person typed, for helpers, whose own command line nobody typed."""
LONGEST_COMMAND = 10_000
"""Characters of a command that is stored with results."""
_PR_SET_PDEATHSIG = 1


def start_python(arguments: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """Start an interpreter. `options` are those of `subprocess.Popen`; `env` adds to this process's variables.

    `-P` keeps the current directory off the import path: a file `optax.py` there would be run. The helper finds the
    modules that this process finds, in the same order, through PYTHONPATH.
    """
    path = os.pathsep.join(folder for folder in sys.path if folder)
    variables = {**os.environ, "PYTHONPATH": path, PARENT: str(os.getpid())}
    variables |= {COMMAND: typed_command(), **options.pop("env", {})}
    return subprocess.Popen([sys.executable, "-P", *arguments], env=variables, **options)


def typed_command() -> str:
    """The command that the person typed, or the command of the process that started this helper."""
    inherited = os.environ.get(COMMAND)
    if inherited:
        return inherited
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    words = ["understudy" if program == "__main__.py" else program, *sys.argv[1:]]
    return shortened(printable(shlex.join(words)), LONGEST_COMMAND)


def exit_with_parent() -> None:
    """In a helper process: end when the process that started it ends, whatever this one is doing.

    The kernel kills it (Linux). Elsewhere a thread looks once a second, which a simulator that holds Python's lock can
    delay.
    """
    parent = int(os.environ.pop(PARENT, os.getppid()))  # popped: it is not the parent of our own helpers
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before this line
        os._exit(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
