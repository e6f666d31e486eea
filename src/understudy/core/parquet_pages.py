"""What a Parquet file says about its columns, read without pyarrow, which dies of some damaged files.

`read_index` reads the index at the end of a file. `check_pages` compares the pages of a column with it, without
decompressing them: pages name the number of their values and their size in memory too, and only those count.
"""

from typing import Any, NamedTuple

from understudy.core.folder import Refused
from understudy.core.thrift import read_struct

MAGIC = b"PAR1"
LONGEST_INDEX = 256_000_000
FIRST_READ, LONGEST_HEADER = 1024, 1 << 20
"""Bytes that are read for the header of a page at first, and at most."""
TYPES = {0: "bool", 1: "int32", 2: "int64", 4: "float32", 5: "float64", 6: "text"}
REPEATED, GROUP = 2, -1
DATA_PAGES = {0: 5, 3: 8}
"""Types of pages with values: the field of their header that says how many."""
DICTIONARY_PAGE, DICTIONARY = 2, 7
"""The type of a page with a dictionary, and the field of its header that says how many values it has."""
ENCODINGS, TEXT_ENCODINGS = (0, 2, 3, 4, 5, 8, 9), (0, 2, 3, 8)
"""Text may be plain or a dictionary: in other encodings a few bytes can stand for a long text."""


class Chunk(NamedTuple):
    """A column of one row group."""

    path: tuple[str, ...]
    kind: str
    """One of `TYPES`, or "other"."""
    rows: int
    values: int
    """Rows, or entries of all lists."""
    start: int
    """Where its pages begin in the file."""
    packed: int
    """Bytes in the file."""
    unpacked: int
    """Bytes without compression, as declared."""


def read_index(raw: Any, size: int) -> list[list[Chunk]]:
    """The columns of each row group. Raises Refused or another exception if the index is damaged."""
    raw.seek(max(size - 8, 0))
    tail = raw.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > min(size - 12, LONGEST_INDEX):
        raise Refused("not a Parquet file, or it is cut off")
    raw.seek(size - 8 - length)
    index, _ = read_struct(raw.read(length))
    if 8 in index:
        raise Refused("it is encrypted")
    columns = _columns(index[2])
    groups = [_group(group, columns) for group in index[4]]
    if sum(group[0].rows for group in groups) != index[3]:
        raise Refused(f"it declares {index[3]} rows, and its row groups have others")
    return groups


def check_pages(raw: Any, chunk: Chunk) -> None:
    """Raise Refused unless the pages of a column hold what the index declares."""
    name, at, end = ".".join(chunk.path), chunk.start, chunk.start + chunk.packed
    values = unpacked = 0
    while values < chunk.values:
        header, length = _header(raw, at, end)
        kind, unpacked_size, packed_size = header[1], header[2], header[3]
        at, unpacked = at + length + packed_size, unpacked + length + unpacked_size
        if min(unpacked_size, packed_size) < 0 or at > end or unpacked > max(chunk.unpacked, chunk.packed):
            raise Refused(f"the pages of '{name}' are larger than declared")
        if kind in DATA_PAGES:
            page = header[DATA_PAGES[kind]]
            count, encoding = page[1], page[2 if kind == 0 else 4]
            values += count
            if count < 0 or values > chunk.values:
                raise Refused(f"'{name}' declares {chunk.values} values, and its pages hold {values}")
            if encoding not in (TEXT_ENCODINGS if chunk.kind == "text" else ENCODINGS):
                raise Refused(f"'{name}' has the encoding {encoding}, which is not read")
        elif kind != DICTIONARY_PAGE or not 0 <= header[DICTIONARY][1] <= unpacked_size:  # a value has at least a byte
            raise Refused(f"'{name}' has a page of type {kind} that is not read")
    if at != end:
        raise Refused(f"'{name}' has more pages than declared")


def _columns(elements: list[Any]) -> list[tuple[tuple[str, ...], str, bool]]:
    """Path, type and whether it is in a list, for each column. The schema is a tree, written from its root on."""
    found: list[tuple[tuple[str, ...], str, bool]] = []
    open_groups = [[elements[0][5], (), False]]  # children that are missing, path, whether repeated
    for element in elements[1:]:
        while open_groups and open_groups[-1][0] == 0:
            open_groups.pop()
        parent = open_groups[-1]
        parent[0] -= 1
        path = (*parent[1], element[4].decode("utf-8"))
        repeated = parent[2] or element.get(3) == REPEATED
        if element.get(5):
            open_groups.append([element[5], path, repeated])
        else:
            found.append((path, TYPES.get(element.get(1, GROUP), "other"), repeated))
    return found


def _group(group: dict[int, Any], columns: list[tuple[tuple[str, ...], str, bool]]) -> list[Chunk]:
    rows, chunks = group[3], []
    for stored, (path, kind, repeated) in zip(group[1], columns, strict=True):
        about = stored[3]
        values, unpacked, packed, start = (about[i] for i in (5, 6, 7, 9))
        if 0 < about.get(11, 0) < start:
            start = about[11]  # its dictionary comes first
        declared = TYPES.get(about[1], "other"), tuple(part.decode("utf-8") for part in about[3])
        if declared != (kind, path) or stored.get(1) or min(rows, values, unpacked, packed, start) < 0:
            raise Refused(f"'{'.'.join(path)}' is described in two ways")
        if not repeated and values != rows:
            raise Refused(f"'{'.'.join(path)}' declares {values} values in {rows} rows")
        chunks.append(Chunk(path, kind, rows, values, start, packed, unpacked))
    return chunks


def _header(raw: Any, at: int, end: int) -> tuple[dict[int, Any], int]:
    """The header of a page, and its length in bytes."""
    wanted = FIRST_READ
    while True:
        raw.seek(at)
        try:
            return read_struct(raw.read(max(min(wanted, end - at), 0)))
        except IndexError:
            if wanted == LONGEST_HEADER or at + wanted >= end:
                raise Refused("the header of a page is cut off") from None
            wanted = LONGEST_HEADER
