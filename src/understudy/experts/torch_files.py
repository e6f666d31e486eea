"""The tensors of a PyTorch file, read without PyTorch and without Python's `pickle`.

`torch.save` writes a zip archive:

    NAME/data.pkl     a pickle: a dictionary of tensors, each with its storage, offset, shape and strides
    NAME/data/KEY     the numbers of a storage
    NAME/byteorder    little or big

A pickle is a program for a stack machine. Python's machine can import and call any function. The one in this module has
only the operations that a dictionary of tensors needs, and calls nothing: a global name is an entry of `GLOBALS`, a
constant, and REDUCE makes a dictionary or a `Tensor` of it. Any other operation or name is an error. The strings and
numbers of the pickle are limited by its size, which is limited. Numbers are read only for the tensors that are asked
for, after their bounds were checked.
"""

import io
import math
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.core.memory import readable
from understudy.core.reader import SMALL, FileReader
from understudy.core.text import quoted

LONGEST_PICKLE = 1_000_000
"""Bytes of data.pkl. That of a policy has about 150 bytes for each tensor."""
MOST_AXES = 8
STORAGES = {"FloatStorage": np.float32, "DoubleStorage": np.float64, "HalfStorage": np.float16}
"""Types of tensors that are read. Tensors of other types may be in a file, and cannot be asked for."""
OTHER_STORAGES = ("BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
DICTIONARY, TENSOR, PARAMETER = "OrderedDict", "_rebuild_tensor_v2", "_rebuild_parameter"
GLOBALS = {
    ("collections", DICTIONARY),
    ("torch._utils", TENSOR),
    ("torch._utils", PARAMETER),
    *(("torch", name) for name in (*STORAGES, *(f"{kind}Storage" for kind in OTHER_STORAGES))),
}
"""The names that a pickle may contain, as (module, name)."""


@dataclass(frozen=True)
class Global:
    """A name in a pickle. It is never looked up."""

    name: str


@dataclass(frozen=True)
class Storage:
    """The numbers that tensors are views of."""

    kind: str
    key: str
    size: int
    """How many numbers there are."""


@dataclass(frozen=True)
class Tensor:
    """A view of a storage, as the file declares it."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TensorFile:
    """The tensors of a PyTorch file that is a member of an archive. `reader` reads the archive, and names it in errors.

    `shapes` has the names of the tensors.
    """

    def __init__(self, reader: FileReader, member: str):
        self._reader, self._member = reader, member
        found = reader.members(lambda name: name == member)
        if member not in found:
            raise reader.damaged(f"it has no {member}")
        self._data = found[member]
        if not self._data.startswith(b"PK"):
            raise reader.damaged(f"{member} has the format of PyTorch before 1.6: load and save the model again")
        pickles = self._read(lambda name: name.endswith("/data.pkl"))
        if len(pickles) != 1:
            raise reader.damaged(f"{member} is not a file of torch.save: it has {len(pickles)} data.pkl")
        ((name, program),) = pickles.items()
        if len(program) > LONGEST_PICKLE:
            raise reader.damaged(
                f"its pickle has {readable(len(program))}, and at most {readable(LONGEST_PICKLE)} are read"
            )
        self._folder = name.removesuffix("data.pkl")
        order = self._read(lambda name: name == f"{self._folder}byteorder").get(f"{self._folder}byteorder")
        if order not in (None, b"little"):
            raise reader.damaged(f"{member} has the byte order {quoted(bytes(order or b''), 20)}: little is read")
        with reader.guarded():
            self._tensors = read_tensors(bytes(program))
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}

    def read(self, names: list[str]) -> dict[str, np.ndarray]:
        """The numbers of some tensors."""
        with self._reader.guarded():
            tensors = {name: self._tensors[name] for name in names}
            for name, tensor in tensors.items():
                _check_view(name, tensor)
        keys = {f"{self._folder}data/{tensor.storage.key}" for tensor in tensors.values()}
        storages = self._read(keys.__contains__)
        return {name: self._array(name, tensor, storages) for name, tensor in tensors.items()}

    def _read(self, wanted: Any, most: int = SMALL) -> dict[str, bytearray]:
        return self._reader.members(wanted, most, self._data)

    def _array(self, name: str, tensor: Tensor, storages: dict[str, bytearray]) -> np.ndarray:
        storage, dtype = tensor.storage, np.dtype(STORAGES[tensor.storage.kind])
        data = storages.get(f"{self._folder}data/{storage.key}")
        if data is None or len(data) != storage.size * dtype.itemsize:
            found = "no numbers" if data is None else readable(len(data))
            raise self._reader.damaged(f"tensor {quoted(name)} has {found}, and {storage.size} numbers are declared")
        flat = np.frombuffer(data, dtype.newbyteorder("<"))[tensor.offset :]
        steps = tuple(stride * dtype.itemsize for stride in tensor.strides)
        view = np.lib.stride_tricks.as_strided(flat, tensor.shape, steps, writeable=False)
        return view.astype(dtype)


def _check_view(name: str, tensor: Tensor) -> None:
    """Raise ValueError unless the tensor is of a known type, lies inside its storage and repeats no number."""
    storage, title = tensor.storage, f"tensor {quoted(name)}"
    if storage.kind not in STORAGES:
        raise ValueError(f"{title} has a {storage.kind}: {', '.join(STORAGES)} are read")
    if len(tensor.shape) != len(tensor.strides) or len(tensor.shape) > MOST_AXES:
        raise ValueError(f"{title} has {len(tensor.shape)} axes and {len(tensor.strides)} strides")
    count = math.prod(tensor.shape)
    last = tensor.offset + sum(
        (length - 1) * stride for length, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    if not 0 < count <= storage.size or last >= storage.size:
        shape = quoted(tensor.shape, 60)
        raise ValueError(f"{title} of shape {shape} is outside of its {quoted(storage.size, 20)} numbers")


def read_tensors(program: bytes) -> dict[str, Tensor]:
    """The tensors that a pickle describes. Raises ValueError if it holds, or does, anything else."""
    result = _Machine().run(program)
    if type(result) is not dict:
        raise ValueError(f"its pickle holds a {type(result).__name__}, not a dictionary of tensors")
    return {name: tensor for name, tensor in result.items() if isinstance(tensor, Tensor)}


class _Mark:
    """The place in the stack where the items of a tuple or a dictionary begin."""


class _Machine:
    """A stack machine with the operations of a dictionary of tensors.

    Values are bool, int, str, None, tuple, dict, `Global`, `Storage` and `Tensor`. Keys of a dictionary are text, so no
    value is hashed, compared or printed whose parts may contain each other many times.
    """

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, program: bytes) -> Any:
        """The value that the program leaves."""
        for opcode, argument, _ in pickletools.genops(io.BytesIO(program)):
            if opcode.name == "STOP":
                (result,) = self._stack
                return result
            self._do(opcode.name, argument)
        raise ValueError("its pickle does not end")

    def _do(self, name: str, argument: Any) -> None:
        stack = self._stack
        match name:
            case "PROTO" | "FRAME":
                pass
            case "BINUNICODE" | "SHORT_BINUNICODE" | "BININT" | "BININT1" | "BININT2" | "LONG1":
                stack.append(argument)
            case "NEWTRUE" | "NEWFALSE" | "NONE":
                stack.append({"NEWTRUE": True, "NEWFALSE": False, "NONE": None}[name])
            case "EMPTY_TUPLE" | "EMPTY_DICT":
                stack.append(() if name == "EMPTY_TUPLE" else {})
            case "MARK":
                stack.append(_Mark)
            case "TUPLE":
                stack.append(tuple(self._after_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._pop(int(name[-1]))))
            case "SETITEM":
                self._set(self._pop(2))
            case "SETITEMS":
                self._set(self._after_mark())
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = stack[-1]
            case "MEMOIZE":
                self._memo[len(self._memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self._memo[argument])
            case "GLOBAL":
                stack.append(_named(tuple(argument.split(" "))))
            case "STACK_GLOBAL":
                stack.append(_named(tuple(self._pop(2))))
            case "BINPERSID":
                stack.append(_storage(*self._pop(1)))
            case "REDUCE":
                stack.append(_made(*self._pop(2)))
            case "BUILD":  # the attribute `_metadata` of the dictionary, which is not needed
                state, target = self._pop(1)[0], stack[-1]
                if type(state) is not dict or type(target) is not dict:
                    raise ValueError("its pickle sets attributes")
            case _:
                raise ValueError(f"its pickle has the operation {name}, which no file of tensors needs")

    def _pop(self, count: int) -> list[Any]:
        values = self._stack[len(self._stack) - count :]
        if len(values) < count or any(value is _Mark for value in values):
            raise ValueError("its pickle takes more values than there are")
        del self._stack[len(self._stack) - count :]
        return values

    def _after_mark(self) -> list[Any]:
        values: list[Any] = []
        while self._stack:
            value = self._stack.pop()
            if value is _Mark:
                return values[::-1]
            values.append(value)
        raise ValueError("its pickle has no mark")

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1] if self._stack else None
        if type(target) is not dict or len(items) % 2:
            raise ValueError("its pickle sets items of something that is no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                raise ValueError("its pickle has a dictionary with keys that are no text")
            target[key] = value


def _named(name: tuple[Any, ...]) -> Global:
    if len(name) != 2 or not all(type(part) is str for part in name) or name not in GLOBALS:
        shown = quoted(".".join(part if type(part) is str else "?" for part in name), 80)
        raise ValueError(f"its pickle names {shown}, which no file of tensors needs")
    return Global(name[1])


def _storage(value: Any) -> Storage:
    """The storage of a persistent id: ("storage", type, key, device, size)."""
    if type(value) is tuple and len(value) == 5 and value[0] == "storage":
        _, kind, key, _, size = value
        if isinstance(kind, Global) and kind.name.endswith("Storage") and type(key) is str and _is_count(size):
            return Storage(kind.name, key, size)
    raise ValueError("its pickle has a storage of another form")


def _made(function: Any, arguments: Any) -> Any:
    """What a "call" stands for: an empty dictionary, or a tensor."""
    name = function.name if isinstance(function, Global) and type(arguments) is tuple else None
    if name == DICTIONARY and not arguments:
        return {}
    if name == TENSOR and len(arguments) in (6, 7):
        storage, offset, shape, strides = arguments[:4]
        sizes = type(shape) is tuple and type(strides) is tuple and all(_is_count(x) for x in (*shape, *strides))
        if isinstance(storage, Storage) and _is_count(offset) and sizes:
            return Tensor(storage, offset, shape, strides)
    if name == PARAMETER and len(arguments) == 3 and isinstance(arguments[0], Tensor):
        return arguments[0]
    raise ValueError("its pickle calls something that is no tensor")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**48
