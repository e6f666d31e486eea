"""Recoverability: what a single mistake costs the expert, and how long it takes to recover from it.

The expert acts from the same starts twice. In the second episode one action, at a third of the episode, is random.
The cost is the difference of returns; the recovery time is how long its states stay outside the range of the expert's
own episodes. Sampled mistakes bound H of the paper from below.
"""

from typing import Any

import numpy as np

from understudy.collect.acting import uniform_actions
from understudy.collect.rollouts import rollout
from understudy.core.statistics import Sample, interval
from understudy.diagnosis.alike import spread
from understudy.diagnosis.measures import CannotMeasureError, Measure
from understudy.diagnosis.subject import Subject
from understudy.studies.report.chart import Chart, Series

POINTS = 20


def measure(subject: Subject) -> Measure:
    env, acting, theirs = subject.env, subject.expert, subject.theirs
    if env is None or acting is None or theirs is None:
        raise CannotMeasureError("needs an environment and an expert to act in it")
    at = max(int(np.median(theirs.lengths)) // 3, 0)
    seed = subject.seeds(1)[0]
    rng = np.random.default_rng(subject.seeds(8)[7])
    random = uniform_actions(env.spec.action, rng)
    now = 0

    def erring(obs: np.ndarray) -> np.ndarray:
        nonlocal now
        now += 1
        if now - 1 == at:
            return np.asarray(random(obs))
        t = np.full(len(obs), now - 1)
        return acting.expert.query(obs, env.spec, rng, t)

    played = rollout(env, erring, len(theirs.lengths), seed)
    costs = theirs.returns - played.returns
    obs, other = np.asarray(theirs.steps.obs, np.float64), np.asarray(played.steps.obs, np.float64)
    length = min(obs.shape[1], other.shape[1])
    unit = spread(theirs.flat(obs))
    apart = np.abs((obs[:, :length] - other[:, :length]) / unit).max(-1)
    both = np.arange(length) < np.minimum(theirs.lengths, played.lengths)[:, None]
    late = np.where(both, apart, np.nan)[:, at:]
    usual = max(float(np.nanmean(late)) * 0.1, 0.1)
    out = np.where(np.isnan(late), False, late > usual)
    steps = np.where(out.any(1), out.shape[1] - out[:, ::-1].argmax(1), 0)
    ended = played.lengths < theirs.lengths
    cost = interval(Sample.of(costs))
    per_step = np.abs(theirs.returns).mean() / max(theirs.lengths.mean(), 1)
    h = float(max(cost.mean, 0.0) / max(per_step, 1e-9))
    numbers: dict[str, Any] = {
        "cost": list(cost),
        "recovery_steps": float(np.median(steps)),
        "ended_early": float(ended.mean()),
        "h": h,
        "horizon": env.spec.horizon,
        "step": at,
    }
    places = np.unique(np.linspace(0, late.shape[1] - 1, min(POINTS, late.shape[1])).astype(int))
    curve = {
        float(at + i): Sample.of(late[~np.isnan(late[:, i]), i]) for i in places if (~np.isnan(late[:, i])).sum() > 1
    }
    chart = None
    if len(curve) > 1:
        chart = Chart(
            "How far one random action moves the expert",
            "time step",
            [Series("distance to the episode without it", 0, curve)],
            y_title="Standard deviations",
            over="episodes",
        )
    lasts = f"it recovers in about {numbers['recovery_steps']:.0f} steps"
    if ended.mean() > 0.3:
        lasts = f"{ended.mean():.0%} of the episodes end early after it"
    return Measure(
        "recoverability",
        "Does the expert recover from a mistake?",
        h / env.spec.horizon,
        "of the horizon: H/T, from one mistake (a lower bound)",
        0.1,
        "On-Q moments cost εHT and off-Q ones εT²: below a tenth, asking the expert is worth ten times the data.",
        True,
        f"one random action at step {at} costs {cost} of return (H is at least {h:.1f} steps of reward); {lasts}",
        numbers,
        chart,
    )
