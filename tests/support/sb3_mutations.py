"""Damage to zip files of Stable-Baselines3: the archive, its settings, the archive inside it, and the pickle in that.

Checksums are right, so that a reader sees the damage. `HOSTILE_PICKLES` are pickles that call `fire` if Python's own
unpickler reads them.
"""

import io
import itertools
import json
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from support.byte_mutations import BYTES, STRANGE, Mutation, Random
from support.npz_mutations import double_member, drop_member, rename_member, swap_members
from support.text_mutations import JSON

FIRED: list[Any] = []
"""The canary: what has called `fire`."""
HERE = b"support.sb3_mutations"


def fire(*given: Any) -> Any:
    """What a hostile pickle calls."""
    FIRED.append(given)
    return OrderedDict()


class Firing(OrderedDict):  # type: ignore[type-arg]
    """A dictionary whose pickle calls `fire`."""

    def __reduce__(self) -> Any:
        return fire, ("a subclass",)


class Setting:
    """An object that fires when a pickle sets its state, or items."""

    def __setstate__(self, state: Any) -> None:
        fire(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        fire(key, value)

    def append(self, value: Any) -> None:
        fire(value)

    def extend(self, values: Any) -> None:
        fire(values)


def _short(text: bytes) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text


DICT = b"ccollections\nOrderedDict\n"
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
CALL = b"c" + HERE + b"\nfire\n"
HOSTILE_PICKLES: dict[str, bytes] = {
    "REDUCE": b"\x80\x02" + CALL + b"(X\x01\x00\x00\x00xtR.",
    "REDUCE, protocol 0": b"c" + HERE + b"\nfire\n(S'x'\ntR.",
    "STACK_GLOBAL": b"\x80\x04" + _short(HERE) + _short(b"fire") + b"\x93)R.",
    "INST": b"(S'x'\ni" + HERE + b"\nfire\n.",
    "OBJ": b"(c" + HERE + b"\nfire\nX\x01\x00\x00\x00xo.",
    "NEWOBJ": b"\x80\x02c" + HERE + b"\nSetting\n)\x81}b.",
    "BUILD of an object": b"\x80\x02c" + HERE + b"\nSetting\n)R}X\x01\x00\x00\x00aK\x01sb.",
    "SETITEM of an object": b"\x80\x02c" + HERE + b"\nSetting\n)RK\x01K\x02s.",
    "APPEND to an object": b"\x80\x02c" + HERE + b"\nSetting\n)RK\x01a.",
    "APPENDS to an object": b"\x80\x02c" + HERE + b"\nSetting\n)R(K\x01e.",
    "a subclass of OrderedDict": pickle.dumps(Firing(), 2),
    "inside the dictionary": b"\x80\x02" + DICT + b")R(X\x01\x00\x00\x00a" + CALL + b")Ru.",
    "as an argument of the dictionary": b"\x80\x02" + DICT + b"(" + CALL + b")RtR.",
    "memoized": b"\x80\x02" + CALL + b"q\x00" + DICT + b"q\x01)h\x00)R\x86.",
}
"""Pickles that fire in Python's own unpickler."""
OTHER_PICKLES: dict[str, bytes] = {
    "os.system": b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.",
    "posix.system": b"\x80\x02cposix\nsystem\n(X\x04\x00\x00\x00truetR.",
    "builtins.eval": b"\x80\x02cbuiltins\neval\n(X\x03\x00\x00\x001+1tR.",
    "__builtin__.eval": b"c__builtin__\neval\n(S'1+1'\ntR.",
    "getattr": b"\x80\x02cbuiltins\ngetattr\n(" + DICT + b"X\x09\x00\x00\x00__class__tR.",
    "a dotted name": b"\x80\x04" + _short(b"collections") + _short(b"OrderedDict.fromkeys") + b"\x93)R.",
    "EXT1": b"\x80\x02\x82\x01.",
    "EXT2": b"\x80\x02\x83\x01\x00.",
    "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "arguments of the dictionary": b"\x80\x02" + DICT + b"(](X\x01\x00\x00\x00aK\x01\x86etR.",
    "attributes of the dictionary": b"\x80\x02" + DICT + b")R}X\x05\x00\x00\x00itemsK\x01sb.",
    "attributes of a name": b"\x80\x02" + DICT + b"}X\x01\x00\x00\x00aK\x01sb.",
    "attributes of a storage": b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00"
    b"\x00\x00cpuK\x01tQ}X\x03\x00\x00\x00keyK\x01sb.",
    "a name called as a function": b"\x80\x02" + TENSOR + b"(" + TENSOR + b"tR.",
    "a storage type called": b"\x80\x02ctorch\nFloatStorage\n)R.",
    "another persistent id": b"\x80\x02X\x03\x00\x00\x00abcQ.",
    "PERSID": b"Pabc\n.",
    "a dictionary as a key": b"\x80\x02}}K\x01s.",
    "a tuple as a key": b"\x80\x02})K\x01s.",
    "itself": b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s.",
    "tuples of tuples": b"\x80\x02)" + b"q\x00h\x00\x86" * 500 + b".",
    "deep tuples": b"\x80\x02)" + b"\x85" * 100_000 + b".",
    "deep dictionaries": b"\x80\x02" + b"}X\x01\x00\x00\x00a" * 50_000 + b"}" + b"s" * 50_000 + b".",
    "many marks": b"\x80\x02" + b"(" * 100_000 + b".",
    "a large memo": b"\x80\x02}r\xff\xff\xff\x7f.",
    "a long text": b"\x80\x04\x8d" + (2**40).to_bytes(8, "little") + b"x.",
    "long bytes": b"\x80\x04\x8e" + (2**62).to_bytes(8, "little") + b"x.",
    "a bytearray": b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b"x.",
    "a long integer": b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",
    "digits": b"I" + b"9" * 100_000 + b"\n.",
    "a frame": b"\x80\x04\x95" + (2**60).to_bytes(8, "little") + b"}.",
    "an out-of-band buffer": b"\x80\x05\x97.",
    "no end": b"\x80\x02}",
    "two values": b"\x80\x02}}.",
    "no value": b"\x80\x02.",
    "a number": b"\x80\x02K\x01.",
    "POP of nothing": b"0.",
    "a mark as a value": b"\x80\x02(\x85.",
    "an unknown operation": b"\x80\x02\xfe.",
    "nothing": b"",
}
"""Pickles that must be refused, or read as no tensors."""


def archive(members: list[tuple[str, bytes]]) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        for name, contents in members:
            out.writestr(zipfile.ZipInfo(name), contents)
    return buffer.getvalue()


def unzipped(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        return [(member.filename, found.read(member)) for member in found.infolist()]


def changed(data: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """An archive with the member whose name ends so changed."""
    return archive([(one, change(old) if one.endswith(name) else old) for one, old in unzipped(data)])


def with_pickle(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A model whose pickle is changed."""
    return changed(data, "policy.pth", lambda inner: changed(inner, "data.pkl", change))


def settings(data: bytes, random: Random) -> bytes:
    mutation = JSON[random.integers(len(JSON))]
    return changed(data, "data", lambda old: mutation(old, random))


def inner_bytes(data: bytes, random: Random) -> bytes:
    mutation = BYTES[random.integers(len(BYTES))]
    return changed(data, "policy.pth", lambda inner: mutation(inner, random))


def inner_archive(data: bytes, random: Random) -> bytes:
    mutation = (drop_member, double_member, rename_member, swap_members)[random.integers(4)]
    return changed(data, "policy.pth", lambda inner: mutation(inner, random))


def storage_bytes(data: bytes, random: Random) -> bytes:
    number, mutation = int(random.integers(12)), BYTES[random.integers(len(BYTES))]
    return changed(
        data, "policy.pth", lambda inner: changed(inner, f"/data/{number}", lambda old: mutation(old, random))
    )


def pickle_bytes(data: bytes, random: Random) -> bytes:
    mutation = BYTES[random.integers(len(BYTES))]
    return with_pickle(data, lambda old: mutation(old, random))


def hostile_pickle(data: bytes, random: Random) -> bytes:
    pickles = [*HOSTILE_PICKLES.values(), *OTHER_PICKLES.values()]
    return with_pickle(data, lambda old: pickles[random.integers(len(pickles))])


def hostile_operations(data: bytes, random: Random) -> bytes:
    """The operations of a hostile pickle, without its end, between those of the valid one."""
    pickles = list(HOSTILE_PICKLES.values())
    program = pickles[random.integers(len(pickles))][:-1]

    def inserted(old: bytes) -> bytes:
        places = [at for _, _, at in pickletools.genops(old)]
        at = places[random.integers(1, len(places))]
        return old[:at] + program.removeprefix(b"\x80\x02").removeprefix(b"\x80\x04") + old[at:]

    return with_pickle(data, inserted)


def operations(data: bytes, random: Random) -> bytes:
    """Some operations of the pickle doubled, dropped or exchanged."""

    def shuffled(old: bytes) -> bytes:
        places = [at for _, _, at in pickletools.genops(old)] + [len(old)]
        parts = [old[a:b] for a, b in itertools.pairwise(places)]
        for _ in range(int(random.choice([1, 1, 2, 10]))):
            i, j = random.integers(len(parts), size=2)
            what = random.integers(4)
            if what == 0:
                parts[i] = parts[j]
            elif what == 1:
                parts.insert(i, parts[j])
            elif what == 2:
                parts[i], parts[j] = parts[j], parts[i]
            elif len(parts) > 2:
                del parts[i]
        return b"".join(parts)

    return with_pickle(data, shuffled)


def numbers(data: bytes, random: Random) -> bytes:
    """Offsets, shapes, strides and sizes in the pickle replaced."""

    def replaced(old: bytes) -> bytes:
        found = [(op.name, at) for op, _, at in pickletools.genops(old) if op.name in ("BININT1", "BININT", "BININT2")]
        name, at = found[random.integers(len(found))]
        length = {"BININT1": 2, "BININT2": 3, "BININT": 5}[name]
        value = int(random.choice([-1, -8, 0, 1, 2, 3, 7, 8, 9, 255, 256, 2**16, 2**31 - 1]))
        new = b"J" + value.to_bytes(4, "little", signed=True)
        if random.random() < 0.1:
            new = b"\x8a\x08" + (2**62).to_bytes(8, "little")
        return old[:at] + new + old[at + length :]

    return with_pickle(data, replaced)


def strange_settings(data: bytes, random: Random) -> bytes:
    """One of the settings that are read replaced."""

    def replaced(old: bytes) -> bytes:
        values = json.loads(old)
        key = str(random.choice(["policy_kwargs", "policy_class", "action_space", "observation_space", "use_sde"]))
        value = STRANGE[random.integers(len(STRANGE))]
        if isinstance(values[key], dict) and random.random() < 0.8:
            names = [
                "activation_fn",
                "clip_mean",
                "squash_output",
                "features_extractor_class",
                "low",
                ":type:",
                "__module__",
            ]
            values[key][str(random.choice(names))] = value
        else:
            values[key] = value
        return json.dumps(values).encode()

    return changed(data, "data", replaced)


SB3: tuple[Mutation, ...] = (
    *(*BYTES, drop_member, double_member, rename_member, swap_members, settings, strange_settings, inner_bytes),
    *(inner_archive, storage_bytes, pickle_bytes, hostile_pickle, hostile_operations, operations, operations),
    *(numbers, numbers, numbers),
)
