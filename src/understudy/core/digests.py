"""Digests of the files of a directory, by which damage to any of them is seen when it is read.

They stand in a file that `sha256sum --check SHA256SUMS` understands. They are no signature: whoever changes a file on
purpose can write its digest, too.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from understudy.core.reader import FileReader

DIGESTS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  ([ -~]{1,1000})")


def write_digests(directory: Path, names: Iterable[str]) -> None:
    """Store the digests of files. Names are relative to the directory."""
    with (directory / DIGESTS).open("w") as file:
        for name in sorted(names):
            with (directory / name).open("rb") as contents:
                file.write(f"{hashlib.file_digest(contents, 'sha256').hexdigest()}  {name}\n")


def check_digests(directory: Path, names: Iterable[str], remedy: str) -> None:
    """Raise if one of the files is not the one that was written."""
    reader = FileReader(directory / DIGESTS, "a list of digests", remedy)
    found = [_LINE.fullmatch(line) for line in reader.text().split("\n")[:-1]]
    digests = {line[2]: line[1] for line in found if line is not None}
    if len(digests) < len(found):
        raise reader.damaged("each line has a digest and a name, and no name appears twice")
    for name in names:
        file = FileReader(directory / name, "the file that was written", remedy)
        if digests.get(name) != file.digest():
            raise file.damaged(f"its digest is not that in {DIGESTS}")
