"""The scores of an experiment: what they are, what is refused, and the scale from a random policy to the expert.

Scores are one number for each run, the mean over its episodes: an array (runs,) for one task, or a mapping from task to
such an array. `understudy.evaluation.intervals` has the statistics of them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.core.errors import SettingError, check_finite
from understudy.core.statistics import Sample

Array = npt.NDArray[np.float64]
Scores = npt.ArrayLike | Mapping[str, npt.ArrayLike]
Known = float | Sample | npt.ArrayLike
"""A policy's return: a number that is taken as exact, a sample's mean and deviation, or the returns of its episodes."""

ONE = ""
"""The name of the task of scores that are one array."""

Normal = tuple[float, float]
"""A number's mean and standard error, where its sample is not there to be resampled."""


def expert_normalised(
    scores: Scores, expert: Known | Mapping[str, Known], random: Known | Mapping[str, Known] | None = None
) -> Array | dict[str, Array]:
    """Scores on the scale where a random policy has 0 and the expert 1: (return − random) / (expert − random).

    Without `random`, return / expert, which needs an expert's return above 0. The means of both are taken as exact, so
    intervals of what comes out are of the learner alone. An array gives an array, a mapping a mapping.
    """
    tasks = by_task(scores, "scores")
    experts = known_returns(expert, tasks, "expert")
    randoms = None if random is None else known_returns(random, tasks, "random")
    scaled = {}
    for task, values in tasks.items():
        top, zero = _level(experts[task]), 0.0 if randoms is None else _level(randoms[task])
        if top <= zero:
            found = f"expert{_of(task)} is {top:g}"
            if randoms is None:
                raise SettingError(f"{found}, and no share of it can be taken: give random=, a random policy's return")
            raise SettingError(f"{found}, not above random, {zero:g}: there is no scale from one to the other")
        scaled[task] = (values - zero) / (top - zero)
    return scaled if isinstance(scores, Mapping) else scaled[ONE]


def by_task(scores: Any, name: str) -> dict[str, Array]:
    """Task → (runs,), sorted by name, so that the order they are given in changes nothing."""
    if not isinstance(scores, Mapping):
        return {ONE: _sample(scores, name)}
    if not scores:
        raise SettingError(f"{name} has no tasks: give at least one")
    return {task: _sample(scores[task], f"{name}{_of(task)}") for task in sorted(scores, key=str)}


def _sample(values: Any, name: str) -> Array:
    if hasattr(values, "_fields"):
        raise SettingError(f"{name} is {values!r}: the score of each run is needed, not a summary of them")
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{name} is {values!r}: an array of numbers is needed") from error
    if array.ndim != 1:
        raise SettingError(
            f"{name} has shape {array.shape}: one number for each run is needed, shape (runs,); "
            "average over episodes first, and give several tasks as a mapping"
        )
    if not array.size:
        raise SettingError(f"{name} is empty: at least one number is needed")
    if not np.isfinite(array).all():
        index = int(np.flatnonzero(~np.isfinite(array))[0])
        raise SettingError(
            f"{name}[{index}] is {array[index]}: score the run's last good policy, or leave it out and say so"
        )
    return array


def matched(x: Scores, y: Scores, paired: bool) -> tuple[list[Array], list[Array]]:
    """The scores of two algorithms in the same tasks; `paired`, as many of the one as of the other."""
    xs, ys = by_task(x, "x"), by_task(y, "y")
    _check_tasks(xs, ys, "x", "y")
    for task in xs if paired else ():
        if xs[task].size != ys[task].size:
            raise SettingError(
                f"x{_of(task)} has {xs[task].size} runs and y {ys[task].size}: paired=True needs the same seeds in both"
            )
    return list(xs.values()), list(ys.values())


def known_returns(given: Any, tasks: dict[str, Array], name: str) -> dict[str, Array | Normal]:
    """A policy's return in each task."""
    returns = given if isinstance(given, Mapping) else {ONE: given}
    _check_tasks(tasks, returns, "scores", name)
    return {task: _one(returns[task], f"{name}{_of(task)}") for task in tasks}


def _one(value: Any, name: str) -> Array | Normal:
    if isinstance(value, Sample):
        if not np.isfinite(value.mean) or np.isinf(value.std) or value.size < 1:
            raise SettingError(f"{name} is {value!r}: a finite mean of at least one episode is needed")
        return value.mean, value.standard_error
    if np.ndim(value):
        return _sample(value, name)
    check_finite(**{name: value})
    return float(value), 0.0


def _level(value: Array | Normal) -> float:
    return float(value.mean() if isinstance(value, np.ndarray) else value[0])


def _check_tasks(ours: Mapping[str, Any], theirs: Mapping[str, Any], our_name: str, their_name: str) -> None:
    if set(ours) != set(theirs):
        words = [
            ", ".join(sorted(map(repr, tasks))) if set(tasks) != {ONE} else "one without a name"
            for tasks in (ours, theirs)
        ]
        raise SettingError(
            f"the tasks of {our_name} are {words[0]}, those of {their_name} {words[1]}: the same are needed in both"
        )


def _of(task: str) -> str:
    return f" of task '{task}'" if task != ONE else ""
