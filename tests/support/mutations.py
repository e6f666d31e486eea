"""Kinds of damage to files: the corpus of the fuzz tests and of `tools/fuzz.py`.

A mutation is a pure function of a file's bytes and a random generator. `mutated(data, kind, seed)` applies one that the
seed chooses; `mutate_file` and `mutate_directory` do so on the disk. `loaded` states what a reader may do with the
result: return a value, or raise a named error in one line that names the file.
"""

import os
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from support.byte_mutations import BYTES, Mutation
from support.npz_mutations import NPZ
from support.sb3_mutations import SB3
from support.text_mutations import CSV, JSON, TEXT
from understudy.core.errors import UnderstudyError

KINDS: dict[str, tuple[Mutation, ...]] = {"npz": NPZ, "json": JSON, "csv": CSV, "toml": TEXT, "zip": SB3}
"""The mutations of each kind of file, by the ending of its name. Any other file: `BYTES`."""


def mutated(data: bytes, kind: str, seed: int) -> tuple[str, bytes]:
    """The name of a mutation for this kind of file, and the damaged contents. Sometimes two mutations."""
    random = np.random.default_rng(seed)
    kinds = KINDS.get(kind, BYTES)
    first = kinds[random.integers(len(kinds))]
    data = first(data, random)
    if random.random() < 0.1:
        second = BYTES[random.integers(len(BYTES))]
        return f"{first.__name__}, {second.__name__}", second(data, random)
    return first.__name__, data


def mutate_file(path: Path, seed: int) -> str:
    """Damage a file; returns the name of the mutation."""
    name, data = mutated(path.read_bytes(), path.suffix.removeprefix("."), seed)
    path.write_bytes(data)
    return name


def mutate_directory(path: Path, seed: int) -> str:
    """Damage one file of a directory, or the directory's entries; returns what was done."""
    random = np.random.default_rng(seed)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    file = files[random.integers(len(files))]
    where = file.relative_to(path)
    if random.random() < 0.75:
        return f"{mutate_file(file, seed)} of {where}"
    kind = str(
        random.choice(["remove", "folder", "pipe", "link", "loop", "swap", "rename", "remove folder", "unreadable"])
    )
    if kind == "swap":
        other = files[random.integers(len(files))]
        a, b = file.read_bytes(), other.read_bytes()
        file.write_bytes(b)
        other.write_bytes(a)
        return f"swap {where} and {other.relative_to(path)}"
    if kind == "remove folder" and file.parent != path:
        shutil.rmtree(file.parent)
        return f"remove {where.parent}"
    if kind == "rename":
        file.rename(file.with_name(f"x{file.name}"))
        return f"rename {where}"
    if kind == "unreadable":
        file.chmod(0)
        return f"unreadable {where}"
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to("/dev/zero")
    elif kind == "loop":
        file.symlink_to(file)
    return f"{kind} {where}"


def loaded(load: Callable[[], Any], *names: str) -> Any:
    """The value that a reader returns, or None for a named error.

    Asserts that the error is one of `core.errors`, that its message is one short line without control characters, and
    that it contains one of `names`.
    """
    try:
        return load()
    except UnderstudyError as error:
        message = str(error)
    assert len(message) < 800, message[:1000]
    odd = [c for c in message if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert not odd, repr(message)
    assert any(name in message for name in names), f"{message!r} names none of {names}"
    return None
