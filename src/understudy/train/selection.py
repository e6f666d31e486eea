"""Which of several policies to hand over, by one criterion computed from demonstrations alone.

The criterion is an off-Q payoff that means the same for every algorithm and round: the largest payoff over the unit
ball of a Gaussian kernel's space, on steps that no learner trained on,

    sup_{‖f‖ ≤ 1} E f(s, π(s)) − E f(s, a) = ‖E k((s, π(s)), ·) − E k((s, a), ·)‖,   k(x, y) = exp(−‖x − y‖² / 2h²)

with states standardised by the demonstrations, continuous actions in [-1, 1], discrete ones one-hot, and h the typical
distance between the expert's pairs (`kernels`). Zero is a perfect match. It never looks at a return.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist, pdist

from understudy.core.types import Continuous, Dataset, Spec
from understudy.policies.actor import Actor

MOST = 1024
"""Steps used, at the most: the kernel compares every pair."""


class HeldOut(NamedTuple):
    """The held-out steps of one demonstration count, in the criterion's coordinates."""

    t: np.ndarray
    raw_obs: np.ndarray
    obs: np.ndarray
    act: np.ndarray
    bandwidth: float


def held_out(spec: Spec, training: Dataset, held: Dataset, run: int) -> HeldOut:
    """The criterion's data for run number `run` of the two datasets."""
    _, seen, seen_act = _spread(training, run)
    mean, std = seen.mean(0), seen.std(0) + 1e-3
    pairs = np.concatenate([(seen - mean) / std, _vectors(spec, seen_act)], axis=1)
    distances = pdist(pairs) if len(pairs) > 1 else np.ones(1)
    apart = distances[distances > 0]
    bandwidth = float(max(np.median(apart), np.sqrt(np.mean(apart**2)) / 2)) if apart.size else 1.0
    t, raw, act = _spread(held, run)
    return HeldOut(t, raw, (raw - mean) / std, _vectors(spec, act), bandwidth)


def _spread(data: Dataset, run: int) -> tuple[np.ndarray, ...]:
    """Time, observation and action of at most MOST steps, evenly spread over those that the run has."""
    size = int(data.size[run])
    pick = np.unique(np.linspace(0, size - 1, min(size, MOST)).astype(int))
    return tuple(np.asarray(column)[pick] for column in (data.steps.t, data.steps.obs, data.steps.act))


def held_out_payoff(actor: Actor, data: HeldOut) -> float:
    """The Gaussian-kernel payoff of a policy's modes on held-out steps, each at its own time."""
    carry = actor.policy.reset(np.random.default_rng(0), data.t.shape)._replace(t=data.t)
    learner = _vectors(actor.spec, np.asarray(actor.policy.mode(carry, data.raw_obs)))
    if not np.isfinite(learner).all():
        return float("nan")

    # The two sides share their states, so the kernel is a factor for states times a difference for actions.
    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(-cdist(x, y, "sqeuclidean") / (2 * data.bandwidth**2))

    states = kernel(data.obs, data.obs)
    actions = kernel(learner, learner) - 2 * kernel(learner, data.act) + kernel(data.act, data.act)
    return float(np.sqrt(max((states * actions).mean(), 0.0)))


def _vectors(spec: Spec, act: np.ndarray) -> np.ndarray:
    if isinstance(spec.action, Continuous):
        low, high = np.asarray(spec.action.low), np.asarray(spec.action.high)
        return (act - (low + high) / 2) / ((high - low) / 2)
    return np.eye(spec.action.n)[act]
