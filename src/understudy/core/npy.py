"""Arrays in NumPy's format, read from a stream: type, shape and size first, then the contents by blocks.

Nothing is unpickled. `damaged` is the caller's function that makes an error of a reason.
"""

import io
import math
import tokenize
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.core.memory import array_bytes, readable

LONGEST_HEADER = 4096
"""Bytes of the header of an array."""
BLOCK = 1 << 20
HEADERS = {1: (2, np.lib.format.read_array_header_1_0), 2: (4, np.lib.format.read_array_header_2_0)}
"""NumPy's formats: the width of the header's length, and the function that reads the rest."""
NUMBERS, TEXT = "fiub", "U"
"""Kinds of arrays: numbers and booleans, text."""
PICKLED = "holds pickled objects, which are never read"
Damaged = Callable[[object], Exception]


@dataclass(frozen=True)
class Expected:
    """The array that is expected under a name."""

    kinds: str = NUMBERS
    """NumPy's kinds of dtypes: f, i, u, b or U."""
    shape: tuple[int | None, ...] | None = None
    """None: any shape; None in the tuple: any length."""
    finite: bool = False
    """Whether NaN and infinity are refused."""
    itemsize: int = 1
    """Bytes of one number after the caller has converted it, if that is more than in the file."""
    most: int | None = None
    """Bytes that the array may have; None: no limit of its own."""


@dataclass(frozen=True)
class Header:
    """What a file declares about its array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    length: int
    """Bytes of the header itself."""

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return array_bytes(self.shape, self.dtype)

    def converted(self, want: Expected) -> int:
        """Bytes of the array in the type that the caller converts it to."""
        return max(self.size, array_bytes(self.shape, np.uint8) * want.itemsize)


def read_header(stream: Any, name: str, damaged: Damaged) -> Header:
    """The header at the start of a stream."""
    magic = stream.read(8)
    if magic not in (b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00"):
        raise damaged(f"'{name}' is not an array")
    width, parse = HEADERS[magic[6]]
    length_bytes = stream.read(width)
    length = int.from_bytes(length_bytes, "little")
    if length > LONGEST_HEADER:
        raise damaged(f"'{name}' has a header of {length} bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of odd escape sequences in a damaged header
            shape, fortran, dtype = parse(io.BytesIO(length_bytes + stream.read(length)), LONGEST_HEADER)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError) as error:
        raise damaged(f"'{name}' has a damaged header") from error
    if dtype.hasobject:
        raise damaged(f"'{name}' {PICKLED}")
    if dtype.names is not None or dtype.subdtype is not None or any(length < 0 for length in shape):
        raise damaged(f"'{name}' has type {dtype} and shape {shape}")
    return Header(dtype, shape, bool(fortran), 8 + width + length)


def check_header(header: Header, name: str, file_size: int, want: Expected, damaged: Damaged) -> None:
    """Raise if an array is not the expected one, or has another size than its file."""
    if header.length + header.size != file_size:
        raise damaged(f"'{name}' of shape {header.shape} has {file_size - header.length} bytes, not {header.size}")
    if header.dtype.kind not in want.kinds:
        raise damaged(f"'{name}' has type {header.dtype}")
    if want.shape is not None and not _fits(header.shape, want.shape):
        raise damaged(f"'{name}' has shape {header.shape}")
    if want.most is not None and header.size > want.most:
        raise damaged(f"'{name}' has {readable(header.size)}, and at most {readable(want.most)} are read")


def read_rest(stream: Any, name: str, size: int, damaged: Damaged) -> bytearray:
    """The rest of a stream, which must have `size` bytes."""
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        count = stream.readinto(view[at : at + BLOCK])
        if not count:
            raise damaged(f"'{name}' ends after {at} of {size} bytes")
        at += count
    if stream.read(1):  # reads to the end, where an archive's checksum is compared
        raise damaged(f"'{name}' is longer than declared")
    return data


def read_array(stream: Any, name: str, header: Header, want: Expected, damaged: Damaged) -> np.ndarray:
    """The array in a stream that stands at its beginning."""
    dtype, shape, size = header.dtype, header.shape, header.size
    stream.read(header.length)
    data = read_rest(stream, name, size, damaged)
    flat = np.frombuffer(data, dtype) if size else np.empty(math.prod(shape), dtype)
    array = flat.reshape(shape[::-1]).T if header.fortran else flat.reshape(shape)
    if dtype.kind == "b" and size and np.frombuffer(data, np.uint8).max() > 1:
        raise damaged(f"'{name}' has booleans that are neither 0 nor 1")
    if dtype.kind == "U" and size and not _is_unicode(np.frombuffer(data, f"{dtype.byteorder}u4")):
        raise damaged(f"'{name}' has characters that are not Unicode")
    if want.finite and dtype.kind == "f" and not np.isfinite(array).all():
        raise damaged(f"'{name}' has NaN or infinite numbers")
    return array


def _is_unicode(codes: np.ndarray) -> bool:
    """Whether all codes are characters, and none is half of a pair."""
    return bool((codes <= 0x10FFFF).all()) and not bool(((codes >= 0xD800) & (codes <= 0xDFFF)).any())


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(want in (None, have) for have, want in zip(shape, wanted, strict=True))
