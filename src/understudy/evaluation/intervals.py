"""Statistics over runs and tasks, each with a 95% interval from a stratified bootstrap.

A score is one number per run, the mean return of its episodes. Scores are an array (runs,) for one task, or a mapping
from task to such an array. Runs are the unit of resampling, because another laboratory would repeat runs. Tasks are the
strata: a resample draws as many runs of each task as it has, with replacement. The interval reaches from the 2.5% to
the 97.5% quantile of the statistic over the resamples (percentile bootstrap; Agarwal et al., "Deep Reinforcement
Learning at the Edge of the Statistical Precipice", NeurIPS 2021).

    mean            (1/K) Σ_k x̄_k                                   K tasks, x̄_k the mean of task k's runs
    iqm             the mean of the middle half of all runs of all tasks
    difference      (1/K) Σ_k (x̄_k − ȳ_k)
    improvement     (1/K) Σ_k (1/nm) Σ_ij [x_ki > y_kj] + ½ [x_ki = y_kj]
    imitation gap   (1/K) Σ_k (J_k(π_E) − x̄_k)

The percentile interval is too narrow with few runs: for normal scores of one task it covers the mean 85 times in 100
with 5 runs and 93 times with 20. `statistics.interval` (Student's t) covers it 95 times if scores are close to normal,
but it is for the mean of one task only. docs/statistics.md has the table.

If a task has a single run, the estimate has a value, and its interval is None.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from understudy.core.errors import SettingError, check_whole
from understudy.core.statistics import Sample
from understudy.evaluation.scores import Array, Known, Normal, Scores, by_task, known_returns, match_tasks

Statistic = Callable[[Sequence[Array]], Any]
"""Takes one array (..., runs) per task, sorted by the tasks' names, and returns an array (...)."""

RESAMPLES = 10_000


class Estimate(NamedTuple):
    """A statistic and its 95% interval, which is None if a task has a single run."""

    value: float
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        digits = 3 if max(map(abs, (self.value, *(self.interval or ())))) < 10 else 1
        value = f"{self.value:.{digits}f}"
        return value if self.interval is None else f"{value} [{', '.join(f'{x:.{digits}f}' for x in self.interval)}]"


def pooled(function: Callable[..., Any]) -> Statistic:
    """A statistic of the runs of all tasks together: `function(scores, axis=-1)`, such as `pooled(np.median)`."""
    return lambda tasks: function(np.concatenate(tasks, axis=-1), axis=-1)


def averaged(function: Callable[..., Any]) -> Statistic:
    """The mean over tasks of `function(scores, axis=-1)`. Every task has the same weight."""
    return lambda tasks: sum(function(task, axis=-1) for task in tasks) / len(tasks)


def bootstrap(scores: Scores, statistic: Statistic, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """Any statistic with its interval. `pooled` and `averaged` make a statistic from a function such as `np.median`."""
    return _estimate(list(by_task(scores, "scores").values()), statistic, seed, resamples)


def mean(scores: Scores, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The mean over tasks of the mean over runs."""
    return bootstrap(scores, averaged(np.mean), seed=seed, resamples=resamples)


def standard_error(scores: Scores) -> float | None:
    """The standard error of `mean`: √(Σ_k s_k² / n_k) / K. None if a task has a single run."""
    samples = [Sample.of(task) for task in by_task(scores, "scores").values()]
    if min(sample.size for sample in samples) < 2:
        return None
    return float(np.sqrt(sum(sample.standard_error**2 for sample in samples)) / len(samples))


def iqm(scores: Scores, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The interquartile mean of all runs of all tasks, without the lowest and the highest quarter (rounded down).

    Runs of different tasks are ranked together, so give scores on one scale (`scores.expert_normalised`). A task with
    more runs has more weight.
    """
    return bootstrap(scores, _middle_mean, seed=seed, resamples=resamples)


def difference(x: Scores, y: Scores, *, paired: bool = False, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The mean of `x` minus the mean of `y`, averaged over tasks.

    `paired` is for runs with the same seeds in the same order. It resamples pairs, so that effects of a seed on both
    algorithms cancel. The value is the same; the interval is narrower if the pairs are correlated.
    """
    xs, ys = match_tasks(x, y, paired)
    if paired:
        return _estimate([a - b for a, b in zip(xs, ys, strict=True)], averaged(np.mean), seed, resamples)
    of_mean = averaged(np.mean)
    return _estimate([*xs, *ys], lambda both: of_mean(both[: len(xs)]) - of_mean(both[len(xs) :]), seed, resamples)


def probability_of_improvement(
    x: Scores, y: Scores, *, paired: bool = False, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """P(X > Y), averaged over tasks, with ties counted as half. For one task it is the Mann-Whitney U over nm.

    Without `paired`, every run of `x` is compared with every run of `y`; with `paired`, only with the run of the same
    seed, which gives another number if pairs are correlated. If every run of `x` is above every run of `y`, so are all
    resamples, and the interval is (1, 1) however few runs there are.
    """
    xs, ys = match_tasks(x, y, paired)
    if paired:
        wins = [_beats(a, b) for a, b in zip(xs, ys, strict=True)]
        return _estimate(wins, averaged(np.mean), seed, resamples)

    wins = [_beats(a[:, None], b) for a, b in zip(xs, ys, strict=True)]

    def improvement(chosen: Sequence[Array]) -> Array:
        """The statistic of chosen run indices. Counting choices of a run is faster than comparing all pairs."""
        counts = [_counts(indices) for indices in chosen]
        tasks = zip(counts[: len(xs)], wins, counts[len(xs) :], strict=True)
        return sum(((a @ won) * b).sum(axis=-1) / won.size for a, won, b in tasks) / len(xs)

    return _estimate([np.arange(float(runs.size)) for runs in (*xs, *ys)], improvement, seed, resamples)


def imitation_gap(
    scores: Scores, expert: Known | Mapping[str, Known], *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """J(π_E) − J(π), averaged over tasks.

    `expert` may be the returns of its episodes, which are resampled; a `Sample`, whose mean is drawn from a normal
    distribution with the sample's standard error; or a number, which counts as exact.
    """
    learners = by_task(scores, "scores")
    experts = known_returns(expert, learners, "expert")
    of_mean = averaged(np.mean)

    def gap(both: Sequence[Array]) -> Array:
        return of_mean(both[len(learners) :]) - of_mean(both[: len(learners)])

    return _estimate([*learners.values(), *(experts[task] for task in learners)], gap, seed, resamples)


def _estimate(strata: Sequence[Array | Normal], statistic: Statistic, seed: int, resamples: int) -> Estimate:
    check_whole(0, seed=seed)
    check_whole(1, resamples=resamples)
    given = [stratum if isinstance(stratum, np.ndarray) else np.array(stratum[:1]) for stratum in strata]
    value = _check_values(statistic(given), (), "the scores")
    if any(s.size < 2 if isinstance(s, np.ndarray) else np.isnan(s[1]) for s in strata):
        return Estimate(float(value), None)
    rng = np.random.default_rng(seed)
    drawn = [
        stratum[rng.integers(stratum.size, size=(resamples, stratum.size))]
        if isinstance(stratum, np.ndarray)
        else rng.normal(*stratum, size=(resamples, 1))
        for stratum in strata
    ]
    low, high = np.quantile(_check_values(statistic(drawn), (resamples,), "a resample"), [0.025, 0.975])
    return Estimate(float(value), (float(low), float(high)))


def _check_values(values: Any, shape: tuple[int, ...], of: str) -> Array:
    values = np.asarray(values, np.float64)
    if values.shape != shape:
        raise SettingError(f"statistic returned shape {values.shape}: shape {shape} is needed, reduce the last axis")
    if not np.isfinite(values).all():
        raise SettingError(f"statistic of {of} is {values[~np.isfinite(values)][0]}: it must be finite")
    return values


def _middle_mean(tasks: Sequence[Array]) -> Array:
    """scipy.stats.trim_mean(·, 0.25) of all runs. Importing scipy.stats would take longer than the bootstrap."""
    values = np.concatenate(tasks, axis=-1)
    size = values.shape[-1]
    cut = size // 4
    return np.partition(values, (cut, size - cut - 1))[..., cut : size - cut].mean(axis=-1)


def _counts(indices: Array) -> Array:
    """How often each of 0, ..., n − 1 occurs among the n indices along the last axis."""
    rows = indices.reshape(-1, indices.shape[-1]).astype(int)
    bins = rows + rows.shape[1] * np.arange(len(rows))[:, None]
    return np.bincount(bins.ravel(), minlength=rows.size).reshape(indices.shape).astype(np.float64)


def _beats(x: Array, y: Array) -> Array:
    """1 where x > y, ½ where x = y."""
    return 0.5 * (x > y) + 0.5 * (x >= y)
