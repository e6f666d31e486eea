"""Gymnasium spaces as flat arrays: observations with named parts, and actions as a box or a number.

Observations: Dict, Tuple, Box of any shape, Discrete, MultiDiscrete and MultiBinary become one row of float32 numbers.
A part's name is its path, joined by dots ("arm.joint_pos", or "0" and "1" in a Tuple); a space that is not nested has
no names. Discrete numbers become one-hot vectors, as in `gymnasium.spaces.flatten`.

Actions: a Box of any shape becomes a flat `Continuous`. Discrete (with any start), and MultiDiscrete and MultiBinary
with at most `MOST_COMBINATIONS` combinations, become one `Discrete`; with more, they become a flat `MultiDiscrete`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from understudy.core.errors import SpecError
from understudy.core.parts import Parts
from understudy.core.text import quoted
from understudy.core.types import LARGEST_BOUND, MOST_ACTIONS, ActionSpace, Continuous, Discrete, MultiDiscrete

MOST_COMBINATIONS = 4096
"""Combinations of a MultiDiscrete or MultiBinary action that become one categorical."""
MARGIN = 0.1
"""Share of the demonstrated range that is added on each side to the bounds of actions that have none."""
SMALLEST_IMAGE = 32
"""Pixels of each side from which a uint8 Box of two or three axes counts as an image."""
Path = tuple[str, ...]


def leaves(space: spaces.Space[Any], path: Path = ()) -> Iterator[tuple[Path, spaces.Space[Any]]]:
    """The spaces that are not nested, with their paths, in the order of the flat observation."""
    if isinstance(space, spaces.Dict):
        for name, one in space.spaces.items():
            yield from leaves(one, (*path, str(name)))
    elif isinstance(space, spaces.Tuple):
        for index, one in enumerate(space.spaces):
            yield from leaves(one, (*path, str(index)))
    else:
        yield path, space


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether a space holds images: uint8, two or three axes, and at least 32 × 32."""
    shape = space.shape or ()
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and len(shape) in (2, 3)
        and sorted(shape)[-2] >= SMALLEST_IMAGE
    )


def width(space: spaces.Space[Any]) -> int:
    """Numbers of a space in the flat observation; 0: it cannot be flattened."""
    if isinstance(space, spaces.Box) and not is_image(space):
        return math.prod(space.shape)
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return math.prod(space.shape) if isinstance(space, spaces.MultiBinary) else 0


def observation_parts(space: spaces.Space[Any], name: str) -> tuple[int, Parts]:
    """The size of the flat observation and its parts. Raises SpecError if it cannot be flattened; `name` owns it."""
    found = list(leaves(space))
    for path, one in found:
        part = f" '{quoted('.'.join(path))}'" if path else ""
        if is_image(one):
            raise SpecError(
                f"{name} has the image observation{part} {quoted(one)}: images are not supported yet; choose other "
                "observation keys, or wrap the environment so that it returns features"
            )
        if width(one) == 0:
            raise SpecError(f"{name} has the observation{part} {quoted(one)}: it cannot be flattened to numbers")
    if not found:
        raise SpecError(f"{name} has an empty observation space {quoted(space)}")
    parts = tuple((".".join(path), width(one)) for path, one in found if path)
    return sum(width(one) for _, one in found), parts


def flat_observations(space: spaces.Space[Any], value: Any, count: int | None = None) -> np.ndarray:
    """An observation as a row of float32 numbers; with `count`, a batch of them, whose leaves have a leading axis.

    Raises ValueError, TypeError, KeyError or IndexError if the value does not fit the space.
    """
    rows = 1 if count is None else count
    if isinstance(space, spaces.Box) and count is None:  # the usual case
        return np.asarray(value, np.float32).reshape(math.prod(space.shape))
    columns = [_numbers(one, _at(value, path, space), rows) for path, one in leaves(space)]
    flat = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
    return flat[0] if count is None else flat


def unflattened(space: spaces.Space[Any], rows: np.ndarray) -> Any:
    """A batch of flat observations as the space has them, each leaf with a leading axis: undoes `flat_observations`.

    Raises ValueError if their size is another.
    """
    sizes = [width(one) for _, one in leaves(space)]
    if rows.ndim != 2 or rows.shape[1] != sum(sizes):
        raise ValueError(f"observations of shape {rows.shape} for a space of {sum(sizes)} numbers")
    columns = iter(np.split(rows, np.cumsum(sizes)[:-1], axis=1))

    def value(one: spaces.Space[Any]) -> Any:
        if isinstance(one, spaces.Dict):
            return {name: value(inner) for name, inner in one.spaces.items()}
        if isinstance(one, spaces.Tuple):
            return tuple(value(inner) for inner in one.spaces)
        found = next(columns)
        if isinstance(one, spaces.Discrete):
            return found.argmax(axis=1) + int(one.start)
        if isinstance(one, spaces.MultiDiscrete):
            parts = np.split(found, np.cumsum(one.nvec.reshape(-1))[:-1], axis=1)
            numbers = np.stack([part.argmax(axis=1) for part in parts], axis=1) + one.start.reshape(-1)
            return numbers.reshape(len(rows), *one.shape)
        return found.reshape(len(rows), *(one.shape or ())).astype(one.dtype)

    return value(space)


def is_plain(space: spaces.Space[Any]) -> bool:
    """Whether a space has flat rows of numbers, or numbers from 0 on: nothing is converted."""
    if isinstance(space, spaces.Discrete):
        return int(space.start) == 0
    return isinstance(space, spaces.Box) and len(space.shape) == 1


def _at(value: Any, path: Path, space: spaces.Space[Any]) -> Any:
    for name in path:
        if isinstance(space, spaces.Tuple):
            value, space = value[int(name)], space.spaces[int(name)]
        else:
            value, space = value[name], space[name]  # type: ignore[index]
    return value


def _numbers(space: spaces.Space[Any], value: Any, rows: int) -> np.ndarray:
    if isinstance(space, spaces.Discrete):
        return _one_hot(np.asarray(value).reshape(rows, 1) - int(space.start), np.array([space.n]))
    if isinstance(space, spaces.MultiDiscrete):
        return _one_hot(np.asarray(value).reshape(rows, -1) - space.start.reshape(-1), space.nvec.reshape(-1))
    return np.asarray(value).astype(np.float32).reshape(rows, width(space))


def _one_hot(index: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    if index.dtype.kind not in "iub" or (index < 0).any() or (index >= sizes).any():
        raise ValueError(f"{quoted(index.tolist())} is out of range")
    starts = np.cumsum(sizes) - sizes
    flat = np.zeros((len(index), int(sizes.sum())), np.float32)
    np.put_along_axis(flat, (index + starts).astype(np.int64), 1.0, axis=1)
    return flat


@dataclass(frozen=True)
class Actions:
    """How the actions of a Gymnasium space become those of a policy, and back. Both functions take a batch."""

    space: ActionSpace | None
    """The policy's space; None: a Box without bounds, which need those of the demonstrations."""
    size: int
    """Numbers of a continuous action, or the number of discrete ones."""
    encode: Callable[[np.ndarray], np.ndarray]
    """From the environment: (n, *shape) to (n, size), or to (n,) or (n, numbers) of integers.

    Raises ValueError if one is invalid.
    """
    decode: Callable[[np.ndarray], np.ndarray]
    """To the environment."""


def actions_of(space: spaces.Space[Any], name: str) -> Actions:
    """The actions of a space. Raises SpecError if no policy can have them; `name` owns the space."""
    if isinstance(space, spaces.Box) and math.prod(space.shape) > 0:
        return _box(space)
    if isinstance(space, spaces.Discrete):
        first, count = int(space.start), int(space.n)
        return _indexed(Discrete(count), lambda act: act - first, lambda index: index + first, ())
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        if isinstance(space, spaces.MultiBinary):
            sizes, start = np.full(math.prod(space.shape), 2), np.zeros(math.prod(space.shape), np.int64)
        else:
            sizes, start = space.nvec.reshape(-1), space.start.reshape(-1)
        if len(sizes) > MOST_ACTIONS:
            raise SpecError(
                f"{name} has an action of {len(sizes)} discrete numbers: at most {MOST_ACTIONS} are allowed"
            )
        total = math.prod(int(size) for size in sizes)
        if total <= MOST_COMBINATIONS:
            return _combined(space, tuple(int(size) for size in sizes), start, total)
        return _independent(space, tuple(int(size) for size in sizes), start, name)
    raise SpecError(
        f"{name} has the action space {quoted(space)}: Box, Discrete, MultiDiscrete or MultiBinary is needed"
    )


def margin_bounds(actions: np.ndarray) -> Continuous:
    """Bounds for demonstrated actions (n, size): their range and a tenth of it on each side; ± 1 around a constant."""
    low, high = actions.min(axis=0).astype(float), actions.max(axis=0).astype(float)
    margin = np.where(high > low, MARGIN * (high - low), 1.0)
    return Continuous(tuple((low - margin).tolist()), tuple((high + margin).tolist()))


def _box(space: spaces.Box) -> Actions:
    shape, size = space.shape, math.prod(space.shape)
    low, high = space.low.reshape(-1).astype(float), space.high.reshape(-1).astype(float)
    bounded = bool((np.abs(low) <= LARGEST_BOUND).all() and (np.abs(high) <= LARGEST_BOUND).all())
    return Actions(
        Continuous(tuple(low.tolist()), tuple(high.tolist())) if bounded else None,
        size,
        lambda act: np.asarray(act).reshape(len(act), size),
        lambda act: np.asarray(act).reshape(len(act), *shape),
    )


def _combined(space: spaces.Space[Any], sizes: tuple[int, ...], start: np.ndarray, total: int) -> Actions:
    shape = space.shape or ()

    def encode(act: np.ndarray) -> np.ndarray:
        digits = np.asarray(act).reshape(len(act), len(sizes)) - start
        return np.ravel_multi_index(tuple(digits.T.astype(np.int64)), sizes)  # raises ValueError out of range

    def decode(index: np.ndarray) -> np.ndarray:
        digits = np.stack(np.unravel_index(index, sizes), axis=-1) + start
        return digits.reshape(len(index), *shape)

    return _indexed(Discrete(total), encode, decode, shape)


def _independent(space: spaces.Space[Any], sizes: tuple[int, ...], start: np.ndarray, name: str) -> Actions:
    shape = space.shape or ()
    try:
        ours = MultiDiscrete(sizes)
    except SpecError as error:
        raise SpecError(f"{name} has the action space {quoted(space)}: {error}") from error

    def encode(act: np.ndarray) -> np.ndarray:
        array = np.asarray(act)
        if array.dtype.kind not in "iub":
            raise ValueError(f"discrete actions of type {array.dtype}")
        digits = array.reshape(len(array), len(sizes)).astype(np.int64) - start
        if ours.outside(digits).any():
            raise ValueError(f"discrete action {quoted(array[ours.outside(digits).any(axis=1)][0])} is out of range")
        return digits.astype(np.int32)

    def decode(act: np.ndarray) -> np.ndarray:
        return (np.asarray(act, np.int64) + start).reshape(len(act), *shape)

    return Actions(ours, sum(sizes), encode, decode)


def _indexed(
    space: Discrete,
    encode: Callable[[np.ndarray], np.ndarray],
    decode: Callable[[np.ndarray], np.ndarray],
    shape: tuple[int, ...],
) -> Actions:
    def checked(act: np.ndarray) -> np.ndarray:
        array = np.asarray(act)
        if array.dtype.kind not in "iub":
            raise ValueError(f"discrete actions of type {array.dtype}")
        index = encode(array.reshape(len(array), *shape).astype(np.int64))
        if space.outside(index).any():
            raise ValueError(f"discrete action {quoted(array[space.outside(index)][0])} is out of range")
        return index.astype(np.int32)

    return Actions(space, space.n, checked, lambda index: decode(np.asarray(index, np.int64)))
