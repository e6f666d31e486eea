"""The bytes that the HDF5 library gets to see: damage on which it would hang or take gigabytes is found before.

Texts whose lengths are not fixed lie in heaps. The library searches a heap by adding up the sizes of its objects, and a
size that overflows or is 0 lets it search for ever. And it makes room for a text of whatever length an attribute
declares. Both were found by fuzzing HDF5 2.0.0 with h5py 3.16.
"""

import io
import os
from typing import Any

LONGEST_TEXT = 1_000_000
"""Bytes of a text in a file, such as a JSON text with the settings of an environment."""
LARGEST_HEAP = 10 * LONGEST_TEXT
HEAP, HEADER = b"GCOL", 16
"""How a heap begins, and the bytes in front of it and of each of its objects."""
VARIABLE = 9
"""HDF5's class of types of variable length."""


class Watched(io.RawIOBase):
    """A file as the HDF5 library sees it. `attributes` are the names of those that will be read."""

    def __init__(self, raw: Any, attributes: tuple[str, ...]):
        self._raw, self._names = raw, [name.encode() + b"\0" for name in attributes]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()

    def readinto(self, buffer: Any) -> int:
        start = self._raw.tell()
        count = self._raw.readinto(buffer)
        data = bytes(buffer[:count])
        if data.startswith(HEAP):
            self._check_heap(start, _number(data, 8, 8))
            self._raw.seek(start + count)
        for name in self._names:
            at = data.find(name)
            while at >= 0:
                _check_attribute(data, at, len(name))
                at = data.find(name, at + 1)
        return count

    def _check_heap(self, start: int, total: int) -> None:
        """Raise unless the objects of a heap fill it, one after the other. The library may read it in two parts."""
        self._raw.seek(start)
        data = self._raw.read(total) if total <= LARGEST_HEAP else b""
        if len(data) != total:
            raise OSError("a heap of texts that is too large or cut off")
        at = HEADER
        while at + HEADER <= total:
            index, size = _number(data, at, 2), _number(data, at + 8, 8)
            step = size if index == 0 else HEADER + -(-size // 8) * 8  # object 0 is the free space
            if step < HEADER or at + step > total:
                raise OSError("a damaged heap of texts")
            at += step


def _check_attribute(data: bytes, at: int, length: int) -> None:
    """Raise if an attribute, whose name is `at` a place, declares a text that is too long.

    In front of the name are: version, flags, three sizes (of name, type and space), and in version 3 the encoding.
    """
    for version, start in ((1, at - 8), (2, at - 8), (3, at - 9)):
        if start < 0 or data[start] != version or _number(data, start + 2, 2) != length:
            continue
        sizes = [_number(data, start + place, 2) for place in (2, 4, 6)]
        sizes = [-(-size // 8) * 8 for size in sizes] if version == 1 else sizes  # padded
        shared = version > 1 and data[start + 1] & 1
        kind = data[at + sizes[0] : at + sizes[0] + 1]
        if shared or (kind and kind[0] & 0x0F == VARIABLE and _number(data, at + sum(sizes), 4) > LONGEST_TEXT):
            raise OSError("an attribute with a text that is too long, or of an unusual type")


def _number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")
