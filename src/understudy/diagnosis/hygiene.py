"""Hygiene: what is wrong with the numbers of the demonstrations themselves."""

from typing import Any

import numpy as np

from understudy.core.statistics import Sample
from understudy.core.types import Continuous
from understudy.data import Demonstrations
from understudy.data.inspection import at_bounds, ranges
from understudy.diagnosis.copies import branches, repeated, repeats_in_env
from understudy.diagnosis.leaks import leak_of_expert, leaked
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

TINY = 1e-4
"""A column whose spread is this share of the typical one is lost in the noise of a network's first layer."""
FROZEN = 0.3
"""A column that stays the same in this share of the steps is frozen if it seldom does in the environment."""
ALWAYS = 0.9
QUIET = 1e-3
FEW = 3
LEAK = 0.999
PERIODS = range(2, 21)


def measure(subject: Subject) -> Measure:
    demos = subject.training
    if demos is None:
        raise CannotMeasureError("no demonstrations")
    found = ranges(demos.observations)
    typical = float(np.median(found.std[~found.constant])) if (~found.constant).any() else 0.0
    whole = bool((demos.observations == np.round(demos.observations)).all())
    leak, column = leaked(demos)
    period, repeats = control_period(demos)
    numbers: dict[str, Any] = {
        "columns": int(demos.observations.shape[1]),
        "constant": [int(i) for i in np.flatnonzero(found.constant)],
        "stuck": _stuck(subject, demos, found.constant),
        "frozen": _frozen(subject, demos),
        "tiny": [int(i) for i in np.flatnonzero(~found.constant & (found.std < TINY * typical))],
        "huge": [int(i) for i in np.flatnonzero(found.huge)],
        "whole_numbers": whole,
        "actions_at_limits": _at_limits(demos),
        "episodes": demos.episodes,
        "repeated": repeated(demos),
        "repeats_in_env": repeats_in_env(subject),
        "branches": branches(demos),
        "leak": leak,
        "leak_column": column,
        "leak_of_expert": leak_of_expert(subject, column),
        "action_period": period,
        "same_observation": repeats,
        "same_action": _same_action(demos),
    }
    checks = {
        "constant columns": len(numbers["constant"]) / numbers["columns"],
        "repeated episodes": numbers["repeated"],
        "best single column": leak,
        "actions at limits": numbers["actions_at_limits"],
        "same action as before": numbers["same_action"],
        "same observation as before": repeats,
    }
    worst = max(numbers["repeated"], len(numbers["stuck"]) / numbers["columns"], float(leak > LEAK), float(period > 1))
    texts = [f"{name} {share:.0%}" for name, share in checks.items()]
    bars = {float(i): Sample(v, float("nan"), 1) for i, v in enumerate(checks.values())}
    return Measure(
        "hygiene",
        "Are the numbers in order?",
        float(worst),
        "share of the data with a defect: repeated, stuck, leaked, or held",
        0.1,
        "One episode in ten that adds nothing changes little; more means that the file is not what it seems.",
        True,
        ", ".join(texts),
        numbers,
        Chart(
            "Shares of the data",
            "check",
            [Series("share", 0, bars, bars=True, joined=False)],
            categories=list(checks),
            y_title="Share",
        ),
    )


def control_period(demos: Demonstrations) -> tuple[int, float]:
    """k > 1 if actions change only every k-th step, in all episodes; and the share of steps that repeat an observation
    that changes later in the episode."""
    starts = np.cumsum(demos.lengths) - demos.lengths
    inner = np.ones(demos.steps, bool)
    inner[starts] = False
    rows = np.flatnonzero(inner)
    if len(rows) == 0:
        return 1, 0.0
    act = demos.actions.reshape(demos.steps, -1)
    changed = rows[(act[rows] != act[rows - 1]).any(1)]
    episode = np.repeat(np.arange(demos.episodes), demos.lengths)
    equal = (demos.observations[rows] == demos.observations[rows - 1]).all(1)
    last = np.zeros(demos.episodes, int)
    np.maximum.at(last, episode[rows[~equal]], rows[~equal])
    early = rows <= last[episode[rows]]  # later, the episode is at rest
    same = float(equal[early].sum() / len(rows))
    t = (np.arange(demos.steps) - starts[episode])[changed]
    owner = episode[changed]
    often = [t[owner == e] for e in np.unique(owner) if (owner == e).sum() > 1]
    # By chance, fewer changes may all fall on even steps, or the same few steps of every episode.
    if sum(len(times) - 1 for times in often) < 10 or len(np.unique(np.concatenate(often))) < 5:
        return 1, same
    held = 1
    for k in PERIODS:
        if all(len(set((times % k).tolist())) == 1 for times in often):
            held = k
    return held, same


def _same_action(demos: Demonstrations) -> float:
    act = demos.actions.reshape(demos.steps, -1)
    return float((act[1:] == act[:-1]).all(1).mean()) if demos.steps > 1 else 0.0


def _at_limits(demos: Demonstrations) -> float:
    if not isinstance(demos.action_space, Continuous):
        return 0.0
    low, high = at_bounds(demos)
    return (low + high) / demos.actions.size


def _stuck(subject: Subject, demos: Demonstrations, constant: np.ndarray) -> list[int]:
    """Columns that are constant in the demonstrations, or a thousand times less spread than in the environment."""
    played = next((subject.played[name] for name in ("expert", "clone", "explored") if name in subject.played), None)
    if played is None:
        return []
    value, whole = demos.observations[0], bool((demos.observations == np.round(demos.observations)).all())
    every = played.flat(np.asarray(played.steps.obs)).astype(np.float64)
    early = np.asarray(played.steps.obs)[:, 0]
    scale = np.maximum(np.abs(every).max(0), 1e-12)
    moved = constant & (np.abs(early - value) > 1e-4 * scale).any(0)
    if subject.theirs is not None or not whole:
        rare = 0.1 if subject.theirs is not None else 0.5
        moved |= constant & ((np.abs(every - value) > 1e-3 * scale).mean(0) > rare)
    if subject.theirs is not None:  # others may leave what the expert keeps at one value
        moved |= demos.observations.astype(np.float64).std(0) < QUIET * every.std(0)
    if demos.episodes < FEW:  # a goal may be the same in the few episodes that there are
        obs = np.asarray(played.steps.obs)
        moved &= np.any([np.ptp(one[:length], axis=0) > 0 for one, length in zip(obs, played.lengths, strict=True)], 0)
    return [int(i) for i in np.flatnonzero(moved)]


def _frozen(subject: Subject, demos: Demonstrations) -> list[int]:
    """Columns that stay the same in many demonstrated steps in which others change, and seldom in the environment.

    Only an expert shows where a column may rest. Without one, it must stay the same from the start of the episodes on.
    """
    played = next((subject.played[name] for name in ("expert", "clone", "explored") if name in subject.played), None)
    if played is None or (subject.theirs is None and (demos.observations == np.round(demos.observations)).all()):
        return []
    every = played.flat(np.asarray(played.steps.obs)).astype(np.float64)
    (ours, wide), (theirs, _) = frozen(demos.observations, demos.lengths), frozen(every, played.lengths)
    least = FROZEN if subject.theirs is not None else ALWAYS
    return [int(i) for i in np.flatnonzero((ours > least) & (theirs < 0.3 * ours) & (wide > 0.1 * every.std(0)))]


def frozen(obs: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each column, the share of steps in which it stays exactly the same although another column changes, and the
    standard deviation of its values there. Only the first third of each episode counts: later, much may be at rest."""
    t = np.concatenate([np.arange(length) for length in lengths])
    rows = np.flatnonzero((t > 0) & (t <= np.repeat(lengths, lengths) / 3))
    none = np.zeros(obs.shape[1])
    if len(rows) == 0:
        return none, none
    same = obs[rows] == obs[rows - 1]
    same, values = same[~same.all(1)], obs[rows][~same.all(1)].astype(np.float64)
    if len(same) == 0:
        return none, none
    count = np.maximum(same.sum(0), 1)
    mean = np.where(same, values, 0.0).sum(0) / count
    return same.mean(0), np.sqrt(np.where(same, np.square(values - mean), 0.0).sum(0) / count)
