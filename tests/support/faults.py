"""Run the command line while the system refuses to write some files: python faults.py ERRNO PART WORDS...

Every attempt to make or open for writing a file whose path contains PART fails with ERRNO, as on a full disk, a
read-only one, or without permission. (Tests run as root, for whom permissions do not count.) With "write:PART" the file
can be opened, and writing to it fails.
"""

import builtins
import errno
import io
import os
import sys
from typing import Any


def inject(code: int, part: str) -> None:
    """Let writing to paths that contain `part` fail with an errno."""
    late, part = part.startswith("write:"), part.removeprefix("write:")

    def concerns(path: Any) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and part in os.fsdecode(path)

    def failure(path: Any = None) -> OSError:
        return OSError(code, os.strerror(code), *([] if path is None else [path]))

    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            raise failure()

    system_open, mkdir, file_open = os.open, os.mkdir, io.open

    def guarded_open(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if not late and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and concerns(path):
            raise failure(path)
        return system_open(path, flags, *rest, **named)

    def guarded_mkdir(path: Any, *rest: Any, **named: Any) -> None:
        if not late and concerns(path):
            raise failure(path)
        mkdir(path, *rest, **named)

    def guarded_file(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if set(mode) & set("wax+") and concerns(file):
            if not late:
                raise failure(file)
            buffered = io.BufferedWriter(Full(file, "w"))
            return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding="utf-8")
        return file_open(file, mode, *rest, **named)

    os.open, os.mkdir = guarded_open, guarded_mkdir
    builtins.open = io.open = guarded_file


if __name__ == "__main__":
    inject(getattr(errno, sys.argv[1]), sys.argv[2])
    sys.argv = ["understudy", *sys.argv[3:]]
    from understudy.cli.main import main

    main()
