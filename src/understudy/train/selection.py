"""Selection among policies by one criterion, computed from demonstrations alone.

The criterion is an off-Q payoff that can be compared across algorithms and rounds: the largest payoff over the unit
ball of a Gaussian kernel's function space, on held-out steps that no learner trained on,

    sup_{‖f‖ ≤ 1} E f(s, π(s)) − E f(s, a) = ‖E k((s, π(s)), ·) − E k((s, a), ·)‖,   k(x, y) = exp(−‖x − y‖² / 2h²)

with states standardized by the demonstrations, continuous actions in [-1, 1], discrete actions one-hot, and h the
bandwidth rule of `game.kernels`. Zero is a perfect match. The criterion never uses a return.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist, pdist

from understudy.core.types import Continuous, Dataset, MultiDiscrete, Spec
from understudy.game.kernels import bandwidth_of
from understudy.policies.actor import Actor

MAX_STEPS = 1024
"""The most steps used; the cost is quadratic."""


class HeldOut(NamedTuple):
    """The held-out steps for one number of demonstrations, in the criterion's coordinates."""

    t: np.ndarray
    raw_obs: np.ndarray
    obs: np.ndarray
    act: np.ndarray
    bandwidth: float


def held_out(spec: Spec, training: Dataset, held: Dataset, run: int) -> HeldOut:
    """The criterion's data for run number `run`."""
    _, obs, act = _evenly_spaced(training, run)
    mean, std = obs.mean(0), obs.std(0) + 1e-3
    pairs = np.concatenate([(obs - mean) / std, _vectors(spec, act)], axis=1)
    distances = pdist(pairs) if len(pairs) > 1 else np.ones(1)
    positive = distances[distances > 0]
    bandwidth = float(bandwidth_of(positive)) if positive.size else 1.0
    t, raw_obs, held_act = _evenly_spaced(held, run)
    return HeldOut(t, raw_obs, (raw_obs - mean) / std, _vectors(spec, held_act), bandwidth)


def _evenly_spaced(data: Dataset, run: int) -> tuple[np.ndarray, ...]:
    """Time, observation and action of at most MAX_STEPS steps, evenly spaced over the run's steps."""
    size = int(data.size[run])
    rows = np.unique(np.linspace(0, size - 1, min(size, MAX_STEPS)).astype(int))
    return tuple(np.asarray(column)[rows] for column in (data.steps.t, data.steps.obs, data.steps.act))


def held_out_payoff(actor: Actor, data: HeldOut) -> float:
    """The Gaussian-kernel payoff of a policy's deterministic actions on held-out steps; NaN if one is not finite."""
    carry = actor.policy.reset(np.random.default_rng(0), data.t.shape)._replace(t=data.t)
    learner = _vectors(actor.spec, np.asarray(actor.policy.mode(carry, data.raw_obs)))
    if not np.isfinite(learner).all():
        return float("nan")

    # The two sides share their states, so the kernel is a product of a state factor and an action factor.
    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(-cdist(x, y, "sqeuclidean") / (2 * data.bandwidth**2))

    states = kernel(data.obs, data.obs)
    actions = kernel(learner, learner) - 2 * kernel(learner, data.act) + kernel(data.act, data.act)
    return float(np.sqrt(max((states * actions).mean(), 0.0)))


def _vectors(spec: Spec, act: np.ndarray) -> np.ndarray:
    """Actions as vectors in [-1, 1], or one-hot."""
    if isinstance(spec.action, Continuous):
        low, high = np.asarray(spec.action.low), np.asarray(spec.action.high)
        return (act - (low + high) / 2) / ((high - low) / 2)
    if isinstance(spec.action, MultiDiscrete):
        return np.concatenate([np.eye(n)[act[:, i]] for i, n in enumerate(spec.action.nvec)], axis=1)
    return np.eye(spec.action.n)[act]
