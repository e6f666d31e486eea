"""The numbers of HDF5 datasets, read from the file without the HDF5 library, block by block."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from understudy.core.errors import UnderstudyError
from understudy.core.memory import array_bytes

DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3
FILTERS = (DEFLATE, SHUFFLE, FLETCHER32)
"""HDF5's numbers of the filters that are undone here. Others are refused."""
BLOCK = 4 << 20
"""Bytes read at once from a dataset without chunks."""
CHECKSUM = 4
"""Bytes of a Fletcher32 checksum."""
Index = tuple[slice, ...]


@dataclass
class Stored:
    """One dataset: what it declares, and where its numbers lie in the file."""

    file: Any
    file_size: int
    path: str
    shape: tuple[int, ...]
    dtype: np.dtype
    filters: tuple[int, ...]
    """In the order in which they were applied."""
    damaged: Callable[[object], UnderstudyError]
    offset: int | None = None
    """Where the numbers begin, if they lie in one piece."""
    chunk: tuple[int, ...] | None = None
    """The shape of a chunk, if they lie in chunks."""
    chunks: list[Any] = field(default_factory=list)
    """For each chunk: chunk_offset, filter_mask, byte_offset, size."""
    values: np.ndarray | None = None
    """The numbers themselves, if they are in the structure of the file."""

    @property
    def size(self) -> int:
        """Bytes of the numbers."""
        return array_bytes(self.shape, self.dtype)

    def check(self) -> None:
        """Raise unless all numbers lie inside the file, once each."""
        if self.values is not None:
            return
        if self.chunk is None:
            if self.offset is None:
                raise self.damaged(f"'{self.path}' was declared and never written")
            self._check_place(self.offset, self.size)
            return
        starts = {one.chunk_offset for one in self.chunks}
        wanted = np.prod(
            [-(-length // size) for length, size in zip(self.shape, self.chunk, strict=True)], dtype=object
        )
        inside = all(
            0 <= at < length and at % size == 0
            for start in starts
            for at, length, size in zip(start, self.shape, self.chunk, strict=True)
        )
        if len(starts) != len(self.chunks) or not inside:
            raise self.damaged(f"'{self.path}' has chunks at wrong places")
        if len(starts) != wanted:
            raise self.damaged(f"'{self.path}' has {len(starts)} of {wanted} chunks: some were never written")
        for one in self.chunks:
            self._check_place(one.byte_offset, one.size)

    def read(self, start: int = 0, stop: int | None = None, dtype: Any = None) -> np.ndarray:
        """Rows from `start` to before `stop`, as type `dtype` if given. Numbers that are too large become infinite."""
        if not self.shape:
            start, stop, out = 0, 1, np.empty((1,), dtype or self.dtype)
        else:
            stop = self.shape[0] if stop is None else stop
            out = np.empty((stop - start, *self.shape[1:]), dtype or self.dtype)
        if out.size:
            with np.errstate(over="ignore", invalid="ignore"):
                for index, piece in self._pieces(start, stop):
                    out[index] = piece
        return out if self.shape else out.reshape(())

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[Index, np.ndarray]]:
        """Blocks of the rows, with their place relative to `start`."""
        if self.values is not None:
            yield (slice(None),), self.values.reshape(self.shape or (1,))[start:stop]
        elif self.chunk is None:
            yield from self._contiguous(start, stop)
        else:
            yield from self._chunked(start, stop)

    def _contiguous(self, start: int, stop: int) -> Iterator[tuple[Index, np.ndarray]]:
        assert self.offset is not None
        row = array_bytes(self.shape[1:], self.dtype)
        count = max(1, BLOCK // row)
        for first in range(start, stop, count):
            last = min(first + count, stop)
            data = self._bytes(self.offset + first * row, (last - first) * row)
            yield (slice(first - start, last - start),), self._numbers(data).reshape(last - first, *self.shape[1:])

    def _chunked(self, start: int, stop: int) -> Iterator[tuple[Index, np.ndarray]]:
        assert self.chunk is not None
        for one in self.chunks:
            first, last = one.chunk_offset[0], min(one.chunk_offset[0] + self.chunk[0], self.shape[0])
            if last <= start or first >= stop:
                continue
            whole = self._numbers(self._decoded(one)).reshape(self.chunk)
            rows = slice(max(first, start), min(last, stop))
            others = [
                slice(at, min(at + size, length))
                for at, size, length in zip(one.chunk_offset[1:], self.chunk[1:], self.shape[1:], strict=True)
            ]
            inner = tuple(slice(0, piece.stop - piece.start) for piece in others)
            index = (slice(rows.start - start, rows.stop - start), *others)
            yield index, whole[(slice(rows.start - first, rows.stop - first), *inner)]

    def _decoded(self, one: Any) -> bytes:
        """The bytes of a chunk, with the filters undone in reverse order."""
        assert self.chunk is not None
        size = array_bytes(self.chunk, self.dtype)
        data = self._bytes(one.byte_offset, one.size)
        for position, code in reversed(list(enumerate(self.filters))):
            if one.filter_mask >> position & 1:  # the filter was skipped for this chunk
                continue
            if code == FLETCHER32:
                data = self._verified(data)
            elif code == DEFLATE:
                data = self._inflated(data, size + CHECKSUM)
            else:
                data = _unshuffled(data, self.dtype.itemsize)
        if len(data) != size:
            raise self.damaged(f"'{self.path}' has a chunk of {len(data)} bytes, not {size}")
        return data

    def _inflated(self, data: bytes, most: int) -> bytes:
        decompressor = zlib.decompressobj()
        try:
            result = decompressor.decompress(data, most + 1)
        except zlib.error as error:
            raise self.damaged(f"'{self.path}' has a damaged chunk ({error})") from error
        if len(result) > most or not decompressor.eof:
            raise self.damaged(f"'{self.path}' has a chunk that is cut off, or larger than declared")
        return result

    def _verified(self, data: bytes) -> bytes:
        contents, stored = data[:-CHECKSUM], data[-CHECKSUM:]
        sums = _fletcher32(contents)
        found = (int.from_bytes(stored[:2], "little"), int.from_bytes(stored[2:], "little"))
        swapped = (int.from_bytes(stored[:2], "big"), int.from_bytes(stored[2:], "big"))  # by HDF5 before 1.6.3
        if len(stored) < CHECKSUM or all((a % 65535, b % 65535) != sums for a, b in (found, swapped)):
            raise self.damaged(f"'{self.path}' has a chunk with a wrong checksum")
        return contents

    def _numbers(self, data: bytes) -> np.ndarray:
        if self.dtype.kind == "b" and np.frombuffer(data, np.uint8).max(initial=0) > 1:
            raise self.damaged(f"'{self.path}' has booleans that are neither 0 nor 1")
        return np.frombuffer(data, self.dtype)

    def _check_place(self, offset: int, size: int) -> None:
        if offset < 0 or offset + size > self.file_size:
            raise self.damaged(f"'{self.path}' lies beyond the end of the file, which is cut off or damaged")

    def _bytes(self, offset: int, size: int) -> bytes:
        self.file.seek(offset)
        data = self.file.read(size)
        if len(data) != size:
            raise self.damaged(f"'{self.path}' ends after {len(data)} of {size} bytes")
        return bytes(data)


def _unshuffled(data: bytes, width: int) -> bytes:
    """Undo HDF5's shuffle, which stores the first bytes of all numbers, then the second ones, and so on."""
    count = len(data) // width
    body = np.frombuffer(data, np.uint8, count * width).reshape(width, count).T
    return body.tobytes() + data[count * width :]


def _fletcher32(data: bytes) -> tuple[int, int]:
    """Fletcher's checksum over 16-bit words, as (low, high) half, modulo 65535."""
    words = np.frombuffer(data + b"\0" * (len(data) % 2), ">u2").astype(np.uint64)
    weights = np.arange(len(words), 0, -1, dtype=np.uint64) % np.uint64(65535)
    return int(words.sum()) % 65535, int((words * weights).sum()) % 65535
