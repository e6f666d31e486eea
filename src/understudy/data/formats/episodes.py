"""How recordings mark their episodes: lengths, ends, starts, numbers of episodes, or flags of single steps."""

from dataclasses import dataclass

import numpy as np

from understudy.core.text import quoted
from understudy.data.checks import Checker

Array = np.ndarray | None


@dataclass(frozen=True)
class Marks:
    """The marks of a recording, as they stand there. None: it has none of this kind."""

    lengths: Array = None
    """(episodes,): steps of each episode."""
    episode_ends: Array = None
    """(episodes,): the row after each episode, so that the last is the number of steps; or (N,) flags of last steps."""
    episode_starts: Array = None
    """(episodes,): the first row of each episode; or (N,) flags of first steps."""
    episode_numbers: Array = None
    """(N,): the number of the episode of each step. An episode's steps are consecutive."""
    terminals: Array = None
    """(N,): the state after the step is absorbing."""
    timeouts: Array = None
    """(N,): the episode was truncated after the step."""
    dones: Array = None
    """(N,): the episode ended after the step, for any reason."""

    @property
    def flags(self) -> dict[str, np.ndarray]:
        """The marks that are flags of steps."""
        found = {name: getattr(self, name) for name in ("terminals", "timeouts", "dones")}
        return {name: flag for name, flag in found.items() if flag is not None}

    def lengths_of(self, check: Checker, steps: int, single: bool) -> np.ndarray:
        """The length of each episode. `single` says that there is one episode if nothing marks them."""
        for name, flag in self.flags.items():
            if flag.size != steps:
                raise check.error(f"{name} has shape {flag.shape}: {steps} flags are needed, one per step")
        if self.lengths is not None:
            return check.lengths(self.lengths.reshape(-1), steps)
        if self.episode_numbers is not None:
            return _from_numbers(check, self.episode_numbers.reshape(-1), steps)
        if self.episode_ends is not None:
            last = _flags(self.episode_ends, steps)
            return _runs(last) if last is not None else _lengths(check, "episode_ends", self.episode_ends, steps)
        if self.episode_starts is not None:
            first = _flags(self.episode_starts, steps)
            rows = np.flatnonzero(first) if first is not None else self.episode_starts.reshape(-1)
            if rows.size == 0 or rows[0] != 0:
                raise check.error(f"episode_starts is {_some(rows)}: its first row number must be 0")
            return _lengths(check, "episode_starts", np.append(rows[1:], steps), steps)
        if not self.flags and not single:
            raise check.error(
                "nothing says where episodes end: add lengths (steps of each episode), episode_ends, or terminals and "
                "timeouts; or pass episodes=1 (--episodes 1) if all steps are one episode"
            )
        last = np.zeros(steps, bool)
        for flag in self.flags.values():
            last |= flag.reshape(-1).astype(bool)
        return _runs(last)

    def terminal(self) -> Array:
        """Which steps end in an absorbing state; None: not recorded. A bare `dones` does not tell it."""
        if self.terminals is not None or self.dones is None or self.timeouts is None:
            return self.terminals
        return self.dones.reshape(-1).astype(bool) & ~self.timeouts.reshape(-1).astype(bool)


def _from_numbers(check: Checker, numbers: np.ndarray, steps: int) -> np.ndarray:
    if len(numbers) != steps or steps == 0:
        raise check.error(f"episode has {len(numbers)} rows: {steps} are needed, one per step")
    first = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    names, counts = np.unique(numbers[first], return_counts=True)
    if (counts > 1).any():
        raise check.error(f"the steps of episode {names[counts > 1][0]:g} are not consecutive: sort the rows")
    return np.diff(np.append(first, steps))


def _runs(last: np.ndarray) -> np.ndarray:
    """Lengths of episodes whose last steps are marked. Steps after the last mark are an episode too."""
    ends = np.flatnonzero(last) + 1
    if len(last) and (ends.size == 0 or ends[-1] != len(last)):
        ends = np.append(ends, len(last))
    return np.diff(ends, prepend=0)


def _flags(value: np.ndarray, steps: int) -> Array:
    """Booleans, one per step; None if the value holds row numbers."""
    array = value.reshape(-1)
    are_flags = len(array) == steps > 1 and ((array == 0) | (array == 1)).all()
    return array.astype(bool) if are_flags else None


def _lengths(check: Checker, name: str, ends: np.ndarray, steps: int) -> np.ndarray:
    """Lengths of episodes from the row after each."""
    rows = ends.reshape(-1)
    if rows.dtype.kind in "iu" and rows.size and rows.min() >= 0 and rows.max() <= steps:
        lengths = np.diff(rows.astype(np.int64), prepend=0)
        if (lengths > 0).all() and rows[-1] == steps:
            return lengths
    raise check.error(
        f"{name} is {_some(rows)}: increasing row numbers up to the number of steps, {steps}, or one boolean per step, "
        "are needed"
    )


def _some(rows: np.ndarray) -> str:
    return quoted(rows[:5].tolist()) + (" and so on" if len(rows) > 5 else "")
