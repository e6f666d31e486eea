"""HDF5 files that somebody else may have written.

The HDF5 library reads only the structure of a file: names, types, shapes, and where the numbers lie. `core.hdf5_arrays`
reads the numbers from the file itself. So no filter plugin is loaded for them, and no chunk can grow beyond its size.
`core.hdf5_watch` looks for damage on which the library would hang.

Refused: links other than hard ones, datasets with their numbers in another file (external storage, virtual datasets),
types other than plain numbers and text, filters other than gzip, shuffle and fletcher32, and parts that were never
written. Groups are opened by name, never walked, so that a group that contains itself does no harm.

All arrays together have the limit of npz files (`core.reader.read_limit`), compared before they are read.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import UnderstudyError, missing_extra
from understudy.core.hdf5_arrays import FILTERS, Stored
from understudy.core.hdf5_watch import LONGEST_TEXT, Watched
from understudy.core.memory import array_bytes
from understudy.core.reader import MOST_MEMBERS, NUMBERS, FileReader, read_limit
from understudy.core.text import quoted

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MOST_TEXTS = 100_000
TEXT_PLACE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("index", "<u4")])
"""How a text is stored whose length is not fixed."""
MOST_CHUNKS = 2_000_000
"""Pieces of one dataset."""
WIDEST = 8
"""Bytes of a number."""


def is_hdf5(path: Path) -> bool:
    """Whether a regular file begins as an HDF5 file does. It never raises."""
    try:
        return Hdf5Reader(path, "an HDF5 file", "").signed()
    except UnderstudyError:
        return False


def load_h5py() -> Any:
    """The library h5py."""
    try:
        import h5py
    except ImportError as error:
        raise missing_extra("data", "HDF5 files need h5py") from error
    return h5py


class Hdf5File:
    """An open HDF5 file. `Hdf5Reader.hdf5` opens it. Paths in it are names joined by slashes; "" is the root."""

    def __init__(self, reader: "Hdf5Reader", raw: Any, file: Any, attributes: tuple[str, ...]):
        self._reader, self._raw, self._file, self._h5py = reader, raw, file, load_h5py()
        self._attributes = attributes
        self._size = os.fstat(raw.fileno()).st_size
        self._limit, self._total = read_limit(self._size), 0
        self._parent: tuple[str | None, Any] = (None, None)  # the group that was opened last, with its path

    @property
    def name(self) -> str:
        """The path of the file, for errors."""
        return self._reader.name

    def damaged(self, reason: object) -> UnderstudyError:
        """The error for a file that is not what it should be."""
        return self._reader.damaged(reason)

    def reserve(self, size: int) -> None:
        """Count bytes of arrays that will be read or made. Raises if there are too many."""
        self._total += size
        self._reader.check_total(self._total, self._limit)

    def names(self, path: str = "") -> list[str]:
        """The names in a group, sorted."""
        group = self._group(path)
        if len(group) > MOST_MEMBERS:
            raise self.damaged(f"'{path}' has {len(group)} members, and at most {MOST_MEMBERS} are read")
        return sorted(name.decode("utf-8", "backslashreplace") for name in group)

    def has(self, path: str) -> bool:
        """Whether there is something under a path."""
        return self._found(path) is not None

    def is_group(self, path: str) -> bool:
        return isinstance(self._found(path), self._h5py.h5g.GroupID)

    def declared(self, path: str) -> tuple[tuple[int, ...], np.dtype]:
        """The shape and the type of a dataset, which may be of any kind."""
        found = self._dataset(path)
        return tuple(int(length) for length in found.shape), found.dtype

    def dataset(self, path: str, itemsize: int = 4, rows: int | None = None, kinds: str = NUMBERS) -> Stored:
        """A dataset, checked and not yet read. Its size counts for the limit of the file.

        Args:
            path: Its names, joined by slashes.
            itemsize: Bytes of one number after the caller has converted it, if that is more than in the file.
            rows: Rows that will be read; None: all.
            kinds: NumPy's kinds of dtypes.
        """
        found = self._dataset(path)
        dtype, shape = self._type(path, found, kinds), tuple(int(length) for length in found.shape)
        read = shape if rows is None else (min(rows, shape[0]), *shape[1:])
        self.reserve(array_bytes(read, np.uint8) * max(itemsize, dtype.itemsize))
        return self._stored(path, found, dtype, shape)

    def attribute(self, path: str, name: str) -> str | None:
        """The text of an attribute, or None. `Hdf5Reader.hdf5` has to know its name."""
        assert name in self._attributes, name
        h5a = self._h5py.h5a
        owner = self.opened(path)
        if not h5a.exists(owner, name.encode()):
            return None
        found = h5a.open(owner, name.encode())
        kind = found.get_type()
        if not isinstance(kind, self._h5py.h5t.TypeStringID) or math.prod(found.shape) != 1:
            raise self.damaged(f"the attribute '{name}' of '{path}' is not a text")
        if found.get_storage_size() > LONGEST_TEXT:
            raise self.damaged(f"the attribute '{name}' of '{path}' has {found.get_storage_size()} bytes")
        value = np.empty(found.shape, found.dtype)
        found.read(value)
        return self._text(f"{path}.{name}", value.reshape(-1)[0])

    def texts(self, path: str) -> list[str]:
        """A dataset of texts."""
        found = self._dataset(path)
        if not isinstance(found.get_type(), self._h5py.h5t.TypeStringID):
            raise self.damaged(f"'{path}' is not a list of texts")
        count = math.prod(found.shape)
        if count > MOST_TEXTS or found.get_storage_size() > 10 * LONGEST_TEXT:
            raise self.damaged(f"'{path}' has {count} texts, and at most {MOST_TEXTS} are read")
        if found.dtype.kind == "S":
            values = self.dataset(path, kinds="S").read().reshape(-1)
        else:
            made = found.get_create_plist()
            if made.get_nfilters() or made.get_layout() == self._h5py.h5d.COMPACT:
                raise self.damaged(f"'{path}' is a compressed list of texts of different lengths")
            places = self._stored(path, found, TEXT_PLACE, tuple(found.shape)).read()
            if places["length"].sum(dtype=np.uint64) > 10 * LONGEST_TEXT:
                raise self.damaged(f"'{path}' has texts of {places['length'].sum(dtype=np.uint64)} bytes")
            values = np.empty(found.shape, found.dtype)
            found.read(self._h5py.h5s.ALL, self._h5py.h5s.ALL, values)
            values = values.reshape(-1)
        return [self._text(path, value) for value in values]

    def _text(self, path: str, value: Any) -> str:
        data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value or b"")
        if len(data) > LONGEST_TEXT:
            raise self.damaged(f"'{path}' has a text of {len(data)} bytes")
        return data.decode("utf-8")

    def _dataset(self, path: str) -> Any:
        found = self.opened(path)
        if not isinstance(found, self._h5py.h5d.DatasetID):
            raise self.damaged(f"'{path}' is not a dataset")
        if found.shape is None:
            raise self.damaged(f"'{path}' is empty")
        return found

    def _group(self, path: str) -> Any:
        found = self.opened(path)
        if not isinstance(found, self._h5py.h5g.GroupID):
            raise self.damaged(f"'{path}' is not a group")
        return found

    def opened(self, path: str) -> Any:
        found = self._found(path)
        if found is None:
            raise self.damaged(f"it has no '{path}'")
        return found

    def _found(self, path: str) -> Any:
        """The object under a path, or None. Raises if it is a link to somewhere else."""
        if not path:
            return self._h5py.h5g.open(self._file.id, b"/")
        parent, _, name = path.rpartition("/")
        if self._parent[0] != parent:
            self._parent = (parent, self._found(parent))
        group = self._parent[1]
        if not isinstance(group, self._h5py.h5g.GroupID) or not group.links.exists(name.encode()):
            return None
        if group.links.get_info(name.encode()).type != self._h5py.h5l.TYPE_HARD:
            raise self.damaged(f"'{path}' is a link, and links are not followed")
        return self._h5py.h5o.open(group, name.encode())

    def _type(self, path: str, found: Any, kinds: str) -> np.dtype:
        """The type of a dataset, which must be stored exactly as NumPy would."""
        stored, dtype = found.get_type(), None
        if isinstance(stored, self._h5py.h5t.TypeCompoundID | self._h5py.h5t.TypeVlenID | self._h5py.h5t.TypeArrayID):
            raise self.damaged(f"'{path}' holds records or lists, not numbers")
        dtype = stored.dtype
        if dtype.kind not in kinds or dtype.hasobject or (dtype.kind != "S" and dtype.itemsize > WIDEST):
            raise self.damaged(f"'{path}' has type {dtype}")
        if dtype.kind != "S" and self._h5py.h5t.py_create(dtype, logical=True) != stored:
            raise self.damaged(f"'{path}' has an unusual type, close to {dtype}")
        return dtype

    def _foreign(self, made: Any) -> bool:
        """Whether a dataset's numbers lie in other files."""
        return made.get_layout() == self._h5py.h5d.VIRTUAL or made.get_external_count() > 0

    def _stored(self, path: str, found: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Stored:
        made, h5d = found.get_create_plist(), self._h5py.h5d
        if self._foreign(made):
            raise self.damaged(f"'{path}' refers to other files, which are not read")
        filters = [made.get_filter(i) for i in range(made.get_nfilters())]
        for code, _, _, name in filters:
            if code not in FILTERS:
                raise self.damaged(
                    f"'{path}' is stored with the filter {code} {quoted(name.decode(errors='replace'), 40)}, and only "
                    "gzip is read; h5repack -f GZIP=4 converts it"
                )
        codes = tuple(code for code, *_ in filters)
        stored = Stored(self._raw, self._size, path, shape, dtype, codes, self.damaged)
        if math.prod(shape) == 0:
            return stored
        if made.get_layout() == h5d.CONTIGUOUS:
            stored.offset = found.get_offset()
        elif made.get_layout() == h5d.CHUNKED:
            stored.chunk = tuple(int(length) for length in made.get_chunk())
            pieces = math.prod(-(-length // size) for length, size in zip(shape, stored.chunk, strict=True))
            if pieces > MOST_CHUNKS:
                raise self.damaged(f"'{path}' has {pieces} chunks, and at most {MOST_CHUNKS} are read")
            found.chunk_iter(stored.chunks.append)
        else:  # compact: at most 64 kB, inside the structure of the file
            stored.values = np.empty(shape, dtype)
            found.read(self._h5py.h5s.ALL, self._h5py.h5s.ALL, stored.values)
        stored.check()
        return stored


class Hdf5Reader(FileReader):
    """Reads one HDF5 file."""

    @contextmanager
    def hdf5(self, *attributes: str) -> Iterator[Hdf5File]:
        """The open file. Whatever is wrong with it is an error of the reader's class, in one line.

        `attributes` are the names of those that will be read.
        """
        h5py = load_h5py()
        with self.opened() as raw, self.guarded():
            start = raw.read(len(SIGNATURE))
            if start != SIGNATURE:
                raise self.damaged("not an HDF5 file" if start else "an empty file")
            with h5py.File(Watched(raw, attributes), "r") as file:
                made = file.id.get_create_plist()
                if made.get_sizes() != (8, 8) or made.get_userblock() != 0:
                    raise self.damaged("an HDF5 file with an unusual layout; h5repack converts it")
                yield Hdf5File(self, raw, file, attributes)

    def signed(self) -> bool:
        """Whether it begins as an HDF5 file does."""
        with self.opened() as raw:
            return raw.read(len(SIGNATURE)) == SIGNATURE
