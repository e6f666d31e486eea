"""Damage to text files: JSON, CSV, TOML."""

import json
from collections.abc import Callable
from typing import Any

from support.byte_mutations import HOSTILE, STRANGE, Mutation, Random, cut_middle, flip_bits, replace_file, truncate


def _lines(data: bytes, random: Random, change: Callable[[list[bytes], int], list[bytes]]) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(change(lines, int(random.integers(len(lines))))) if lines else data


def delete_line(data: bytes, random: Random) -> bytes:
    return _lines(data, random, lambda lines, i: lines[:i] + lines[i + 1 :])


def double_line(data: bytes, random: Random) -> bytes:
    return _lines(data, random, lambda lines, i: lines[: i + 1] + lines[i:])


def swap_lines(data: bytes, random: Random) -> bytes:
    return _lines(data, random, lambda lines, i: [*lines[:i], *lines[i + 1 :][:1], lines[i], *lines[i + 2 :]])


def insert_text(data: bytes, random: Random) -> bytes:
    odd = (
        b"\x00",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b'"',
        b"'",
        b",",
        b"\n",
        b"\r",
        b"\x1b[2J",
        b"{",
        b"]",
        b"=",
        b"\xc2\x85",
    )
    start = int(random.integers(len(data) + 1))
    return data[:start] + odd[random.integers(len(odd))] + data[start:]


def add_byte_order_mark(data: bytes, random: Random) -> bytes:
    return (b"\xef\xbb\xbf" if random.random() < 0.5 else b"\xff\xfe") + data


def change_word(data: bytes, random: Random) -> bytes:
    """Another text in place of one that stands between quotes, or of a number."""
    places = [i for i in range(len(data)) if data[i : i + 1].isdigit() or data[i : i + 1] in b'"']
    if not places:
        return data
    start = end = places[random.integers(len(places))]
    while end < len(data) and (data[end : end + 1].isalnum() or data[end : end + 1] in b'".-'):
        end += 1
    value = STRANGE[random.integers(len(STRANGE))]
    return data[:start] + json.dumps(value).encode() + data[end:]


TEXT: tuple[Mutation, ...] = (
    *(delete_line, double_line, swap_lines, insert_text, add_byte_order_mark, change_word),
    *(flip_bits, truncate, cut_middle, replace_file),
)


def _nodes(value: Any) -> list[tuple[Any, Any]]:
    """All (container, key) pairs of a JSON value."""
    if isinstance(value, dict):
        return [pair for key in value for pair in [(value, key), *_nodes(value[key])]]
    if isinstance(value, list):
        return [pair for i, one in enumerate(value) for pair in [(value, i), *_nodes(one)]]
    return []


def _changed_json(data: bytes, random: Random, change: Callable[[Any, Any], None]) -> bytes:
    value = json.loads(data)
    nodes = _nodes(value)
    if nodes:
        change(*nodes[random.integers(len(nodes))])
    return json.dumps(value, indent=2 if b"\n" in data else None).encode()


def delete_entry(data: bytes, random: Random) -> bytes:
    return _changed_json(data, random, lambda container, key: container.__delitem__(key))


def change_entry(data: bytes, random: Random) -> bytes:
    value = STRANGE[random.integers(len(STRANGE))]
    return _changed_json(data, random, lambda container, key: container.__setitem__(key, value))


def change_number(data: bytes, random: Random) -> bytes:
    """Another number, or another value of the same type: what still has the right structure."""
    numbers = (0, -1, 1, 2, 7, 100, 2**31, 2**63, 10**30, 0.5, 1e300, -0.0)

    def change(container: Any, key: Any) -> None:
        old = container[key]
        if isinstance(old, bool):
            container[key] = not old
        elif isinstance(old, int | float):
            container[key] = numbers[random.integers(len(numbers))]
        elif isinstance(old, str):
            container[key] = HOSTILE[random.integers(len(HOSTILE))]
        elif isinstance(old, list) and old:
            container[key] = (old[:-1], old * 2, old[::-1])[random.integers(3)]

    return _changed_json(data, random, change)


def copy_entry(data: bytes, random: Random) -> bytes:
    """A node of the file in place of another."""
    nodes = _nodes(json.loads(data))
    container, key = nodes[random.integers(len(nodes))]
    value = container[key]
    return _changed_json(data, random, lambda other, name: other.__setitem__(name, value))


def rename_key(data: bytes, random: Random) -> bytes:
    name = HOSTILE[random.integers(len(HOSTILE))]

    def change(container: Any, key: Any) -> None:
        container.update({name: container.pop(key)}) if isinstance(container, dict) else container.append(name)

    return _changed_json(data, random, change)


def raw_number(data: bytes, random: Random) -> bytes:
    """NaN, infinity and numbers that Python's JSON would not write, or a key twice."""
    mark = b'"' + random.bytes(8).hex().encode() + b'"'
    changed = _changed_json(data, random, lambda container, key: container.__setitem__(key, mark[1:-1].decode()))
    raw = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" * 5000, b"[" * 2000, b'{"a": 1, "a": 2}', b"01", b"'x'")
    return changed.replace(mark, raw[random.integers(len(raw))])


def nest_deeply(data: bytes, random: Random) -> bytes:
    depth = int(random.choice([50, 500, 100_000]))
    mark = _changed_json(data, random, lambda container, key: container.__setitem__(key, "@here@"))
    opened, closed = ((b"[", b"]"), (b'{"tuple": [', b"]}"), (b'{"a": ', b"}"))[random.integers(3)]
    return mark.replace(b'"@here@"', opened * depth + b"1" + closed * depth)


JSON_VALUES: tuple[Mutation, ...] = (
    *(delete_entry, change_entry, change_number, change_number, copy_entry, rename_key, raw_number, nest_deeply),
)
JSON: tuple[Mutation, ...] = (*TEXT, *JSON_VALUES)


def _cells(data: bytes, random: Random, change: Callable[[list[list[bytes]], int, int], None]) -> bytes:
    rows = [line.split(b",") for line in data.splitlines()]
    if rows:
        i = int(random.integers(len(rows)))
        change(rows, i, int(random.integers(len(rows[i]))))
    return b"".join(b",".join(row) + b"\n" for row in rows)


def change_cell(data: bytes, random: Random) -> bytes:
    value = HOSTILE[random.integers(len(HOSTILE))].encode("utf-8", "replace")
    return _cells(data, random, lambda rows, i, j: rows[i].__setitem__(j, value))


def number_cell(data: bytes, random: Random) -> bytes:
    value = random.choice(["nan", "inf", "-1", "0", "1", "2", "1e300", "0.5", "99999999999999999999", "True", "False"])
    return _cells(data, random, lambda rows, i, j: rows[i].__setitem__(j, value.encode()))


def delete_cell(data: bytes, random: Random) -> bytes:
    return _cells(data, random, lambda rows, i, j: rows[i].__delitem__(j))


def double_cell(data: bytes, random: Random) -> bytes:
    return _cells(data, random, lambda rows, i, j: rows[i].insert(j, rows[i][j]))


def delete_column(data: bytes, random: Random) -> bytes:
    def change(rows: list[list[bytes]], _: int, j: int) -> None:
        for row in rows:
            del row[j : j + 1]

    return _cells(data, random, change)


def swap_columns(data: bytes, random: Random) -> bytes:
    """Exchange the names of two columns."""

    def change(rows: list[list[bytes]], _: int, j: int) -> None:
        k = int(random.integers(len(rows[0])))
        j = min(j, len(rows[0]) - 1)
        rows[0][j], rows[0][k] = rows[0][k], rows[0][j]

    return _cells(data, random, change)


CSV: tuple[Mutation, ...] = (
    *TEXT,
    change_cell,
    number_cell,
    number_cell,
    delete_cell,
    double_cell,
    delete_column,
    swap_columns,
)
