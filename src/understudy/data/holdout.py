"""Held-out demonstrations: data that judge policies and that no learner trains on.

Whole episodes are held out, since neighbouring steps of one episode are nearly copies of each other. Of FEWEST or more
episodes these are every n-th from the fourth on, with n = 1 / holdout. Of fewer episodes a whole one would be a large
part, so a contiguous block from the middle of the first is held out; a payoff measured on it means little. Which steps
are held out depends only on the demonstrations and on the number of episodes in use, not on algorithm, seed or other
numbers of episodes in the same call.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, SupportsFloat

import jax.numpy as jnp
import numpy as np

from understudy.core.errors import SettingError
from understudy.core.types import Dataset, Transition

FEWEST = 4
"""The fewest episodes of which a whole one is held out."""
MAX_STEPS = 4096
"""The most held-out steps of a run. Of more, evenly spaced ones are used."""
Kind = Literal["episodes", "block", "training"]
FIRST, BLOCK, HELD, REST = 0, 1, 2, 3
"""Groups of steps: the first three episodes without the block, the block, held-out episodes, and all others."""
TRAINED: dict[Kind, tuple[int, ...]] = {
    "training": (FIRST, REST),
    "block": (FIRST,),
    "episodes": (FIRST, BLOCK, REST),
}
"""The groups that a run trains on."""


class Split(NamedTuple):
    """Training and held-out steps of some runs."""

    training: Dataset
    """The steps are shared by the runs; `size` has an entry for each run."""
    held_out: Dataset
    """Every array has a leading axis of runs."""


def check_holdout(holdout: object) -> float:
    """The fraction as a float. Raises SettingError unless it is from 0 to 0.5."""
    if not isinstance(holdout, SupportsFloat) or not 0 <= float(holdout) <= 0.5:
        raise SettingError(f"holdout is {holdout!r}: choose a fraction from 0 to 0.5")
    return float(holdout)


def kind_of(lengths: np.ndarray, count: int, holdout: float) -> Kind:
    """What is held out of the first `count` episodes: whole episodes, a block of steps, or nothing.

    With nothing held out, policies are judged on the training steps.
    """
    if holdout == 0 or (count < FEWEST and lengths[0] < 3):
        return "training"
    return "episodes" if count >= FEWEST else "block"


def training_rows(lengths: np.ndarray, count: int, holdout: float) -> np.ndarray:
    """The steps that a run trains on if it uses the first `count` episodes, in the order of the episodes."""
    order, groups = _order(lengths, holdout)
    kind, end = kind_of(lengths, count, holdout), int(lengths[:count].sum())
    return np.sort(order[(order < end) & np.isin(groups, TRAINED[kind])])


def split(steps: Transition, lengths: np.ndarray, counts: Sequence[int], holdout: float) -> Split:
    """The split for runs that use the first counts[i] episodes. `steps` are all steps, in order."""
    order, groups = _order(lengths, holdout)
    kinds = [kind_of(lengths, count, holdout) for count in counts]
    runs = list(zip(np.cumsum(lengths)[np.asarray(counts) - 1], kinds, strict=True))
    # The training steps of a run come first in the shared order, so that its size says which they are.
    sizes = [int(((order < end) & np.isin(groups, TRAINED[kind])).sum()) for end, kind in runs]
    rows = (order if holdout == 0 else order[groups != HELD])[: max(sizes)]
    training = Dataset(
        Transition(*(jnp.asarray(column[rows]) for column in steps)), jnp.asarray(np.asarray(sizes, np.int32))
    )
    return Split(training, _padded(steps, [_held_rows(order, groups, end, kind) for end, kind in runs]))


def _order(lengths: np.ndarray, holdout: float) -> tuple[np.ndarray, np.ndarray]:
    """All steps in an order in which every run's training steps come first, and their groups."""
    index = np.arange(int(lengths.sum()))
    if holdout == 0:
        return index, np.full(len(index), REST)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    groups = np.where(episode < FEWEST - 1, FIRST, REST)
    groups[np.isin(episode, np.arange(FEWEST - 1, len(lengths), round(1 / holdout)))] = HELD
    if lengths[0] >= 3:  # the last step stays: it says how the episode ended
        size = min(max(round(holdout * int(lengths[0])), 1), int(lengths[0]) - 2)
        start = (int(lengths[0]) - 1 - size) // 2
        groups[start : start + size] = BLOCK
    order = np.argsort(np.where(groups == FIRST, 0, np.where(groups == BLOCK, 1, 2)), kind="stable")
    return order, groups[order]


def _held_rows(order: np.ndarray, groups: np.ndarray, end: int, kind: Kind) -> np.ndarray:
    """The held-out rows of a run; of more than MAX_STEPS, evenly spaced ones."""
    chosen = {"training": groups >= 0, "block": groups == BLOCK, "episodes": groups == HELD}[kind]
    rows = np.sort(order[chosen & (order < end)])
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MAX_STEPS)).astype(int))]


def _padded(steps: Transition, held: list[np.ndarray]) -> Dataset:
    """One dataset for all runs. The padding repeats a run's first held-out step."""
    most = max(len(rows) for rows in held)
    padded = np.stack([np.concatenate([rows, np.repeat(rows[:1], most - len(rows))]) for rows in held])
    sizes = np.asarray([len(rows) for rows in held], np.int32)
    return Dataset(Transition(*(jnp.asarray(column[padded]) for column in steps)), jnp.asarray(sizes))
