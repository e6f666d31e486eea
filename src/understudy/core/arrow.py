"""Arrow files (IPC streams and IPC files) that somebody else may have written.

The messages of a file are walked first: their kinds, and that their contents lie inside the file. Compressed contents,
dictionaries and another byte order are refused, so nothing takes more memory than it has bytes in the file. Then the
record batches are read one by one. pyarrow checks all offsets before they are used. Nothing is mapped into memory.

An IPC file is a stream between two markers, with an index at its end, which is not needed.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from understudy.core.columns import Column, Want, check_field, converted, load_pyarrow
from understudy.core.folder import Folder, Refused
from understudy.core.reader import FileReader

FILE_START, FILE_END = b"ARROW1\0\0", b"ARROW1"
CONTINUED, END = 0xFFFFFFFF, bytes.fromhex("ffffffff00000000")
SCHEMA, BATCH = 1, 3
"""Kinds of messages."""
LONGEST_MESSAGE = 16_000_000
"""Bytes of a message without its contents."""


def arrow_blocks(folder: Folder, name: str, wants: Sequence[Want]) -> Iterator[dict[str, Column]]:
    """The record batches of an IPC file or stream: its columns by name."""
    file = folder.file(name)
    pa = load_pyarrow()
    folder.weigh(name)
    with file.opened() as raw, folder.reading(name):
        size = os.fstat(raw.fileno()).st_size
        start, largest = _check_messages(file, raw, size)
        folder.check_fits(name, largest)
        raw.seek(start)
        with pa.ipc.open_stream(_Stream(raw), options=_options(pa, [])) as stream:
            schema = stream.schema
        raw.seek(start)
        wants = [want for want in wants if not want.optional or _is_there(schema, want)]
        indices = _indices(schema, wants)
        options = _options(pa, indices)
        with pa.ipc.open_stream(_Stream(raw), options=options) as stream:
            for batch in stream:
                yield {
                    want.name: converted(batch.column(want.path[0]), want, lambda more: folder.reserve(name, more))
                    for want in wants
                }


def _options(pa: Any, fields: list[int]) -> Any:
    return pa.ipc.IpcReadOptions(use_threads=False, ensure_native_endian=False, included_fields=fields)


def _is_there(schema: Any, want: Want) -> bool:
    """Whether a column has the wanted field."""
    for name in want.path:
        found = schema.get_all_field_indices(name) if hasattr(schema, "get_all_field_indices") else []
        if not found:
            return False
        schema = schema.field(found[0]).type
    return True


def _indices(schema: Any, wants: Sequence[Want]) -> list[int]:
    """Where the wanted columns are, in order."""
    found = set()
    for want in wants:
        at = schema.get_all_field_indices(want.path[0])
        if len(at) != 1:
            raise Refused(f"it has {len(at)} columns '{want.path[0]}', not one, of {', '.join(schema.names)}")
        check_field(schema.field(at[0]), want)
        found.add(at[0])
    return sorted(found)


class _Stream:
    """An open file for pyarrow, which leaves it open."""

    def __init__(self, raw: Any):
        self._raw, self.closed = raw, False

    def read(self, size: int = -1) -> bytes:
        return self._raw.read(size)

    def close(self) -> None:
        self.closed = True


def _check_messages(file: FileReader, raw: Any, size: int) -> tuple[int, int]:
    """Walk the messages of a file. Returns where they begin, and the bytes of the largest one.

    Raises if one is not allowed.
    """
    marked = raw.read(len(FILE_START)) == FILE_START
    at = len(FILE_START) if marked else 0
    kinds: list[int] = []
    largest = 0
    while True:
        raw.seek(at)
        prefix = raw.read(8)
        if prefix == END:
            break
        if len(prefix) < 8:
            raise file.damaged("it is cut off")
        mark, length = struct.unpack("<II", prefix)
        if mark != CONTINUED or length > min(LONGEST_MESSAGE, size - at - 8):
            raise file.damaged("not an Arrow file" if not kinds else f"message {len(kinds)} is damaged")
        kind, body = _message(raw.read(length))
        if kind != (BATCH if kinds else SCHEMA):
            raise file.damaged(f"message {len(kinds)} is of kind {kind}; dictionaries and tensors are not read")
        at += 8 + length + body
        if not 0 <= body <= size or at > size:
            raise file.damaged(f"message {len(kinds)} declares {body} bytes, and the file has {size}")
        kinds.append(kind)
        largest = max(largest, body)
    if not kinds:
        raise file.damaged("an empty Arrow stream")
    if marked:
        raw.seek(size - len(FILE_END))
        if raw.read() != FILE_END:
            raise file.damaged("it is cut off")
    elif at + len(END) != size:
        raise file.damaged("it has other bytes at its end")
    return (len(FILE_START) if marked else 0), largest


def _message(data: bytes) -> tuple[int, int]:
    """The kind of a message and the bytes of its contents. Raises Refused or struct.error if it is not allowed.

    A message is a flatbuffer: a table begins with the distance to its list of fields, each two bytes, 0 if absent.
    """

    def field(table: int, index: int) -> int:
        """Where a field of a table is; 0: it is absent."""
        fields = table - struct.unpack_from("<i", data, table)[0]
        if fields < 0:
            raise Refused("a damaged message")
        if 4 + 2 * index >= struct.unpack_from("<H", data, fields)[0]:
            return 0
        offset = struct.unpack_from("<H", data, fields + 4 + 2 * index)[0]
        return table + offset if offset else 0

    def number(table: int, index: int, code: str) -> int:
        at = field(table, index)
        return struct.unpack_from(code, data, at)[0] if at else 0

    root = struct.unpack_from("<I", data)[0]
    kind, at = number(root, 1, "<B"), field(root, 2)
    content = at + struct.unpack_from("<I", data, at)[0]
    if kind == SCHEMA and number(content, 0, "<h") != 0:
        raise Refused("its numbers are big-endian")
    if kind == BATCH and field(content, 3):
        raise Refused("its record batches are compressed: write them without compression")
    return kind, number(root, 3, "<q")
