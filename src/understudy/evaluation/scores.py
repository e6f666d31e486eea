"""Scores of runs: checks, and normalization between a random policy and the expert.

A score is one number per run, the mean return of its episodes. Scores are an array (runs,) for one task, or a mapping
from task to such an array. `understudy.evaluation.intervals` computes statistics of them.
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
"""The return of a reference policy: an exact number, a sample's mean and deviation, or the returns of its episodes."""

SINGLE_TASK = ""
"""Name of the task of scores that are one array."""

Normal = tuple[float, float]
"""Mean and standard error of a return whose episodes are not available for resampling."""


def expert_normalised(
    scores: Scores, expert: Known | Mapping[str, Known], random: Known | Mapping[str, Known] | None = None
) -> Array | dict[str, Array]:
    """Normalized scores, 0 for a random policy and 1 for the expert: (return − random) / (expert − random).

    Without `random` it is return / expert, which needs a positive return of the expert. The means of both count as
    exact, so intervals of normalized scores cover the learner's uncertainty only. The result is an array for an array
    and a mapping for a mapping.
    """
    tasks = by_task(scores, "scores")
    experts = known_returns(expert, tasks, "expert")
    randoms = None if random is None else known_returns(random, tasks, "random")
    scaled = {}
    for task, values in tasks.items():
        top, zero = _mean(experts[task]), 0.0 if randoms is None else _mean(randoms[task])
        if top <= zero:
            given = f"expert{_of(task)} is {top:g}"
            if randoms is None:
                raise SettingError(f"{given}: without random= it must be above 0, so give a random policy's return")
            raise SettingError(f"{given}: it must be above random, {zero:g}")
        scaled[task] = (values - zero) / (top - zero)
    return scaled if isinstance(scores, Mapping) else scaled[SINGLE_TASK]


def by_task(scores: Any, name: str) -> dict[str, Array]:
    """Task → (runs,), sorted by name, so that the order of a mapping does not matter."""
    if not isinstance(scores, Mapping):
        return {SINGLE_TASK: _check_sample(scores, name)}
    if not scores:
        raise SettingError(f"{name} has no tasks: give at least one")
    return {task: _check_sample(scores[task], f"{name}{_of(task)}") for task in sorted(scores, key=str)}


def _check_sample(values: Any, name: str) -> Array:
    if hasattr(values, "_fields"):
        raise SettingError(f"{name} is {values!r}: give one score per run, not a summary")
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{name} is {values!r}: an array of numbers is needed") from error
    if array.ndim != 1:
        raise SettingError(
            f"{name} has shape {array.shape}: shape (runs,) is needed, one number per run; average over episodes "
            "first, and give several tasks as a mapping"
        )
    if not array.size:
        raise SettingError(f"{name} is empty: at least one number is needed")
    if not np.isfinite(array).all():
        index = int(np.flatnonzero(~np.isfinite(array))[0])
        raise SettingError(
            f"{name}[{index}] is {array[index]}: use the score of the run's last finite policy, or leave the run out "
            "and report that"
        )
    return array


def match_tasks(x: Scores, y: Scores, paired: bool) -> tuple[list[Array], list[Array]]:
    """The scores of two algorithms, task by task. With `paired`, both need the same number of runs."""
    xs, ys = by_task(x, "x"), by_task(y, "y")
    _check_tasks(xs, ys, "x", "y")
    for task in xs if paired else ():
        if xs[task].size != ys[task].size:
            raise SettingError(
                f"x{_of(task)} has {xs[task].size} runs and y {ys[task].size}: paired=True needs the same seeds in both"
            )
    return list(xs.values()), list(ys.values())


def known_returns(given: Any, tasks: dict[str, Array], name: str) -> dict[str, Array | Normal]:
    """The return of a reference policy in each task."""
    returns = given if isinstance(given, Mapping) else {SINGLE_TASK: given}
    _check_tasks(tasks, returns, "scores", name)
    return {task: _known_return(returns[task], f"{name}{_of(task)}") for task in tasks}


def _known_return(value: Any, name: str) -> Array | Normal:
    if isinstance(value, Sample):
        if not np.isfinite(value.mean) or np.isinf(value.std) or value.size < 1:
            raise SettingError(f"{name} is {value!r}: a finite mean of at least one episode is needed")
        return value.mean, value.standard_error
    if np.ndim(value):
        return _check_sample(value, name)
    check_finite(**{name: value})
    return float(value), 0.0


def _mean(value: Array | Normal) -> float:
    return float(value.mean() if isinstance(value, np.ndarray) else value[0])


def _check_tasks(x: Mapping[str, Any], y: Mapping[str, Any], x_name: str, y_name: str) -> None:
    if set(x) != set(y):
        names = [
            ", ".join(sorted(map(repr, tasks))) if set(tasks) != {SINGLE_TASK} else "a single array" for tasks in (x, y)
        ]
        raise SettingError(f"tasks of {x_name} are {names[0]}, tasks of {y_name} are {names[1]}: give the same in both")


def _of(task: str) -> str:
    return f" of task '{task}'" if task != SINGLE_TASK else ""
