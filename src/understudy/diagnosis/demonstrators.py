"""Demonstrators: whether several experts demonstrated, and whether they are good.

Several experts act differently in alike states of different episodes, and alike within an episode. A step's deviation
is the difference of its action to a smooth function of the state, fitted to all episodes. Episodes of one expert
deviate
the same way in alike states. If two groups of episodes differ between each other much more than within, at equal
distances of the states, there are two experts. An ambiguous expert has no such groups: it also differs from itself
within an episode.
"""

from typing import Any, NamedTuple

import numpy as np

from understudy.core.statistics import Sample, p_less
from understudy.diagnosis import better
from understudy.diagnosis.alike import Steps, neighbours, steps_of
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

STEPS = 60
"""Steps of an episode that are compared."""
MOST = 50
"""Episodes that are compared."""
NEAR = 12
"""Alike steps of other episodes that a step is compared with."""
BLOCKS = 8
"""Blocks of an episode's time: groups are found on every second one."""
BINS = 5
FEATURES = 20
"""Few, so that the function cannot learn which episode a state is from."""
REFINEMENTS = 20
THRESHOLD = 3.0


def measure(subject: Subject) -> Measure:
    demos = subject.training
    if demos is None:
        raise CannotMeasureError("no demonstrations")
    numbers: dict[str, Any] = {"returns": _returns(subject)}
    if demos.episodes < 4:
        numbers.update({"ratio": 1.0, "excess": 0.0, "groups": [demos.episodes]})
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
    names, episode = np.unique(steps.episode, return_inverse=True)
    pairs = _pairs(steps, episode, rng)
    longest = np.zeros(len(names))
    np.maximum.at(longest, episode, steps.t + 1)
    half = (BLOCKS * steps.t / longest[episode]).astype(int)[pairs.step] % 2
    total = 2 * max(float(steps.act.var(0).sum()), 1e-12)
    found = []
    for part in (0, 1):
        labels = _split(pairs, half == part, len(names))
        if min(labels.sum(), len(names) - labels.sum()) >= 2:
            gaps = _gaps(pairs, half != part, labels)
            if gaps is not None:
                found.append((gaps[0] / total, gaps[1] / total, labels))
    if len(found) < 2:
        return {"ratio": 1.0, "excess": 0.0, "groups": [len(names)]}
    ratio = min((between + 0.01) / (within + 0.01) for between, within, _ in found)
    excess = min(between - within for between, within, _ in found)
    sizes = [int((found[0][2] == g).sum()) for g in (0, 1)]
    return {"ratio": float(ratio), "excess": float(excess), "groups": sizes}


class _Pairs(NamedTuple):
    """Pairs of alike steps of two episodes."""

    step: np.ndarray
    """The row of the first step."""
    first: np.ndarray
    second: np.ndarray
    """Their episodes."""
    distance: np.ndarray
    gap: np.ndarray
    """The squared difference of their deviations."""
    agreement: np.ndarray
    """The product of their deviations: positive if both deviate the same way."""


def _deviation(steps: Steps, rng: np.random.Generator) -> np.ndarray:
    """Actions less a smooth function of the state: ridge regression on random features. One expert leaves little."""
    size = steps.obs.shape[1]
    directions, offsets = rng.standard_normal((size, FEATURES)) / np.sqrt(size), rng.uniform(-2, 2, FEATURES)
    waves = np.maximum(2 * steps.obs @ directions + offsets, 0)
    phi = np.concatenate([np.ones((len(waves), 1)), steps.obs, waves], axis=1)
    gram = phi.T @ phi + 1e-3 * len(phi) * np.eye(phi.shape[1])
    return steps.act - phi @ np.linalg.solve(gram, phi.T @ steps.act)


def _pairs(steps: Steps, episode: np.ndarray, rng: np.random.Generator) -> _Pairs:
    distance, index = neighbours(steps, NEAR)
    deviation = _deviation(steps, rng)
    rows, columns = np.nonzero(np.isfinite(distance))
    other = index[rows, columns]
    return _Pairs(
        rows,
        episode[rows],
        episode[other],
        distance[rows, columns],
        np.square(deviation[rows] - deviation[other]).sum(1),
        (deviation[rows] * deviation[other]).sum(1),
    )


def _split(pairs: _Pairs, chosen: np.ndarray, count: int) -> np.ndarray:
    """Labels 0 and 1 of the episodes, so that pairs in a group deviate the same way: a spectral cut, refined."""
    affinity = np.zeros((count, count))
    np.add.at(affinity, (pairs.first[chosen], pairs.second[chosen]), pairs.agreement[chosen])
    affinity += affinity.T
    size = np.sqrt(np.maximum(np.abs(affinity).sum(0), 1e-12))
    _, directions = np.linalg.eigh(affinity / np.outer(size, size))
    side = np.where(directions[:, -1] >= 0, 1.0, -1.0)
    for _ in range(REFINEMENTS):
        before = side.copy()
        for e in range(count):
            pull = float(affinity[e] @ side)
            side[e] = np.sign(pull) or side[e]
        if (side == before).all():
            break
    return (side > 0).astype(int)


def _gaps(pairs: _Pairs, chosen: np.ndarray, labels: np.ndarray) -> tuple[float, float] | None:
    """Mean differences of deviations between and within the groups, at equal distances of the states."""
    cross = labels[pairs.first] != labels[pairs.second]
    edges = np.quantile(pairs.distance[chosen], np.linspace(0, 1, BINS + 1)[1:-1])
    place = np.searchsorted(edges, pairs.distance)
    means = []
    for b in range(BINS):
        here = chosen & (place == b)
        if (here & cross).sum() >= 5 and (here & ~cross).sum() >= 5:
            means.append((pairs.gap[here & cross].mean(), pairs.gap[here & ~cross].mean()))
    if not means:
        return None
    between, within = np.mean(means, axis=0)
    return float(between), float(within)


def _returns(subject: Subject) -> dict[str, Any]:
    """The demonstrations' return, from that of a policy without skill (0) to the best known one's (1)."""
    demos = subject.demos
    assert demos is not None
    found: dict[str, Any] = {"share": None}
    if demos.details.successes is not None:
        found["successes"] = float(demos.details.successes.mean())
    sample = demos.expert_return
    if sample is None and subject.theirs is not None:
        sample = Sample.of(subject.theirs.returns)
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
    if subject.reference is None or subject.reference is subject.expert:
        searched = better.returns(subject)
        if searched is not None:
            best = Sample.of(searched)
            found["searched"] = best.mean
            if best.mean > low and sample.size > 1:
                found["searched_share"] = float((sample.mean - low) / (best.mean - low))
                found["p_worse_than_searched"] = p_less(sample, best)
    if known:
        name = max(known, key=lambda one: float(known[one].mean()))
        best = Sample.of(known[name])
        if best.mean > low:
            found.update(best=best.mean, best_name=name, share=float((sample.mean - low) / (best.mean - low)))
            found["p_worse"] = p_less(sample, best) if sample.size > 1 else float("nan")
    return found
