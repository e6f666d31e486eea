"""Damage to npz files: to the archive, and to the arrays in it."""

import io
import struct
import zipfile
from collections.abc import Callable

import numpy as np

from support.byte_mutations import BYTES, HOSTILE, Mutation, Random, npy
from support.text_mutations import JSON_VALUES

Members = list[tuple[str, bytes]]


def _unzipped(data: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(member.filename, archive.read(member)) for member in archive.infolist()]


def _zipped(members: Members, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, contents in members:
            archive.writestr(zipfile.ZipInfo(name), contents, compression)
    return buffer.getvalue()


def drop_member(data: bytes, random: Random) -> bytes:
    members = _unzipped(data)
    del members[random.integers(len(members))]
    return _zipped(members)


def double_member(data: bytes, random: Random) -> bytes:
    members = _unzipped(data)
    name, contents = members[random.integers(len(members))]
    return _zipped([*members, (str(random.choice([name, name.removesuffix(".npy")])), contents)])


def swap_members(data: bytes, random: Random) -> bytes:
    members = _unzipped(data)
    i, j = random.integers(len(members), size=2)
    a, b = members[i], members[j]
    members[i], members[j] = (a[0], b[1]), (b[0], a[1])
    return _zipped(members)


def rename_member(data: bytes, random: Random) -> bytes:
    members = _unzipped(data)
    i = random.integers(len(members))
    names = (
        "../x.npy",
        "\x1b[31mred.npy",
        "x" * 300 + ".npy",
        "x.npy",
        "a/b.npy",
        members[i][0].upper(),
        "é\u202e.npy",
    )
    members[i] = (str(random.choice(names)), members[i][1])
    return _zipped(members)


def add_members(data: bytes, random: Random) -> bytes:
    extra = (("more.npy", npy(np.zeros(1_000_000))), ("x.txt", b"hello"), ("o.npy", npy(np.array([None], object))))
    many = [(f"m{i}.npy", npy(np.zeros(1))) for i in range(300)]
    return _zipped([*_unzipped(data), *([extra[random.integers(3)]] if random.random() < 0.8 else many)])


def shuffle_members(data: bytes, random: Random) -> bytes:
    members = _unzipped(data)
    return _zipped([members[i] for i in random.permutation(len(members))])


def unknown_compression(data: bytes, random: Random) -> bytes:
    return _zipped(_unzipped(data), int(random.choice([zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_STORED])))


def forge_directory(data: bytes, random: Random) -> bytes:
    """Another number in one field of an archive's central directory or local headers."""
    fields = {  # the offset in the central directory, that in the local header, struct's letter, values
        "flags": (8, 6, "H", (0x1, 0x8, 0x800, 0x2000)),
        "compression": (10, 8, "H", (0, 8, 9, 12, 14, 93, 99)),
        "checksum": (16, 14, "I", (0, 1, 2**32 - 1)),
        "compressed": (20, 18, "I", (0, 1, 10**6, 2**31, 2**32 - 1)),
        "size": (24, 22, "I", (0, 1, 10**6, 2**31, 2**32 - 2, 2**32 - 1)),
        "name": (28, 26, "H", (0, 1, 2**16 - 1)),
    }
    central, local, letter, values = fields[str(random.choice(list(fields)))]
    value = values[random.integers(len(values))]
    changed = bytearray(data)
    sides = ((b"PK\x01\x02", central), (b"PK\x03\x04", local))
    chosen = sides if random.random() < 0.5 else (sides[random.integers(2)],)
    which = random.random()
    for mark, offset in chosen:
        places = [i for i in range(len(data) - 3) if data[i : i + 4] == mark]
        if places:
            place = places[int(which * len(places))] + offset
            if place + struct.calcsize(letter) <= len(changed):
                struct.pack_into(f"<{letter}", changed, place, value)
    return bytes(changed)


def forge_end(data: bytes, random: Random) -> bytes:
    """Another number in the end of the central directory: its size, its place, the count of members."""
    changed, end = bytearray(data), data.rindex(b"PK\x05\x06")
    struct.pack_into("<H", changed, end + 2 * int(random.integers(2, 11)), int(random.choice([0, 1, 255, 2**16 - 1])))
    return bytes(changed)


ARCHIVE: tuple[Mutation, ...] = (
    *(drop_member, double_member, swap_members, rename_member, add_members, shuffle_members),
    *(unknown_compression, forge_directory, forge_end),
)


# The arrays. The archive is written again, so that its checksums are valid.


def _changed_array(data: bytes, random: Random, change: Callable[[bytes, np.ndarray], bytes | np.ndarray]) -> bytes:
    members = _unzipped(data)
    i = random.integers(len(members))
    name, contents = members[i]
    array = np.lib.format.read_array(io.BytesIO(contents), allow_pickle=False)
    with np.errstate(all="ignore"):
        new = change(contents, array)
    members[i] = (name, new if isinstance(new, bytes) else npy(new))
    return _zipped(members)


def change_dtype(data: bytes, random: Random) -> bytes:
    numbers = ("f2", "f4", "f8", ">f8", "g", "i1", "i8", "u1", "u4", "u8", ">i4", "?", "c16", "S8", "U8")
    others: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
        lambda array: array.astype(object),
        lambda array: np.zeros(array.shape, [("a", "f4"), ("b", "i4")]),
        lambda array: np.zeros(array.shape, "M8[s]"),
        lambda array: np.zeros(array.shape, "V4"),
        lambda array: np.zeros(array.shape, "U0"),
    )

    def change(_: bytes, array: np.ndarray) -> np.ndarray:
        if random.random() < 0.3:
            return others[random.integers(len(others))](array)
        dtype = np.dtype(str(random.choice(numbers)))
        return array.astype(dtype) if array.dtype.kind in "fiub" else np.zeros(array.shape, dtype)

    return _changed_array(data, random, change)


def change_shape(data: bytes, random: Random) -> bytes:
    changes: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
        *(
            np.ravel,
            np.transpose,
            lambda a: a[None],
            lambda a: a[..., None],
            lambda a: a[:0] if a.ndim else a[None][:0],
        ),
        *(lambda a: a[1:] if a.ndim else a, lambda a: np.concatenate([a, a]) if a.ndim else np.stack([a, a])),
        *(
            lambda a: a.ravel()[:1].reshape(()) if a.size else a,
            lambda a: a[..., :-1] if a.ndim else a,
            np.asfortranarray,
        ),
        *(lambda a: a.reshape((1,) * 30 + a.shape) if a.ndim < 3 else a, lambda a: a[:, :0] if a.ndim > 1 else a),
        *(lambda a: a[..., 0] if a.ndim and a.shape[-1] else a, lambda a: np.repeat(a, 50), np.squeeze),
    )
    chosen = changes[random.integers(len(changes))]
    return _changed_array(data, random, lambda _, array: chosen(array))


def change_numbers(data: bytes, random: Random) -> bytes:
    values = (np.nan, np.inf, -np.inf, 1e300, -1e300, 1e38, 1e-320, -1, 0, 1, 2, 999_998, 2**31, 2**63 - 1, 0.5, 1e9)

    def change(_: bytes, array: np.ndarray) -> np.ndarray:
        if array.dtype.kind == "U":
            return np.array(HOSTILE[random.integers(len(HOSTILE))])
        value = values[random.integers(len(values))]
        if array.size == 0:
            return array
        new = array.astype(np.float64) if random.random() < 0.2 else array.copy()
        if new.dtype.kind in "iu":  # out of range: the nearest number, or the largest of the type
            info = np.iinfo(new.dtype)
            value = min(max(int(np.nan_to_num(value)), info.min), info.max)
        whole = random.random() < 0.3
        new.reshape(-1)[... if whole else random.integers(new.size)] = value
        return new

    return _changed_array(data, random, change)


def scramble_numbers(data: bytes, random: Random) -> bytes:
    """Random bytes in place of an array's contents, behind a valid header."""

    def change(contents: bytes, array: np.ndarray) -> bytes:
        count = array.nbytes
        return contents[: len(contents) - count] + random.bytes(count)

    return _changed_array(data, random, change)


def forge_header(data: bytes, random: Random) -> bytes:
    """A header that declares something else, by a length that fits."""
    shapes = ("(1000000000000,)", "(9223372036854775807, 9223372036854775807)", "(-1,)", "(1.5,)", "(True,)", "(0,)")
    types = (
        "'|O'",
        "'<f8'",
        "'<U1000000'",
        "[('a', '<f8')]",
        "'<c16'",
        "'no'",
        "('<f8', (2,))",
        "None",
        "'<i8'",
        "'|V0'",
    )
    whole = ("{" * 500, "(" * 3000, "{}", "[]", "", "__import__('os')", "{'descr': '<f8'}", "\x00", "1" * 4000, "é")

    def change(contents: bytes, array: np.ndarray) -> bytes:
        descr = repr(np.lib.format.dtype_to_descr(array.dtype))
        descr, shape = (types[random.integers(len(types))], str(array.shape)) if random.random() < 0.5 else (descr, "")
        shape = shape or shapes[random.integers(len(shapes))]
        text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
        if random.random() < 0.3:
            text = whole[random.integers(len(whole))]
        version = bytes([int(random.choice([1, 1, 1, 2, 3, 9])), 0])
        length = len(text.encode()).to_bytes(2 if version[0] == 1 else 4, "little")
        return b"\x93NUMPY" + version + length + text.encode() + contents[len(contents) - array.nbytes :]

    return _changed_array(data, random, change)


def cut_array(data: bytes, random: Random) -> bytes:
    return _changed_array(data, random, lambda contents, _: BYTES[random.integers(len(BYTES))](contents, random))


def change_json_array(data: bytes, random: Random) -> bytes:
    """Damage to a JSON text that is stored as an array, or to some array if there is none."""
    members = _unzipped(data)
    for i, (name, contents) in enumerate(members):
        array = np.lib.format.read_array(io.BytesIO(contents), allow_pickle=False)
        if array.dtype.kind == "U" and array.ndim == 0 and array.item().startswith("{"):
            text = JSON_VALUES[random.integers(len(JSON_VALUES))](array.item().encode(), random)
            members[i] = (name, npy(np.array(text.decode("utf-8", "surrogatepass"))))
            return _zipped(members)
    return change_numbers(data, random)


ARRAYS: tuple[Mutation, ...] = (
    *(change_dtype, change_shape, change_numbers, scramble_numbers, forge_header, cut_array, change_json_array),
)
NPZ: tuple[Mutation, ...] = (*BYTES, *ARCHIVE, *ARRAYS, *ARRAYS)
