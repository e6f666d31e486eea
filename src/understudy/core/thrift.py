"""Structs in Thrift's compact protocol, in which Parquet files describe themselves.

A struct is a list of fields, each a byte with its type and the distance to the number of the last field, then its
value; a zero byte ends the struct. Whole numbers are stored in groups of seven bits. Everything is bounds-checked:
IndexError if the data is cut off, ValueError if it is not Thrift.
"""

from typing import Any

DEEPEST = 16
LEAST, BYTES_EACH = 1000, 4
"""Structs and lists of any data, and the bytes of data for each one more."""
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12


def read_struct(data: bytes, at: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by their numbers, and where it ends. Structs are dicts, strings are bytes."""
    return _struct(data, at, 0, _Budget(len(data)))


class _Budget:
    """The structs and lists that may still come. An empty one has one byte in the data, and 64 or more in memory."""

    def __init__(self, size: int):
        self.left = LEAST + size // BYTES_EACH

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ValueError("too many empty structs or lists")


def _struct(data: bytes, at: int, depth: int, budget: _Budget) -> tuple[dict[int, Any], int]:
    budget.take()
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _whole(data, at)
        kind = head & 0x0F
        if kind in (TRUE, FALSE):
            fields[number] = kind == TRUE
        else:
            fields[number], at = _value(data, at, kind, depth, budget)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int, budget: _Budget) -> tuple[Any, int]:
    if I16 <= kind <= I64:
        return _whole(data, at)
    if kind == BINARY:
        length, at = _varint(data, at)
        return _block(data, at, length), at + length
    if kind == STRUCT:
        if depth == DEEPEST:
            raise ValueError("structs in too many levels")
        return _struct(data, at, depth + 1, budget)
    if kind in (LIST, SET):
        return _list(data, at, depth, budget)
    if kind in (BYTE, TRUE, FALSE):  # booleans are bytes in a list
        return data[at], at + 1
    if kind == DOUBLE:
        return _block(data, at, 8), at + 8
    raise ValueError(f"a value of the unknown type {kind}")


def _list(data: bytes, at: int, depth: int, budget: _Budget) -> tuple[list[Any], int]:
    budget.take()
    count, kind = data[at] >> 4, data[at] & 0x0F
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data) - at:  # every value has at least one byte
        raise IndexError("a list is cut off")
    if depth == DEEPEST:
        raise ValueError("lists in too many levels")
    values = []
    for _ in range(count):
        value, at = _value(data, at, kind, depth + 1, budget)
        values.append(value)
    return values, at


def _block(data: bytes, at: int, length: int) -> bytes:
    if length > len(data) - at:
        raise IndexError("bytes are cut off")
    return data[at : at + length]


def _whole(data: bytes, at: int) -> tuple[int, int]:
    """A whole number, whose sign is its lowest bit."""
    coded, at = _varint(data, at)
    return coded >> 1 ^ -(coded & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value, shift = value & 0x7F, 7
    while shift < 70:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than 64 bits")
