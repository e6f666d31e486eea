"""The only reader of files that somebody else may have written: npz, JSON, CSV and text.

Names, types, shapes and sizes are checked before anything is decompressed, and unknown members of an npz file are
never decompressed. Nothing is unpickled. Every kind of damage raises an error of the caller's class, in one line that
names the file and says what to do.

Limits, so that a small file cannot fill the memory:

    npz     the arrays may take `LEAST` bytes or `FACTOR` times the size of the file, whichever is more, and at most
            `SHARE` of the machine's memory; the variable UNDERSTUDY_READ_LIMIT (bytes, or "8GB") replaces this limit
    text    JSON, CSV and TOML files may have `LONGEST_TEXT` bytes
"""

import csv
import hashlib
import io
import json
import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from understudy.core.errors import RunError, UnderstudyError
from understudy.core.memory import machine_memory, parse_size, readable
from understudy.core.npy import NUMBERS, TEXT, Expected, Header, check_header, read_array, read_header, read_rest
from understudy.core.patterns import mismatch
from understudy.core.text import quoted

__all__ = ["LIMIT", "NUMBERS", "TEXT", "Expected", "FileReader", "Header", "mismatch", "read_limit"]
LIMIT = "UNDERSTUDY_READ_LIMIT"
LEAST, FACTOR, SHARE = 256_000_000, 4, 0.25
SMALL = 16_000_000
"""Bytes of members of an archive that are not arrays, whatever the size of the archive."""
LONGEST_TEXT = 64_000_000
LONGEST_PATH, LONGEST_REASON = 1000, 240
"""Characters of a message. A path is the person's own text; a reason may quote the file."""
MOST_MEMBERS = 100_000
ZIP_END = 22
"""Bytes of the record at the end of an archive."""


class FileReader:
    """Reads one file. `what` names its kind ("a checkpoint"), `remedy` says what to do if it is damaged."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        what: str,
        remedy: str,
        error: type[UnderstudyError] = RunError,
    ):
        self.path, self.what, self.remedy, self.kind = Path(path), what, remedy, error
        self.name = quoted(path, LONGEST_PATH)

    def damaged(self, reason: object) -> UnderstudyError:
        """The error for a file that is not what it should be."""
        return self.kind(f"'{self.name}' is not {self.what} ({quoted(reason, LONGEST_REASON)}): {self.remedy}")

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn every way in which a damaged file can fail into the reader's error."""
        try:
            yield
        except UnderstudyError:
            raise
        except Exception as error:
            raise self.damaged(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error

    def start(self, count: int) -> bytes:
        """The first bytes of a regular file, which tell its kind."""
        with self.opened() as file, self.guarded():
            data: bytes = file.read(count)
            return data

    def bytes(self, limit: int = LONGEST_TEXT) -> bytes:
        """The contents of a regular file of at most `limit` bytes."""
        with self.opened() as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise self.damaged(f"it has {readable(size)}, and at most {readable(limit)} are read")
            with self.guarded():
                return file.read(limit)

    def digest(self) -> str:
        """The sha256 of a regular file."""
        with self.opened() as file, self.guarded():
            return hashlib.file_digest(file, "sha256").hexdigest()

    def text(self, limit: int = LONGEST_TEXT) -> str:
        """The contents of a UTF-8 file."""
        data = self.bytes(limit)
        with self.guarded():
            return data.decode("utf-8")

    def json(self, pattern: Any = None) -> Any:
        """The value in a JSON file, which must match `pattern` (see `mismatch`)."""
        return self.parse_json(self.text(), pattern)

    def parse_json(self, text: str, pattern: Any = None) -> Any:
        """The value of a JSON text. NaN, infinity and repeated keys are damage."""
        with self.guarded():
            value = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_no_repeats)
        wrong = None if pattern is None else mismatch(value, pattern)
        if wrong is not None:
            raise self.damaged(wrong)
        return value

    def csv(self, columns: Mapping[str, Callable[[str], Any]], others: Callable[[str], Any] | None = None) -> list[Any]:
        """The rows of a CSV file, as dicts. `columns` and `others` convert the texts; others=None: no other columns."""
        text = self.text()
        with self.guarded():
            header, *lines = csv.reader(io.StringIO(text, newline=""), strict=True)
            unknown = [name for name in header if name not in columns]
            missing = [name for name in columns if name not in header]
        if missing or len(set(header)) < len(header) or (unknown and others is None):
            raise self.damaged(f"its columns are {', '.join(header)}")
        rows = []
        for number, line in enumerate(lines, 2):
            if len(line) != len(header):
                raise self.damaged(f"line {number} has {len(line)} of {len(header)} columns")
            try:
                rows.append({name: (columns.get(name) or others)(x) for name, x in zip(header, line, strict=True)})
            except (ValueError, KeyError) as error:
                raise self.damaged(f"line {number}: {error}") from error
        return rows

    def npz_names(self) -> list[str]:
        """The names of the arrays in an npz file, without reading them."""
        with self.opened() as file, self._archive(file) as (_, members):
            return list(members)

    def members(
        self, wanted: Callable[[str], bool], most: int = SMALL, inside: bytearray | None = None
    ) -> dict[str, bytearray]:
        """The contents of some members of a zip archive, by name. `inside` is an archive that is a member itself.

        Together they may have `most` bytes or 4 times the size of the archive, whichever is more.
        """
        with self.opened() if inside is None else io.BytesIO(inside) as file, self._archive(file) as (archive, found):
            chosen = {name: member for name, member in found.items() if wanted(name)}
            total, size = sum(member.file_size for member in chosen.values()), file.seek(0, os.SEEK_END)
            limit = min(max(most, FACTOR * size), read_limit(size))
            if total > limit:
                raise self.damaged(f"{', '.join(chosen)} has {readable(total)}, and at most {readable(limit)} are read")
            contents = {}
            for name, member in chosen.items():
                with archive.open(member) as stream:
                    contents[name] = read_rest(stream, name, member.file_size, self.damaged)
            return contents

    def npz(
        self,
        expected: Callable[[str], Expected | None],
        required: Sequence[str] = (),
        check: Callable[[dict[str, Header]], None] | None = None,
    ) -> dict[str, np.ndarray]:
        """The arrays of an npz file. `expected(name)` is None for a member to leave unread.

        `check` gets what the expected members declare, before any is decompressed, and may raise.
        """
        with self.opened() as file, self._archive(file) as (archive, members):
            wanted = {name: want for name in members if (want := expected(name)) is not None}
            missing = [name for name in required if name not in wanted]
            if missing:
                raise self.damaged(f"it has no {', '.join(missing)}, only {', '.join(sorted(members)) or 'nothing'}")
            limit = read_limit(os.fstat(file.fileno()).st_size)
            self.check_total(sum(members[name].file_size for name in wanted), limit)
            headers = {}
            for name, want in wanted.items():
                with archive.open(members[name]) as stream:
                    headers[name] = read_header(stream, name, self.damaged)
                check_header(headers[name], name, members[name].file_size, want, self.damaged)
            self.check_total(sum(header.converted(wanted[name]) for name, header in headers.items()), limit)
            if check is not None:
                check(headers)
            arrays = {}
            for name, want in wanted.items():
                with archive.open(members[name]) as stream:
                    arrays[name] = read_array(stream, name, headers[name], want, self.damaged)
            return arrays

    def npy_header(self, want: Expected) -> Header:
        """What an npy file declares, checked."""
        with self.opened() as file, self.guarded():
            size = os.fstat(file.fileno()).st_size
            header = read_header(file, self.path.name, self.damaged)
            check_header(header, self.path.name, size, want, self.damaged)
            self.check_total(header.converted(want), read_limit(size))
            return header

    def npy(self, want: Expected) -> np.ndarray:
        """The array in an npy file."""
        header = self.npy_header(want)
        with self.opened() as file, self.guarded():
            return read_array(file, self.path.name, header, want, self.damaged)

    @contextmanager
    def text_stream(self) -> Iterator[IO[str]]:
        """The lines of a UTF-8 file of any size up to the limit of an npz file, to be read one after the other."""
        with self.opened() as file:
            size = os.fstat(file.fileno()).st_size
            self.check_total(size, read_limit(size))
            with self.guarded(), io.TextIOWrapper(file, "utf-8-sig", newline="") as stream:
                yield stream

    def check_total(self, total: int, limit: int) -> None:
        """Raise if arrays of `total` bytes are more than the limit."""
        if total > limit:
            raise self.kind(
                f"'{self.name}' declares {readable(total)} of arrays, and at most {readable(limit)} are read: "
                f"set {LIMIT}={math.ceil(total / 1e9)}GB if you trust it"
            )

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """The open file. Raises for a directory, a device or a pipe, which could block for ever."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise self.kind(f"no file '{self.name}': check the path") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise self.kind(f"'{self.name}' cannot be read ({reason}): check the path") from error
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            os.close(handle)
            raise self.damaged("a directory" if stat.S_ISDIR(mode) else "not a regular file")
        with os.fdopen(handle, "rb") as file:
            try:
                yield file
            except OSError as error:  # a damaged disk
                raise self.kind(f"'{self.name}' cannot be read ({error.strerror or error}): copy it again") from error

    @contextmanager
    def _archive(self, file: Any) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
        """An npz file, and its members by the names of their arrays. Their declarations are checked."""
        start = file.read(8)
        if not start.startswith(b"PK"):
            raise self.damaged(_other_kind(start))
        with self.guarded(), self._unzipped(file) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                raise self.damaged(f"it has {len(members)} members, and at most {MOST_MEMBERS} are read")
            self._check_ends(file, members)
            found: dict[str, zipfile.ZipInfo] = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in found:
                    raise self.damaged(f"it has '{name}' twice")
                if member.flag_bits & 0x1:
                    raise self.damaged(f"'{name}' is encrypted")
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise self.damaged(f"'{name}' has the unknown compression {member.compress_type}")
                archive.open(member).close()  # compares its name with that in front of its contents
                found[name] = member
            yield archive, found

    def _check_ends(self, file: Any, members: list[zipfile.ZipInfo]) -> None:
        """Raise if an archive has other bytes before or after it, or another number of members than it declares."""
        file.seek(-ZIP_END, os.SEEK_END)
        end = file.read(ZIP_END)
        count = int.from_bytes(end[10:12], "little")
        starts = min((member.header_offset for member in members), default=0)
        if end[:4] != b"PK\x05\x06" or starts != 0 or count not in (len(members), 0xFFFF):  # 0xFFFF: too many to count
            raise self.damaged("an npz file with other bytes before or after it, or without some of its members")

    def _unzipped(self, file: Any) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise self.damaged("an npz file that is cut off or damaged") from error


def read_limit(file_size: int) -> int:
    """How many bytes of arrays are read from an npz file of this size."""
    given = os.environ.get(LIMIT)
    if given is None:
        return min(max(LEAST, FACTOR * file_size), int(SHARE * machine_memory()))
    return parse_size(given, LIMIT)


def _other_kind(start: bytes) -> str:
    """What a file is that is no npz file, by its first bytes."""
    if start.startswith(b"\x93NUMPY"):
        return "a single array, not an npz file of named arrays, as np.savez writes it"
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a pickle, not an npz file; pickles are never read"
    return "not an npz file" if start else "an empty file"


def _no_constant(name: str) -> Any:
    raise ValueError(f"it contains {name}")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key appears twice")
    return result
