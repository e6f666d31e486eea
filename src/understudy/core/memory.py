"""How much memory this machine has, and requests that it cannot serve."""

import functools
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from understudy.core.errors import SettingError
from understudy.core.text import quoted

if TYPE_CHECKING:
    from understudy.core.types import Spec

UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux keeps the memory limit of a container."""


@functools.cache
def machine_memory() -> int:
    """The bytes of memory that this process may use: the machine's, or its container's if that is less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in CGROUP_LIMITS:
        if Path(name).is_file():
            text = Path(name).read_text(encoding="ascii").strip()
            sizes += [int(text)] if text.isdecimal() else []
    return min(sizes)


def readable(size: float) -> str:
    """A number of bytes for a person, such as "3.1 GB"."""
    for unit in UNITS:
        if size < 1000 or unit == UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 1000 else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def parse_size(text: str, name: str) -> int:
    """A number of bytes from a text such as "8000000000" or "8GB". `name` is the setting, for the error."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGTPE]?B|bytes)?\s*", text)
    if match is None:
        raise SettingError(f"{name} is '{quoted(text)}': a number of bytes is needed, such as 8000000000 or 8GB")
    unit = "bytes" if match[2] in (None, "B") else match[2]
    return int(float(match[1]) * 1000 ** UNITS.index(unit))


def array_bytes(shape: tuple[int, ...], dtype: np.dtype | type) -> int:
    """The bytes of an array, computed without overflow."""
    size = np.dtype(dtype).itemsize
    for length in shape:
        size *= int(length)
    return size


def step_bytes(spec: "Spec") -> int:
    """The bytes of one recorded step: observation, next observation, action, reward, time and flags."""
    return 8 * math.prod(spec.obs_shape) + 4 * math.prod(spec.action.shape) + 15


def check_episodes(spec: "Spec", episodes: int, steps: int) -> None:
    """Raise if episodes of at least `steps` steps cannot be held in memory."""
    size = episodes * steps * step_bytes(spec)
    check_memory(f"recording {episodes} episodes of {steps} steps or more", size, "lower episodes")


def check_memory(what: str, size: int, hint: str, available: int | None = None) -> None:
    """Raise if `what` needs more memory than there is. `hint` says what to do."""
    most = machine_memory() if available is None else available
    if size > most:
        raise SettingError(f"{what} needs {readable(size)} of memory, and there are {readable(most)}: {hint}")
