"""Which of several policies to hand over, by one criterion computed from demonstrations alone.

The criterion is an off-Q payoff that means the same for every algorithm and round: the largest payoff over the unit
ball of a Gaussian kernel's space, on steps that no learner trained on,

    sup_{‖f‖ ≤ 1} E f(s, π(s)) − E f(s, a) = ‖E k((s, π(s)), ·) − E k((s, a), ·)‖,   k(x, y) = exp(−‖x − y‖² / 2h²)

with states standardised by the demonstrations, continuous actions in [-1, 1], discrete ones one-hot, and h the median
distance between held-out expert pairs. Zero is a perfect match. It never looks at a return.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist, pdist

from understudy.actor import Actor
from understudy.types import Continuous, Dataset, Spec

MOST = 1024
"""Held-out steps used, at the most: the kernel compares every pair."""


class HeldOut(NamedTuple):
    """The held-out steps of one demonstration count, in the criterion's coordinates."""

    raw_obs: np.ndarray
    obs: np.ndarray
    act: np.ndarray
    bandwidth: float


def held_out(spec: Spec, training: Dataset, held: Dataset, run: int) -> HeldOut:
    """The criterion's data for run number `run` of the two datasets."""
    seen = np.asarray(training.steps.obs)[: int(training.size[run])].astype(np.float64)
    count = int(held.size[run])
    pick = np.unique(np.linspace(0, count - 1, min(count, MOST)).astype(int))
    raw = np.asarray(held.steps.obs)[pick]
    obs = (raw - seen.mean(0)) / (seen.std(0) + 1e-3)
    act = _vectors(spec, np.asarray(held.steps.act)[pick])
    distances = pdist(np.concatenate([obs, act], axis=1)) if len(pick) > 1 else np.ones(1)
    median = float(np.median(distances[distances > 0])) if (distances > 0).any() else 1.0
    return HeldOut(raw, obs, act, median)


def held_out_payoff(actor: Actor, data: HeldOut) -> float:
    """The Gaussian-kernel payoff of a policy on held-out steps."""
    carry = actor.policy.reset(np.random.default_rng(0), (len(data.raw_obs),))
    learner = _vectors(actor.spec, np.asarray(actor.policy.mode(carry, data.raw_obs)))

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
