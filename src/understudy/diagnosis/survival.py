"""Survival: how episodes end, and what the end says to a learner whose reward is learned."""

from typing import Any

import numpy as np

from understudy.core.statistics import Sample
from understudy.data import Demonstrations
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

BINS = 20
TIGHT = 0.25
"""Final states are alike in a column where their spread is at most this share of the spread of all states."""


def measure(subject: Subject) -> Measure:
    demos = subject.training
    if demos is None and subject.fresh is None:
        raise CannotMeasureError("no demonstrations and no fresh episodes")
    numbers: dict[str, Any] = {}
    series = []
    horizon = subject.spec.horizon
    if demos is not None:
        ends = np.cumsum(demos.lengths) - 1
        terminal = demos.transitions().terminal[ends]
        numbers.update(
            horizon=horizon,
            longest=int(demos.lengths.max()),
            demonstrated_length=float(demos.lengths.mean()),
            same_length=bool((demos.lengths == demos.lengths.max()).all()),
            early=float((demos.lengths < horizon).mean()),
            early_without_terminal=float(((demos.lengths < horizon) & ~terminal).mean()),
            varied=float(np.ptp(demos.lengths) / max(demos.lengths.max(), 1)),
            terminal=float(terminal.mean()),
            unmarked=float((~terminal[demos.lengths < horizon]).mean()) if (demos.lengths < horizon).any() else 0.0,
            limit=limit_ends(demos.lengths, terminal, int(demos.lengths.max())),
            horizon_known=subject.env is not None or not demos.horizon_from_data,
            alike_ends=alike_ends(demos),
            reward_per_step=None if demos.rewards is None else _reward_of_living(demos.rewards, ends),
        )
        series.append(("demonstrations", demos.lengths))
    fresh: dict[str, Any] = {}
    for name, played in subject.played.items():
        last = np.asarray(played.steps.terminal)[np.arange(len(played.lengths)), played.lengths - 1]
        numbers[f"{name}_terminal"] = float(last.mean())
        numbers[f"{name}_length"] = float(played.lengths.mean())
        fresh[name] = (played.lengths, last)
        if name in ("learner", "expert"):
            series.append((f"the {name}", played.lengths))
    if fresh:
        numbers["ends"] = float(max(last.mean() for _, last in fresh.values()))
        if demos is not None:
            numbers["beyond"] = _beyond(fresh, int(demos.lengths.max()))
    value = 1.0
    if demos is not None and subject.fresh is not None:
        value = float(subject.fresh.lengths.mean() / demos.lengths.mean())
    if "reward_per_step" in numbers and numbers["reward_per_step"] is not None:
        sign = "living" if numbers["reward_per_step"] > 0 else "ending"
        numbers["pays_for"] = sign
    xs = np.linspace(0, max(int(lengths.max()) for _, lengths in series), BINS)
    curves = [
        Series(name, i, {float(x): Sample.of((lengths >= x).astype(float)) for x in xs})
        for i, (name, lengths) in enumerate(series)
    ]
    sentence = f"the learner's episodes last {value:.0%} of the demonstrated ones" if subject.fresh is not None else ""
    if demos is not None:
        sentence += (
            f"{'; ' if sentence else ''}{numbers['terminal']:.0%} of the demonstrations end in a terminal state, "
        )
        sentence += f"{numbers['early']:.0%} before the horizon of {horizon} steps"
    return Measure(
        "survival",
        "How do episodes end?",
        value,
        "of the demonstrated episodes' length",
        0.8,
        "Lengths of the same policy vary by a few percent in the mean of ten episodes; 20% shorter is "
        "another behaviour.",
        False,
        sentence,
        numbers,
        Chart("Share of episodes that are still running", "time step", curves, y_title="Share", over="episodes"),
    )


def _reward_of_living(rewards: np.ndarray, ends: np.ndarray) -> float:
    """The mean reward of a step that does not end its episode: a reward for the end itself says nothing of living."""
    inner = np.ones(len(rewards), bool)
    inner[ends] = False
    return float(rewards[inner].mean()) if inner.any() else float(rewards.mean())


def limit_ends(lengths: np.ndarray, terminal: np.ndarray, limit: int) -> dict[str, float]:
    """How many episodes are terminal exactly at a limit, and how many would be by chance.

    A real end falls on any step. So by chance the limit gets as many as one step among the tenth before it.
    """
    at = terminal & (lengths == limit)
    before = terminal & (lengths < limit) & (lengths >= 0.9 * limit)
    expected = float(before.sum() / max(0.1 * limit, 1.0))
    return {"at": int(at.sum()), "share": float(at.mean()), "expected": expected, "limit": limit}


def _beyond(fresh: dict[str, Any], limit: int) -> dict[str, float]:
    """What fresh episodes do at a length: the share that lasts as long, of the policy whose episodes last best, and the
    share of all that last with a terminal there."""
    lasting = max(float((lengths >= limit).mean()) for lengths, _ in fresh.values())
    count = sum(int((lengths >= limit).sum()) for lengths, _ in fresh.values())
    terminal = sum(int(last[lengths == limit].sum()) for lengths, last in fresh.values())
    return {"lasting": lasting, "terminal": terminal / max(count, 1)}


def alike_ends(demos: Demonstrations) -> float:
    """How much an episode's end looks like an event: 1 if all end where no other state is, 0 if anywhere.

    Ends are alike if a column's final values are close together, or on the same side of almost all other values.
    """
    ends = np.cumsum(demos.lengths) - 1
    if len(ends) < 4:
        return 0.0
    x = np.asarray(demos.observations, np.float64)
    inner = np.ones(len(x), bool)
    inner[ends] = False
    if not inner.any():
        return 0.0
    best = 0.0
    for final, others in zip(x[ends].T, x[inner].T, strict=True):
        if final.std() > TIGHT * max(others.std(), 1e-12) or others.std() < 1e-9:
            continue
        low, high = final.min() - final.std(), final.max() + final.std()
        best = max(best, 1 - float(((others >= low) & (others <= high)).mean()) * 10)
    return max(best, 0.0)
