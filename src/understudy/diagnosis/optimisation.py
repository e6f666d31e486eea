"""Optimisation: whether training itself went wrong: diverged, not converged, overfitted, or different for every
seed."""

from typing import Any

import numpy as np
from scipy.stats import f as f_distribution

from understudy.core.statistics import Sample, p_less
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.reference import Reference, simple_error
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

EXPLODED = 100.0
"""Times its size in the first quarter of training at which a metric counts as exploded: losses do not grow so."""
HUGE = {"payoff": 50.0, "policy_loss": 1e3, "loss": 1e3, "q": 1e4, "critic_loss": 1e4}
"""The size at which a metric counts as exploded. Observations and actions have size 1, so payoffs and losses do too."""
STRAINED = 0.1
"""The share of these sizes that is suspicious if the policy is bad, too."""
LOSSES = ("loss", "policy_loss", "payoff")
COUNTS = ("return", "seconds", "queries", "env_steps")
"""Metrics that grow in healthy training, or have the task's units."""


def measure(subject: Subject, reference: Reference | None) -> Measure:
    result = subject.result
    if result is None:
        raise CannotMeasureError("demonstrations alone: no run to look at")
    numbers: dict[str, Any] = {
        "diverged": [run.name for run in result.runs if run.status.startswith("diverged")],
        "rounds": next(iter(result.metrics.values())).shape[1] if result.metrics else 0,
        "metrics": {name: _trend(values[result.selected]) for name, values in result.metrics.items()},
        "algorithm": result.config["algorithm"]["name"],
        "supervised": result.config["algorithm"]["name"] == "bc",
        "offline": result.config["algorithm"]["card"].get("collects", "") == "nothing",
        "gradient_steps": _gradient_steps(result.config),
        "finite": [bool(np.isfinite(run.payoff)) for run in result.runs],
    }
    numbers["exploded"] = [
        name
        for name, values in result.metrics.items()
        if name not in COUNTS and any(_exploded(name, row) for row in values)
    ]
    numbers["strained"] = [
        name
        for name, values in result.metrics.items()
        if name in HUGE and np.nanmax(np.abs(values), initial=0.0) > STRAINED * HUGE[name]
    ]
    numbers["largest"] = {
        name: float(np.nanmax(np.abs(values))) for name, values in result.metrics.items() if np.isfinite(values).any()
    }
    numbers["dead"] = [
        name
        for name, values in result.metrics.items()
        if "critic" in name and values.size and np.nanmax(np.abs(values)) == 0
    ]
    actor = result.policy
    if reference is not None:
        train, unseen = reference.errors(actor)
        own_train, own_unseen = reference.errors(reference.actors[-1])
        numbers.update(
            training_error=train, unseen_error=unseen, reference_training=own_train, reference_unseen=own_unseen
        )
        numbers["simple_unseen"] = simple_error(reference)
    numbers["clone"] = _against_clone(subject)
    numbers["seeds"] = _seeds(subject)
    name, trend = next(((n, numbers["metrics"][n]) for n in LOSSES if n in numbers["metrics"]), ("", None))
    falling = float("nan") if trend is None else trend["falling"]
    numbers["falling"] = falling
    chart = None
    if name:
        rows = result.metrics[name]
        finite = np.isfinite(rows).any(0)
        points = {float(r + 1): Sample.of(rows[np.isfinite(rows[:, r]), r]) for r in np.flatnonzero(finite)}
        if len(points) > 1:
            chart = Chart(f"{name} during training", "round", [Series(name, 0, points)], y_title=name)
    value = float("nan")
    text = f"{len(numbers['diverged'])} of {len(result.runs)} runs diverged"
    if reference is not None:
        value = (numbers["training_error"] + 0.005) / (numbers["reference_training"] + 0.005)
        text += (
            f"; the policy misses {numbers['training_error']:.1%} in training and "
            f"{numbers['unseen_error']:.1%} on unseen "
            f"steps, a reference clone {numbers['reference_training']:.1%} and {numbers['reference_unseen']:.1%}"
        )
    if np.isfinite(falling):
        text += f"; in the last quarter the {name} fell by {falling:.0%} of its whole fall"
    return Measure(
        "optimisation",
        "Did training work?",
        value,
        "times the reference clone's training error",
        2.0,
        "The reference takes 4,000 small steps; a policy that fits its own data half as well has not "
        "been trained enough.",
        True,
        text,
        numbers,
        chart,
    )


def _against_clone(subject: Subject) -> dict[str, float]:
    """How much more the reference clone returns than the policy, of the way from no skill to the better one."""
    own, clone, baseline = subject.fresh, subject.cloned, subject.baseline
    if own is None or clone is None or baseline is None:
        return {}
    ours, theirs = Sample.of(own.returns), Sample.of(clone.returns)
    scale = max(ours.mean, theirs.mean) - baseline.mean
    gain = (theirs.mean - ours.mean) / scale if scale > 1e-9 else 0.0
    return {"learner": ours.mean, "clone": theirs.mean, "gain": float(gain), "p": p_less(ours, theirs)}


def _gradient_steps(config: dict[str, Any]) -> int | None:
    settings = config["algorithm"]["hyperparameters"]
    rounds, each = settings.get("rounds"), settings.get("gradient_steps", 1)
    return None if rounds is None or not isinstance(each, int) else int(rounds) * int(each)


def _trend(row: np.ndarray) -> dict[str, float]:
    known = row[np.isfinite(row)]
    if len(known) < 4:
        return {"first": float(known[0]) if len(known) else np.nan, "last": np.nan, "falling": np.nan}
    quarter = max(len(known) // 4, 1)
    first, before, last = known[:quarter].mean(), known[-2 * quarter : -quarter].mean(), known[-quarter:].mean()
    whole = known[0] - last
    return {"first": float(first), "last": float(last), "falling": float((before - last) / whole) if whole > 0 else 0.0}


def _exploded(name: str, row: np.ndarray) -> bool:
    known = np.abs(row[np.isfinite(row)])
    if len(known) == 0:
        return False
    if known.max() > HUGE.get(name, 1e6):
        return True
    if len(known) < 4:
        return False
    quarter = max(len(known) // 4, 1)
    start, end = np.median(known[:quarter]), np.median(known[-quarter:])
    return bool(end > EXPLODED * max(start, 1e-3) and end > 10)


def _seeds(subject: Subject) -> dict[str, Any]:
    """Whether seeds differ by more than their episodes do: an F test over policies, and the share of the scale."""
    result = subject.result
    assert result is not None
    most = max(run.episodes for run in result.runs)
    payoffs = np.array([run.payoff for run in result.runs if run.episodes == most])
    found: dict[str, Any] = {"count": len(payoffs), "payoffs": [float(x) for x in payoffs]}
    returns = subject.returns
    if returns is None or len(returns) < 2:
        return found
    means = returns.mean(1)
    between = returns.shape[1] * means.var(ddof=1)
    within = returns.var(1, ddof=1).mean() if returns.shape[1] > 1 else 0.0
    ratio = between / max(within, 1e-12)
    degrees = (len(means) - 1, len(means) * max(returns.shape[1] - 1, 1))
    scale = max(_scale(subject, means), 1e-9)
    found.update(
        means=[float(x) for x in means],
        p=float(f_distribution.sf(ratio, *degrees)),
        range=float(np.ptp(means) / scale),
        best=float(means.max()),
    )
    return found


def _scale(subject: Subject, means: np.ndarray) -> float:
    """From the return of a policy without skill to the best known one."""
    known = [means.max()]
    if subject.reference_returns is not None:
        known.append(subject.reference_returns.mean())
    if subject.demos is not None and subject.demos.expert_return is not None:
        known.append(subject.demos.expert_return.mean)
    baseline = subject.baseline
    return max(float(np.ptp(means)), 1e-9) if baseline is None else float(max(known) - baseline.mean)
