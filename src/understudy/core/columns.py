"""Columns of Arrow and Parquet files as NumPy arrays.

Allowed are numbers, booleans and text, in lists of up to `DEEPEST` levels and in named fields of records. Missing
values, extension types, dates and everything else are refused by name.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from understudy.core.errors import missing_extra
from understudy.core.folder import Refused
from understudy.core.text import quoted

DEEPEST = 3
TEXT_BYTES, LONGEST_VALUE = 64, 10_000
"""Bytes of a text in memory besides its characters, and the most characters of one."""


def load_pyarrow() -> Any:
    """The library pyarrow, with the parts that read files."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("data", "Arrow and Parquet files need pyarrow") from error
    return pyarrow


class Want(NamedTuple):
    """A column to read."""

    path: tuple[str, ...]
    """Its name, and below it the names of fields."""
    text: bool = False
    """Whether it holds text, not numbers."""
    optional: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.path)


class Column(NamedTuple):
    """The values of a column, without its lists, and how many each list has."""

    name: str
    values: Any
    """A flat array of numbers, or a list of texts."""
    counts: tuple[np.ndarray, ...]
    """For each level of lists, from the outside: the number of entries of each list."""

    def table(self) -> np.ndarray:
        """(rows, numbers): numbers, or lists of one length. Raises Refused if they are something else."""
        if not self.counts:
            return self.values.reshape(-1, 1)
        if len(self.counts) > 1 or (self.counts[0] != self.counts[0][:1]).any():
            raise Refused(f"'{self.name}' has rows of different lengths")
        return self.values.reshape(len(self.counts[0]), -1) if len(self.counts[0]) else self.values.reshape(0, 0)

    def flat(self) -> np.ndarray:
        """(rows,): one number each. Raises Refused if they are something else."""
        table = self.table()
        if table.shape[1] != 1 and table.size:
            raise Refused(f"'{self.name}' has {table.shape[1]} numbers in a row, not one")
        return table.reshape(-1)


def check_field(field: Any, want: Want) -> None:
    """Raise Refused if a column has an extension type, also one that pyarrow does not know."""
    if b"ARROW:extension:name" in (field.metadata or {}):
        raise Refused(f"'{want.name}' has the extension type {quoted(field.metadata[b'ARROW:extension:name'], 60)}")


def converted(array: Any, want: Want, reserve: Callable[[int], None]) -> Column:
    """The contents of a top-level Arrow array of one chunk. `reserve` gets the bytes that its texts will take.

    Raises Refused if it is not allowed. Offsets come from the file, so they are checked before they are used.
    """
    types = load_pyarrow().types
    array.validate(full=True)
    for field in want.path[1:]:
        array = _field(array, field, want)
    _check_leaf(array.type, want)
    counts: list[np.ndarray] = []
    while types.is_list(array.type) or types.is_large_list(array.type) or types.is_fixed_size_list(array.type):
        _check_present(array, want)
        if len(counts) == DEEPEST:
            raise Refused(f"'{want.name}' has lists in more than {DEEPEST} levels")
        if types.is_fixed_size_list(array.type):
            if array.type.list_size < 1:
                raise Refused(f"'{want.name}' has empty lists")
            reserve(8 * len(array))  # the file has no bytes for these lengths
            counts.append(np.full(len(array), array.type.list_size))
        else:
            counts.append(np.diff(array.offsets.to_numpy()).astype(np.int64))
        array = array.flatten()
    _check_present(array, want)
    values = _texts(array, want, reserve) if want.text else _numbers(array, want)
    return Column(want.name, values, tuple(counts))


def _field(array: Any, name: str, want: Want) -> Any:
    """A field of records. A record that is missing makes its fields missing."""
    if not load_pyarrow().types.is_struct(array.type):
        raise Refused(f"'{want.name}' is not there: '{quoted(array.type)}' has no fields")
    found = array.type.get_all_field_indices(name)
    if len(found) != 1:
        raise Refused(f"'{want.name}' is there {len(found)} times")
    return array.flatten()[found[0]]


def _check_leaf(kind: Any, want: Want) -> None:
    """Raise Refused if entries of the innermost lists have no bytes in the file: nulls, and empty records."""
    types = load_pyarrow().types
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type
    if types.is_null(kind) or types.is_nested(kind):
        needed = "text is" if want.text else "numbers are"
        raise Refused(f"'{want.name}' has type {quoted(kind, 60)}, and {needed} needed")


def _numbers(array: Any, want: Want) -> np.ndarray:
    types = load_pyarrow().types
    if not (types.is_integer(array.type) or types.is_floating(array.type) or types.is_boolean(array.type)):
        raise Refused(f"'{want.name}' has type {quoted(array.type, 60)}, and numbers are needed")
    return array.to_numpy(zero_copy_only=False)


def _texts(array: Any, want: Want, reserve: Callable[[int], None]) -> list[str]:
    types = load_pyarrow().types
    reserve(len(array) * TEXT_BYTES)
    words, indices = array, None
    if types.is_dictionary(array.type):  # the reader of Parquet files asks for it: a text that repeats is there once
        words, indices = array.dictionary, array.indices.to_numpy()
    if not (types.is_string(words.type) or types.is_large_string(words.type)):
        raise Refused(f"'{want.name}' has type {quoted(array.type, 60)}, and text is needed")
    _check_present(words, want)
    reserve(words.nbytes + TEXT_BYTES * len(words))
    texts = words.to_pylist()
    if any(len(text) > LONGEST_VALUE for text in texts):
        raise Refused(f"'{want.name}' has a text of more than {LONGEST_VALUE} characters")
    return texts if indices is None else [texts[i] for i in indices]


def _check_present(array: Any, want: Want) -> None:
    if array.null_count:
        raise Refused(f"'{want.name}' has {array.null_count} missing values")
