"""Ambiguity: whether the expert acts differently in alike states, which a mean action cannot match.

For a step i and its nearest step j in another episode, at distance h of their standardized states, let

    d = ‖a_i − a_j‖² / 2 Var(a),     E d = n + b h + ...

d is a variogram: for a deterministic expert it falls to 0 with h, however steep the expert is; the limit n (the
nugget) is the share of the actions' variance that the state does not explain. It is fitted by a line over the closest
half of the pairs, with a bootstrap over episodes. Noise also has n > 0. So groups of alike states are tested for two
modes: the best split of a group's actions leaves a share of their variance, which for normal noise is known by
simulation.

If the policy sees a part of the observation, states are alike in that part, and the nugget of the whole observation
says whether the rest explains the difference. If the last step explains it, a state is hidden and a memory would
help.
"""

from typing import Any, NamedTuple

import numpy as np

from understudy.core.statistics import Sample
from understudy.core.types import Continuous
from understudy.data import Demonstrations
from understudy.diagnosis.alike import Steps, neighbours, steps_of
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

GROUP = 9
"""Alike states in a group that is tested for two modes."""
BOOTSTRAPS = 40
THRESHOLD = 0.05
FAR = 0.6
"""Nearest states farther apart than this share of the typical distance are not alike."""


def measure(subject: Subject) -> Measure:
    demos = subject.training
    if demos is None:
        raise CannotMeasureError("no demonstrations")
    if demos.steps < 30:
        raise CannotMeasureError(f"{demos.steps} steps are too few to find alike states")
    seen = _seen(subject, demos)
    steps = steps_of(demos.action_space, seen, demos.actions, demos.lengths)
    rng = np.random.default_rng(subject.seeds(4)[3])
    found = nugget(steps, rng)
    modes = two_modes(steps, rng) if isinstance(demos.action_space, Continuous) else None
    numbers: dict[str, Any] = {
        "nugget": found["nugget"],
        "low": found["low"],
        "alike": found["alike"],
        "two_modes": None if modes is None else modes.two,
        "local": None if modes is None else {"share": modes.share, "unpredictable": modes.unpredictable},
        "nugget_with_all_observations": None,
        "nugget_with_memory": None,
    }
    remembered = _with_memory(demos, seen)
    if remembered is not None:
        numbers["nugget_with_memory"] = float(nugget(remembered, rng)["nugget"])
        if modes is not None:
            numbers["local"]["share_with_memory"] = two_modes(remembered, rng).share
    if seen.shape[1] < demos.observations.shape[1]:
        whole = steps_of(demos.action_space, demos.observations, demos.actions, demos.lengths)
        numbers["nugget_with_all_observations"] = nugget(whole, rng)["nugget"]
    about = ""
    if modes is not None:
        about = f"; {modes.share:.1%} of the steps have alike states with a spread, {modes.two:.0%} of these two modes"
    value = found["low"] if found["alike"] else float("nan")
    alike = "" if found["alike"] else "; the nearest states are far apart, so this says little"
    return Measure(
        "ambiguity",
        "Does the expert act differently in alike states?",
        value,
        "of the actions' variance is left in alike states (lower end of a 95% interval)",
        THRESHOLD,
        "A deterministic expert leaves 0; 5% is the error that a good clone has anyway.",
        True,
        f"{found['nugget']:.1%} of the variance of the actions is not explained by the state{about}{alike}",
        numbers,
        _chart(found),
    )


def _seen(subject: Subject, demos: Demonstrations) -> np.ndarray:
    """The observations as the policy sees them."""
    actor = subject.actor
    if actor is None or actor.spec.policy_obs is None:
        return demos.observations
    return demos.observations[:, list(actor.spec.policy_obs)]


def nugget(steps: Steps, rng: np.random.Generator) -> dict[str, Any]:
    """The limit of the variogram at distance 0, with the lower end of its interval, and the curve."""
    distance, index = neighbours(steps, 3)
    total = steps.act.var(0).sum()
    rows, columns = np.nonzero(np.isfinite(distance))
    if len(rows) < 20 or total < 1e-12:
        return {"nugget": 0.0, "low": 0.0, "alike": False, "curve": {}}
    h = distance[rows, columns]
    d = np.square(steps.act[rows] - steps.act[index[rows, columns]]).sum(1) / (2 * total)
    near = h <= np.median(h)
    h_near, d_near, owner = h[near], d[near], steps.episode[rows[near]]
    limit = _intercept(h_near, d_near, np.ones(len(h_near)))
    episodes = np.unique(owner)
    draws = []
    for _ in range(BOOTSTRAPS):
        weights = np.bincount(rng.integers(len(episodes), size=len(episodes)), minlength=len(episodes))
        draws.append(_intercept(h_near, d_near, weights[np.searchsorted(episodes, owner)]))
    typical = np.sqrt(2 * steps.obs.shape[1])
    edges = np.quantile(h, np.linspace(0, 1, 11))
    place = np.clip(np.searchsorted(edges, h, "right") - 1, 0, 9)
    curve = {float(h[place == b].mean()): Sample.of(d[place == b]) for b in range(10) if (place == b).sum() > 1}
    low = float(np.quantile(draws, 0.025)) if len(episodes) > 1 else limit / 2
    alike = float(np.quantile(h, 0.1)) < FAR * typical
    return {"nugget": max(limit, 0.0), "low": max(low, 0.0), "alike": alike, "curve": curve}


def _intercept(h: np.ndarray, d: np.ndarray, weights: np.ndarray) -> float:
    """Where a weighted line meets h = 0. Its slope is not negative: farther states are not more alike."""
    total = weights.sum()
    if total == 0:
        return 0.0
    mean_h, mean_d = (weights @ h) / total, (weights @ d) / total
    variance = weights @ (h - mean_h) ** 2
    slope = max(weights @ ((h - mean_h) * (d - mean_d)) / variance, 0.0) if variance > 1e-18 else 0.0
    return float(mean_d - slope * mean_h)


class Modes(NamedTuple):
    """Groups of alike states whose actions have a spread."""

    two: float
    """The share of these groups whose actions have two modes; 5% for normal noise."""
    share: float
    """The share of all steps that have such a group."""
    unpredictable: float
    """In these groups, the difference to the nearest state's action over that to farther ones: 1 if the state says
    nothing, and clearly less where the expert switches from one state to the next."""


def two_modes(steps: Steps, rng: np.random.Generator) -> Modes:
    _, index = neighbours(steps, GROUP - 1)
    whole = np.flatnonzero((index >= 0).all(1))
    if len(whole) == 0:
        return Modes(0.0, 0.0, 0.0)
    groups = steps.act[np.concatenate([whole[:, None], index[whole]], axis=1)]  # (n, GROUP, act)
    widest = groups.var(1).argmax(1)
    values = np.take_along_axis(groups, widest[:, None, None], 2)[..., 0]
    wide = values.var(1) > 0.1 * steps.act.var(0).max()
    share = float(wide.mean())
    if wide.sum() < 5:
        return Modes(0.0, share, 0.0)
    reference = _left_by_split(rng.standard_normal((4000, GROUP)))
    two = float((_left_by_split(values[wide]) < np.quantile(reference, 0.05)).mean())
    gaps = np.square(values[wide, 1:] - values[wide, :1]).mean(0)
    return Modes(two, share, float(gaps[0] / max(gaps[GROUP // 2 :].mean(), 1e-12)))


def _left_by_split(values: np.ndarray) -> np.ndarray:
    """The share of each row's variance that the best split into two parts leaves."""
    ordered = np.sort(values, axis=1)
    best = np.full(len(ordered), np.inf)
    for cut in range(2, ordered.shape[1] - 1):
        left, right = ordered[:, :cut], ordered[:, cut:]
        best = np.minimum(best, left.var(1) * cut + right.var(1) * (ordered.shape[1] - cut))
    return best / np.maximum(ordered.var(1) * ordered.shape[1], 1e-12)


def _with_memory(demos: Demonstrations, seen: np.ndarray) -> Steps | None:
    """Steps whose state also has the previous observation. (The previous action would reveal smooth noise.)"""
    starts = np.cumsum(demos.lengths) - demos.lengths
    later = np.ones(demos.steps, bool)
    later[starts] = False
    lengths = demos.lengths - 1
    if later.sum() < 30 or (lengths < 1).any():
        return None
    rows = np.flatnonzero(later)
    both = np.concatenate([seen[rows], seen[rows] - seen[rows - 1]], axis=1)
    return steps_of(demos.action_space, both, demos.actions[rows], lengths)


def _chart(found: dict[str, Any]) -> Chart | None:
    if len(found["curve"]) < 2:
        return None
    level = dict.fromkeys(found["curve"], Sample(THRESHOLD, float("nan"), 1))
    return Chart(
        "Difference of the expert's actions against the distance of the states",
        "distance of standardized states",
        [Series("pairs of steps", 0, found["curve"]), Series("threshold at 0", 5, level, flat=True)],
        y_title="Share of the actions' variance",
        over="pairs",
    )
