"""Numbers that no machine can serve: refused before anything is allocated.

The memory of a training call is estimated from the shapes alone (`jax.eval_shape`). The estimate is low: it counts what
is certainly there, not the temporary arrays of a compiled program. So what fits is never refused.
"""

import dataclasses
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from understudy.core.errors import SettingError
from understudy.core.memory import check_memory, machine_memory, readable, step_bytes
from understudy.core.types import Dataset, Spec
from understudy.game import Algorithm
from understudy.game.user_code import calling

RUN_BYTES = 1000
"""Of the Python objects of a run: its seed, keys, result and policy."""
RECORD_BYTES, RECORD_OF_RUN = 300, 15
"""Of the record of a round: the Python objects, and the numbers of each run."""
KEY_BYTES = 8
MOST = 2**31 - 1
"""The largest number that a compiled program counts to, and the longest axis of an array."""


@dataclass(frozen=True)
class Part:
    """Something that takes memory, and the settings that decide how much (none named: any of them)."""

    what: str
    size: int
    settings: tuple[str, ...]


def check_size(algorithm: Algorithm, spec: Spec, demonstrations: Dataset, runs: int) -> None:
    """Raise if training `runs` runs needs more memory than there is. `demonstrations` are those of one run."""
    parts = sorted(_parts(algorithm, spec, demonstrations), key=lambda part: part.size, reverse=True)
    largest = parts[0]
    available, device = _available()
    shared = sum(part.size for part in parts if part.what == "the records of all rounds")
    total = runs * (RUN_BYTES + sum(part.size for part in parts)) - (runs - 1) * shared
    lower = "seeds" if runs > 1 and total // runs <= available else _largest(algorithm, largest.settings)
    what = f"training {runs} runs" if runs > 1 else "training a run"
    each = f"{largest.what}: {readable(largest.size)}{' each' if runs > 1 else ''}"
    check_memory(f"{what} of {algorithm.card.title}{device} ({each})", total, f"lower {lower}", available)
    _check_counts(algorithm)


def _largest(algorithm: Algorithm, settings: tuple[str, ...] = ()) -> str:
    """The setting with the largest number, among those whose names end like one of `settings`."""
    named = {name.split("[")[0]: value for name, value in sorted(_numbers(algorithm).items(), key=lambda item: item[1])}
    fitting = [name for name in named if not settings or name.rsplit(".", 1)[-1] in settings]
    return max(fitting, key=lambda name: named[name], default="the sizes")


def _available() -> tuple[int, str]:
    """The memory that training can use, and the name of the accelerator if it is that one's."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    limit = (stats or {}).get("bytes_limit")
    return (machine_memory(), "") if limit is None else (int(limit), f" on {device.device_kind}")


def _parts(algorithm: Algorithm, spec: Spec, demonstrations: Dataset) -> Iterator[Part]:
    """What one run takes."""
    numbers, step = _numbers(algorithm), step_bytes(spec)
    yield Part("networks and data", _state_bytes(algorithm, spec, demonstrations), ())
    schedule = algorithm.schedule
    if schedule is not None:
        buffer = (schedule.capacity + schedule.update_steps) * step
        yield Part("replay buffer", buffer, ("buffer_size", "rounds", "round_steps", "frequency", "envs"))
        _check_steps(algorithm.rounds * schedule.round_steps)
    elif "environment" in algorithm.card.needs:
        episodes = algorithm.episodes_per_round
        yield Part("episodes of a round", episodes * spec.horizon * step, ("episodes_per_round",))
    for ending, size in (("batch_size", step // 2), ("gradient_steps", KEY_BYTES)):
        names = [name for name in numbers if name.rsplit(".", 1)[-1] == ending]
        for name in names[:1]:  # its own; players such as SAC take turns
            yield Part(ending.replace("_", " "), numbers[name] * size, (ending,))
    yield Part("the records of all rounds", algorithm.rounds * (RECORD_BYTES + RECORD_OF_RUN), ("rounds",))


def _state_bytes(algorithm: Algorithm, spec: Spec, demonstrations: Dataset) -> int:
    """The bytes of an algorithm's state before round 0."""

    def init(data: Dataset) -> Any:
        one = jax.tree.map(lambda x: x[0], data._replace(steps=None))  # type: ignore[arg-type]
        with calling(f"{algorithm.card.name}.init", type(algorithm).init):
            return algorithm.init(jax.random.key(0), spec, one._replace(steps=data.steps))

    try:
        state = jax.eval_shape(init, demonstrations)
    except OverflowError as error:
        raise SettingError(f"{_largest(algorithm)} is too large for any array: lower it") from error
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _check_steps(steps: int) -> None:
    if steps > MOST:
        raise SettingError(
            f"a run takes {steps} environment steps, at most {MOST} are possible: lower rounds or round_steps"
        )


def _check_counts(algorithm: Algorithm) -> None:
    """Raise if a number is larger than what a compiled program can count to."""
    for name, value in _numbers(algorithm).items():
        if name.rsplit(".", 1)[-1] in ("rounds", "batch_size", "gradient_steps", "episodes_per_round") and value > MOST:
            raise SettingError(f"{name} is {value}: at most {MOST} is possible")


def _numbers(record: Any, prefix: str = "") -> dict[str, int]:
    """All whole numbers among the settings, also those of its players ("sac.batch_size") and layers ("hidden[0]")."""
    found: dict[str, int] = {}
    for field in dataclasses.fields(record):
        value, name = getattr(record, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            found |= _numbers(value, f"{name}.")
        elif isinstance(value, tuple | list):
            found |= {f"{name}[{i}]": operator.index(x) for i, x in enumerate(value) if _is_whole(x)}
        elif _is_whole(value):
            found[name] = operator.index(value)
    return found


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number of any library: Python, NumPy or JAX."""
    if isinstance(value, int):
        return not isinstance(value, bool)
    return np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.integer)
