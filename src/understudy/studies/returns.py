"""The file of finished evaluations in a program's directory, returns.csv.

A row has the kind, x and key of an evaluation, its returns, and a checksum of the row. Rows are synced to the
disk when they are added. A damaged row, such as half a row after a power cut, is left out, and its policy is evaluated
again.
"""

import math
import sys
import zlib
from collections.abc import Collection
from pathlib import Path

import numpy as np

from understudy.core.errors import RunError
from understudy.core.reader import FileReader
from understudy.core.storage import append_text, atomic_file
from understudy.core.text import quoted
from understudy.studies.points import EvalPoint
from understudy.studies.records import LARGEST, X_KINDS, is_key

RETURNS = "returns.csv"
LONGEST = 1_000_000_000
"""Bytes of the file."""


class ReturnsFile:
    """returns.csv in a directory, for evaluations of a number of episodes of the cells with some keys."""

    def __init__(self, directory: Path, episodes: int):
        self.path, self.episodes = directory / RETURNS, episodes

    def read(self, keys: Collection[str]) -> dict[EvalPoint, np.ndarray]:
        """The returns of each evaluation. Damaged rows are removed from the file, and one line says so."""
        try:
            intact, damaged = self._read(keys)
        except RunError as error:
            self._rewrite([], quoted(error, 300))
            return {}
        if damaged:
            self._rewrite(list(intact), f"{self.path} has {damaged} damaged rows")
        return dict(intact.values())

    def intact(self, keys: Collection[str]) -> dict[EvalPoint, np.ndarray]:
        """The returns of each evaluation whose row is not damaged. Changes nothing."""
        return dict(self._read(keys)[0].values())

    def _read(self, keys: Collection[str]) -> tuple[dict[str, tuple[EvalPoint, np.ndarray]], int]:
        """The intact rows by their line, and the number of damaged ones."""
        if not self.path.exists() and not self.path.is_symlink():
            return {}, 0
        *rows, rest = FileReader(self.path, "a file of returns", "remove it").text(LONGEST).split("\n")
        intact = {line: row for line in rows if (row := self._parse(line, keys)) is not None}
        return intact, sum(line not in intact for line in rows) + bool(rest)

    def _rewrite(self, rows: list[str], reason: str) -> None:
        with atomic_file(self.path) as temporary:
            temporary.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        print(f"warning: {reason}: their policies are evaluated again", file=sys.stderr)

    def add(self, point: EvalPoint, returns: np.ndarray) -> None:
        """Add a row."""
        row = ",".join(map(str, (*point, *returns)))
        append_text(self.path, f"{row},{_checksum(row)}\n")

    def _parse(self, line: str, keys: Collection[str]) -> tuple[EvalPoint, np.ndarray] | None:
        row, _, checksum = line.rpartition(",")
        kind, x, key, *texts = [*row.split(","), *3 * [""]][: max(3, row.count(",") + 1)]
        if checksum != _checksum(row) or kind not in X_KINDS or not is_key(key) or key not in keys:
            return None
        if not _is_count(x) or len(texts) != self.episodes:
            return None
        try:
            returns = [float(text) for text in texts]
        except ValueError:
            return None
        if not all(math.isfinite(value) and abs(value) <= LARGEST for value in returns):
            return None
        return EvalPoint(kind, int(x), key), np.array(returns, np.float64)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 16


def _checksum(row: str) -> str:
    return f"{zlib.crc32(row.encode()):08x}"
