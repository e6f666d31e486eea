"""Parquet files that somebody else may have written.

The index at the end of a file says for each column and row group how many values there are and how many bytes they
take. Types and these numbers are checked first and compared with the pages (`core.parquet_pages`); only then pyarrow
reads the wanted columns, one row group after the other. So a small file cannot fill the memory: neither with
compression, nor with repeated values. Text is read as a dictionary, so that a repeated text is there only once.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from understudy.core.columns import Column, Want, check_field, converted, load_pyarrow
from understudy.core.folder import Folder, Refused
from understudy.core.parquet_pages import Chunk, check_pages, read_index

NUMBERS = {"bool": 1, "int32": 4, "float32": 4, "int64": 8, "float64": 8}
TEXT = {"text": 8}
"""Types, and the bytes of a value in memory; of a text, those that point to it."""
LEVELS = 4
"""Bytes for each value that say to which row it belongs."""


def parquet_blocks(folder: Folder, name: str, wants: Sequence[Want]) -> Iterator[dict[str, Column]]:
    """The row groups of a Parquet file: its columns by name."""
    file = folder.file(name)
    pa = load_pyarrow()
    folder.weigh(name)
    with file.opened() as raw, folder.reading(name):
        size = os.fstat(raw.fileno()).st_size
        groups = read_index(raw, size)
        leaves = {want: _leaf(groups[0], want) for want in wants} if groups else {}
        found = {want: leaf for want, leaf in leaves.items() if leaf is not None}
        texts = [".".join(groups[0][leaf].path) for want, leaf in found.items() if want.text]
        opened = pa.parquet.ParquetFile(
            pa.PythonFile(_Bounded(raw, size), mode="r"),
            read_dictionary=texts,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        for number, group in enumerate(groups):
            chunks = [group[leaf] for leaf in found.values()]
            folder.check_fits(name, sum(map(_declared, chunks)))
            for chunk in chunks:
                check_pages(raw, chunk)
            names = [".".join(chunk.path) for chunk in chunks]
            table = opened.read_row_group(number, columns=names, use_threads=False)
            yield {want.name: _column(table, want, lambda more: folder.reserve(name, more)) for want in found}


def _leaf(columns: Sequence[Chunk], want: Want) -> int | None:
    """Which stored column a wanted one is; None: it is optional and absent."""
    names = [".".join(column.path) for column in columns]
    found = [i for i, column in enumerate(columns) if column.path[: len(want.path)] == want.path]
    if len(found) > 1 or (not found and not want.optional):
        raise Refused(f"it has {len(found)} columns '{want.name}', not one, of {', '.join(names)}")
    # pyarrow finds columns by their joined names
    if found and sum(f"{name}.".startswith(f"{names[found[0]]}.") for name in names) > 1:
        raise Refused(f"it has several columns whose names begin with '{names[found[0]]}'")
    kinds = TEXT if want.text else NUMBERS
    if found and columns[found[0]].kind not in kinds:
        raise Refused(f"'{want.name}' has type {columns[found[0]].kind}, and {', '.join(kinds)} are read")
    return found[0] if found else None


def _declared(chunk: Chunk) -> int:
    """Bytes that a column of a row group takes in memory."""
    return max(chunk.unpacked, chunk.values * ((NUMBERS | TEXT)[chunk.kind] + LEVELS), chunk.rows * LEVELS)


def _column(table: Any, want: Want, reserve: Callable[[int], None]) -> Column:
    found = table.schema.get_all_field_indices(want.path[0])
    if len(found) != 1:
        raise Refused(f"it has {len(found)} columns '{want.path[0]}', not one")
    check_field(table.schema.field(found[0]), want)
    column = table.column(found[0])
    if column.num_chunks > 1:
        column = load_pyarrow().chunked_array([column.combine_chunks()])
    if column.num_chunks != 1:
        raise Refused(f"'{want.name}' cannot be read in one piece")
    return converted(column.chunk(0), want, reserve)


class _Bounded:
    """An open file for pyarrow, which leaves it open. A read allocates no more than the file has."""

    def __init__(self, raw: Any, size: int):
        self._raw, self._size, self.closed = raw, size, False

    def read(self, size: int = -1) -> bytes:
        return self._raw.read(size if size < 0 else min(size, self._size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()

    def close(self) -> None:
        self.closed = True
