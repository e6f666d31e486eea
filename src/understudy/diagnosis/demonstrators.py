"""Demonstrators: whether several experts demonstrated, and whether they are good.

Several experts act differently in alike states of different episodes, and alike within an episode. D[e, f] is the
mean difference of actions between the steps of episode e and the nearest steps of episode f. If two groups of
episodes differ between each other much more than within, there are two experts. An ambiguous expert has no such
groups: it also differs from itself within an episode.
"""

from typing import Any

import numpy as np

from understudy.core.statistics import Sample, p_less
from understudy.diagnosis.alike import Steps, neighbours, steps_of
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

STEPS = 60
"""Steps of an episode that are compared."""
MOST = 50
"""Episodes that are compared."""
THRESHOLD = 3.0


def measure(subject: Subject) -> Measure:
    demos = subject.training
    if demos is None:
        raise CannotMeasureError("no demonstrations")
    numbers: dict[str, Any] = {"returns": _returns(subject)}
    if demos.episodes < 4:
        numbers.update({"ratio": 1.0, "excess": 0.0, "groups": [demos.episodes], "agree": 0.0})
    else:
        first = demos.first(min(demos.episodes, MOST))
        steps = steps_of(first.action_space, first.observations, first.actions, first.lengths, STEPS * first.episodes)
        numbers.update(groups(steps, np.random.default_rng(subject.seeds(5)[4])))
    chart = None
    if demos.returns is not None:
        bars = {float(i): Sample(float(v), float("nan"), 1) for i, v in enumerate(demos.returns)}
        known = subject.reference_returns
        level = None if known is None else float(known.mean())
        chart = Chart(
            "Return of each demonstrated episode", "episode", [Series("demonstrations", 0, bars)], level, over="steps"
        )
    returns = numbers["returns"]
    text = (
        f"episodes fall into groups of {' and '.join(map(str, numbers['groups']))}"
        if numbers["ratio"] > THRESHOLD
        else ""
    )
    text = text or f"episodes do not fall into groups (ratio {numbers['ratio']:.1f})"
    if returns.get("share") is not None:
        text += f"; the demonstrations reach {returns['share']:.0%} of {returns['best_name']}"
    return Measure(
        "demonstrators",
        "Who demonstrated?",
        float(numbers["ratio"]),
        "times as different between two groups of episodes as within",
        THRESHOLD,
        "Random groups of one expert's episodes differ by less than a factor of two; three leaves "
        "room for few episodes.",
        True,
        text,
        numbers,
        chart,
    )


def groups(steps: Steps, rng: np.random.Generator) -> dict[str, Any]:
    """Two groups of episodes that act differently in alike states.

    The groups are found on one half of the blocks of time, and tested on the other, both ways. So a split that chance
    suggests does not count. `excess` is how much more the groups differ than their members, in action variances.
    """
    names = np.unique(steps.episode)
    total = 2 * max(float(steps.act.var(0).sum()), 1e-12)
    longest = {int(name): int(steps.t[steps.episode == name].max()) + 1 for name in names}
    block = np.array([8 * t // longest[int(e)] for e, t in zip(steps.episode, steps.t, strict=True)])
    found = []
    for half in (0, 1):
        matrix, _ = _differences(steps, names, block % 2 == half)
        other, weight = _differences(steps, names, block % 2 != half)
        if matrix is None or other is None:
            continue
        _, labels = _split(matrix, np.isfinite(matrix))
        same = (labels[:, None] == labels[None]) & ~np.eye(len(names), dtype=bool) & np.isfinite(other)
        cross = (labels[:, None] != labels[None]) & np.isfinite(other)
        if not same.any() or not cross.any():
            continue
        within = float(np.average(other[same], weights=weight[same])) / total
        between = float(np.average(other[cross], weights=weight[cross])) / total
        found.append((between, within, labels))
    if len(found) < 2:
        return {"ratio": 1.0, "excess": 0.0, "groups": [len(names)], "agree": 0.0}
    ratio = min((between + 0.01) / (within + 0.01) for between, within, _ in found)
    excess = min(between - within for between, within, _ in found)
    labels, others = found[0][2], found[1][2]
    agree = max(float((labels == others).mean()), float((labels != others).mean()))
    return {"ratio": ratio, "excess": excess, "groups": [int((labels == g).sum()) for g in (0, 1)], "agree": agree}


def _differences(steps: Steps, names: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """D[e, f]: the mean difference of actions between chosen steps of e and the nearest of f; and their numbers."""
    count = len(names)
    rows = [np.flatnonzero(steps.episode == name) for name in names]
    matrix, weight = np.full((count, count), np.nan), np.zeros((count, count))
    distance, _ = neighbours(steps, 1)
    finite = distance[np.isfinite(distance)]
    reach = 2 * float(np.median(finite)) + 1e-9 if finite.size else 0.0
    for e in range(count):
        own = rows[e][chosen[rows[e]]]
        for f in range(count):
            if e == f or len(own) == 0:
                continue
            apart = np.sqrt(np.maximum(_squared(steps.obs[own], steps.obs[rows[f]]), 0))
            nearest = apart.argmin(1)
            near = apart[np.arange(len(nearest)), nearest] <= reach
            if near.sum() >= 2:
                gap = steps.act[own][near] - steps.act[rows[f]][nearest[near]]
                matrix[e, f], weight[e, f] = float(np.square(gap).sum(1).mean()), float(near.sum())
    if np.isfinite(matrix).sum() < count:
        return None, weight
    known = np.isfinite(matrix) & np.isfinite(matrix.T)
    return np.where(known, (matrix + matrix.T) / 2, np.where(np.isfinite(matrix), matrix, matrix.T)), weight


def _squared(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x**2).sum(1)[:, None] - 2 * x @ y.T + (y**2).sum(1)[None]


def _split(matrix: np.ndarray, known: np.ndarray) -> tuple[float, np.ndarray]:
    """The split into two groups of at least two episodes by the leading direction of the centred matrix, refined."""
    count = len(matrix)
    filled = np.where(known, matrix, np.nanmean(matrix))
    np.fill_diagonal(filled, 0.0)
    centre = np.eye(count) - 1 / count
    _, directions = np.linalg.eigh(-0.5 * centre @ filled @ centre)
    order = directions[:, -1]
    best, labels = 0.0, np.zeros(count, int)
    for cut in range(2, count - 1):
        own = (np.argsort(np.argsort(order)) >= cut).astype(int)
        same = (own[:, None] == own[None]) & known & ~np.eye(count, dtype=bool)
        cross = (own[:, None] != own[None]) & known
        if same.any() and cross.any():
            ratio = (matrix[cross].mean() + 0.02) / (matrix[same].mean() + 0.02)
            if ratio > best:
                best, labels = float(ratio), own
    return best, labels


def _returns(subject: Subject) -> dict[str, Any]:
    """The demonstrations' return, from that of a policy without skill (0) to the best known one's (1)."""
    demos = subject.demos
    assert demos is not None
    found: dict[str, Any] = {"share": None}
    if demos.details.successes is not None:
        found["successes"] = float(demos.details.successes.mean())
    sample = demos.expert_return
    if sample is None:
        return found
    found["demonstrations"] = sample.mean
    known: dict[str, np.ndarray] = {}
    if subject.reference_returns is not None:
        known["the reference expert"] = subject.reference_returns
    if subject.fresh is not None:
        known["the learner"] = subject.fresh.returns
    baseline = subject.baseline
    if baseline is None:
        return found
    low = found["random"] = baseline.mean
    if sample.size > 1 and baseline.size > 1:
        found["p_better_than_random"] = p_less(baseline, sample)
    if known:
        name = max(known, key=lambda one: float(known[one].mean()))
        best = Sample.of(known[name])
        if best.mean > low:
            found.update(best=best.mean, best_name=name, share=float((sample.mean - low) / (best.mean - low)))
            found["p_worse"] = p_less(sample, best) if sample.size > 1 else float("nan")
    return found
