"""Damage to the bytes of any file, and values that stand in place of others."""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
Mutation = Callable[[bytes, Random], bytes]
HOSTILE = (
    *(
        "",
        " ",
        "\x1b[31mred\x1b[0m",
        "\x00",
        "a\nb\r\nc",
        "../../../etc/passwd",
        "os:system",
        "NaN",
        "é\u202etxt",
        "x" * 5000,
    ),
    *(
        "-1",
        "1e309",
        "1" * 5000,
        "True",
        "None",
        "[]",
        "{}",
        "0x10",
        "1_000",
        "٣",
        "{0.__class__}",
        "%s%n",
        "[bold]",
        "..",
        "/",
    ),
)
"""Texts in place of texts and numbers."""
STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, 2**31, 2**63, 2**200, 10**400, 1e300, -1e300, 5e-324, [], {}, [[]], [None]),
    *({"class": "Ensemble"}, {"value": 1}, {"array": "policy"}, [1, 2, 3], "relu", *HOSTILE),
)
"""JSON values in place of others."""


def npy(array: np.ndarray) -> bytes:
    """The array in NumPy's format."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array)
    return buffer.getvalue()


def flip_bits(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(int(random.choice([1, 1, 2, 8, 64]))):
        if changed:
            changed[random.integers(len(changed))] ^= 1 << random.integers(8)
    return bytes(changed)


def truncate(data: bytes, random: Random) -> bytes:
    return data[: random.integers(len(data))] if data else data


def cut_start(data: bytes, random: Random) -> bytes:
    return data[random.integers(1, len(data)) :] if len(data) > 1 else data


def cut_middle(data: bytes, random: Random) -> bytes:
    start, end = np.sort(random.integers(len(data) + 1, size=2))
    return data[:start] + data[end:]


def overwrite_block(data: bytes, random: Random) -> bytes:
    start = int(random.integers(len(data) + 1))
    block = random.bytes(int(random.integers(1, 64))) if random.random() < 0.5 else bytes(int(random.integers(1, 512)))
    return data[:start] + block + data[start + len(block) :]


def insert_block(data: bytes, random: Random) -> bytes:
    start = int(random.integers(len(data) + 1))
    return data[:start] + random.bytes(int(random.integers(1, 64))) + data[start:]


def swap_blocks(data: bytes, random: Random) -> bytes:
    a, b, c, d = np.sort(random.integers(len(data) + 1, size=4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def append_garbage(data: bytes, random: Random) -> bytes:
    return data + random.bytes(int(random.integers(1, 1000)))


def repeat_file(data: bytes, random: Random) -> bytes:
    return data + data


def replace_file(data: bytes, random: Random) -> bytes:
    other = (
        *(b"", b"\0" * 100, random.bytes(100), b"PK\x05\x06" + bytes(18), b"{}", b"[]", b"hello\n", b"\x1f\x8b\x08"),
        *(pickle.dumps({"a": np.zeros(2)}), npy(np.zeros(3)), npy(np.array([None], object)), b"\xff\xfe\x00"),
    )
    return other[random.integers(len(other))]


BYTES: tuple[Mutation, ...] = (
    *(flip_bits, truncate, cut_start, cut_middle, overwrite_block, insert_block, swap_blocks),
    *(append_garbage, repeat_file, replace_file),
)
