"""Episodes as vectors in a Gaussian kernel's space, and their inner products.

    k(x, y) = exp(−‖x − y‖² / 2h²),     φ = (1/T) Σ_{t < T} k(x_t, ·),     ⟨φ, φ'⟩ = (1/T²) Σ_t Σ_t' k(x_t, x'_t')

x is (s, a) as in `train.selection`: states standardized and clipped, actions in [-1, 1] or one-hot; with `timed` also
the time step, standardized. An episode that terminates early continues in the absorbing state, which has inner product
1 with itself and 0 with all steps. So ‖φ‖ ≤ 1, and ⟨φ, φ'⟩ ≥ 0.

All pairs of steps are summed in blocks, compiled and in float32, so memory does not grow with their number.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import pdist

from understudy.core.types import Continuous, MultiDiscrete, Spec
from understudy.game.kernels import MAX_STEPS, bandwidth_of
from understudy.policies.normalization import OBS_CLIP, Statistics

BLOCK = 2048
"""Steps of a side of a block: at most 16 MiB of kernel values."""


class Steps(NamedTuple):
    """Steps of several episodes, end to end. NumPy arrays."""

    t: np.ndarray
    obs: np.ndarray
    act: np.ndarray
    lengths: np.ndarray
    """(episodes,)."""
    terminal: np.ndarray
    """(episodes,): whether the episode ended in the absorbing state."""
    rewards: np.ndarray | None = None

    def episodes(self, start: int, stop: int) -> "Steps":
        """A range of episodes."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])
        rows, kept = slice(ends[start], ends[stop]), slice(start, stop)
        rewards = None if self.rewards is None else self.rewards[rows]
        t, obs, act = self.t[rows], self.obs[rows], self.act[rows]
        return Steps(t, obs, act, self.lengths[kept], self.terminal[kept], rewards)

    def cut(self, horizon: int) -> int:
        """How many episodes end before the horizon without termination: what follows is unknown."""
        return int((~self.terminal & (self.lengths < horizon)).sum())


class Kernel(NamedTuple):
    """k and its coordinates."""

    spec: Spec
    statistics: Statistics
    bandwidth: float
    timed: bool

    @classmethod
    def fit(cls, spec: Spec, steps: Steps, timed: bool = False) -> "Kernel":
        """Coordinates and bandwidth (`game.kernels`) from steps that are not judged."""
        obs = steps.obs.astype(np.float64)
        kernel = cls(spec, Statistics.of(spec, obs, np.full((len(obs), 1), 1 / len(obs))), 1.0, timed)
        rows = evenly_spaced(len(obs), MAX_STEPS)
        distances = pdist(kernel.points(steps.t[rows], steps.obs[rows], steps.act[rows]))
        positive = distances[distances > 0]
        return kernel._replace(bandwidth=float(bandwidth_of(positive)) if positive.size else 1.0)

    def points(self, t: np.ndarray, obs: np.ndarray, act: np.ndarray) -> np.ndarray:
        """(n, d): steps in the kernel's coordinates."""
        parts = [standardized(self.statistics, obs.astype(np.float64)), action_vectors(self.spec, act)]
        if self.timed:
            horizon = self.spec.horizon
            parts.append(((t - (horizon - 1) / 2) / max(horizon / np.sqrt(12), 1.0))[:, None])
        return np.concatenate(parts, axis=1)

    def of(self, steps: Steps) -> np.ndarray:
        return self.points(steps.t, steps.obs, steps.act)

    def values(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """k(x_i, y_j), for sizes that fit in memory."""
        squared = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T
        return np.exp(-np.maximum(squared, 0) / (2 * self.bandwidth**2))


def standardized(statistics: Statistics, obs: np.ndarray) -> np.ndarray:
    return np.clip((obs - statistics.mean) / statistics.scale, -OBS_CLIP, OBS_CLIP)


def action_vectors(spec: Spec, act: np.ndarray) -> np.ndarray:
    """Actions as vectors in [-1, 1], or one-hot."""
    if isinstance(spec.action, Continuous):
        low, high = np.asarray(spec.action.low), np.asarray(spec.action.high)
        return (act - (low + high) / 2) / ((high - low) / 2)
    if isinstance(spec.action, MultiDiscrete):
        return np.concatenate([np.eye(n)[act[:, i]] for i, n in enumerate(spec.action.nvec)], axis=1)
    return np.eye(spec.action.n)[act]


def evenly_spaced(size: int, most: int) -> np.ndarray:
    """At most `most` rows of `size`, evenly spaced."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(int))


def gram(points: np.ndarray, lengths: np.ndarray, bandwidth: float, weights: np.ndarray | None = None) -> np.ndarray:
    """(N, N): Σ_t Σ_t' w_t w_t' k(x_t, x'_t') for all pairs of N episodes, whose steps are `points`, end to end.

    Weights are above 0 and at most 1; None: all are 1.
    """
    count, longest = len(lengths), int(lengths.max())
    centred = (points - points.mean(axis=0)) / bandwidth  # smaller numbers, smaller rounding
    logs = np.zeros(len(points)) if weights is None else np.log(weights)
    width = min(longest, BLOCK)
    pieces = -(-lengths // width)  # an episode that is longer than a block has several pieces
    owner = np.repeat(np.arange(count), pieces)
    group = max(BLOCK // width, 1)
    rows = -(-len(owner) // group) * group
    left = np.zeros((rows, width, points.shape[1] + 2), np.float32)
    left[..., -2] = -1e30  # the kernel is zero on padding
    starts, ends = np.cumsum(lengths) - lengths, np.cumsum(lengths)
    piece = 0
    for start, end in zip(starts, ends, strict=True):
        for first in range(start, end, width):
            chosen = centred[first : min(first + width, end)]
            left[piece, : len(chosen), :-2] = chosen
            left[piece, : len(chosen), -2] = logs[first : min(first + width, end)] - np.square(chosen).sum(axis=1) / 2
            piece += 1
    left[..., -1] = 1.0
    right = left[..., [*range(points.shape[1]), -1, -2]]  # ⟨left, right⟩ = ln w_x + ln w_y − ‖x − y‖² / 2
    sums = np.zeros((rows, rows))
    for i in range(0, rows, group):
        for j in range(i, rows, group):
            sums[i : i + group, j : j + group] = _block(left[i : i + group], right[j : j + group])
            sums[j : j + group, i : i + group] = sums[i : i + group, j : j + group].T
    to_episode = np.zeros((rows, count))
    to_episode[np.arange(len(owner)), owner] = 1.0
    return to_episode.T @ sums @ to_episode


@jax.jit
def _block(left: jax.Array, right: jax.Array) -> jax.Array:
    x, y = left.reshape(-1, left.shape[-1]), right.reshape(-1, right.shape[-1])
    kernel = jnp.exp(jnp.minimum(jnp.dot(x, y.T, precision="highest"), 0.0))
    return kernel.reshape(*left.shape[:2], *right.shape[:2]).sum((1, 3))


def episode_gram(kernel: Kernel, steps: Steps) -> np.ndarray:
    """(N, N): ⟨φ_i, φ_j⟩. An episode that was cut before T counts as if its steps were repeated up to T."""
    horizon = kernel.spec.horizon
    alive = np.where(steps.terminal, steps.lengths / horizon, 1.0)
    share = alive / steps.lengths
    return np.outer(share, share) * gram(kernel.of(steps), steps.lengths, kernel.bandwidth) + np.outer(
        1 - alive, 1 - alive
    )


def steps_to_go(t: np.ndarray, horizon: int) -> np.ndarray:
    """(T − t) / T, with t from 0: the largest |Q| at step t over the largest at the first, for rewards in [-1, 1]."""
    return 1 - t / horizon


def difference_gram(
    kernel: Kernel, steps: Steps, learner: np.ndarray, expert: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """(N, N): inner products of (1/T) Σ_t w_t (k((s_t, learner's action), ·) − k((s_t, expert's action), ·))."""
    sides = [kernel.points(steps.t, steps.obs, act) for act in (learner, expert)]
    count = len(steps.lengths)
    twice = None if weights is None else np.tile(weights, 2)
    whole = gram(np.concatenate(sides), np.tile(steps.lengths, 2), kernel.bandwidth, twice)
    cross = whole[:count, count:]
    return (whole[:count, :count] - cross - cross.T + whole[count:, count:]) / kernel.spec.horizon**2
