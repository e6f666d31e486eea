"""Alike states: actions as vectors, standardized states, and nearest neighbours in other episodes."""

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from understudy.core.types import ActionSpace, Continuous, MultiDiscrete

MOST_STEPS = 6000
"""The most steps that are compared with each other; of more, evenly spaced ones are used."""


class Steps(NamedTuple):
    """Steps as float64 vectors in comparable units."""

    obs: np.ndarray
    """Standardized, without constant dimensions."""
    act: np.ndarray
    """In standard deviations, or one-hot."""
    episode: np.ndarray
    t: np.ndarray


def vectors(space: ActionSpace, act: np.ndarray) -> np.ndarray:
    """Actions as vectors: numbers, or one-hot."""
    if isinstance(space, Continuous):
        return np.asarray(act, np.float64)
    if isinstance(space, MultiDiscrete):
        return np.concatenate([np.eye(n)[act[:, i]] for i, n in enumerate(space.nvec)], axis=1)
    return np.eye(space.n)[act]


def spread(array: np.ndarray) -> np.ndarray:
    """The standard deviation of each column; 1 where it never changes."""
    std = array.std(0)
    return np.where(std > 1e-9 * (1 + np.abs(array).max(0, initial=0.0)), std, 1.0)


def evenly(count: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def steps_of(
    space: ActionSpace, obs: np.ndarray, act: np.ndarray, lengths: np.ndarray, most: int = MOST_STEPS
) -> Steps:
    """Steps of concatenated episodes, in comparable units."""
    rows = evenly(len(obs), most)
    episode = np.repeat(np.arange(len(lengths)), lengths)[rows]
    t = np.concatenate([np.arange(length) for length in lengths])[rows]
    x = np.asarray(obs, np.float64)
    varies = np.ptp(x, axis=0) > 0
    x = x[:, varies] if varies.any() else x[:, :1]
    a = vectors(space, act)
    scale = spread(a) if isinstance(space, Continuous) else 1.0
    return Steps(((x - x.mean(0)) / spread(x))[rows], (a / scale)[rows], episode, t)


def neighbours(steps: Steps, count: int, others: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(n, count) distances and indices of the nearest steps of other episodes; infinite and -1 where there are none.

    With one episode, steps of it that are a tenth of its length away count as another one.
    """
    wanted = min(len(steps.obs), 4 * count + 24)
    distance, index = cKDTree(steps.obs).query(steps.obs, wanted)
    distance, index = distance.reshape(len(steps.obs), -1), index.reshape(len(steps.obs), -1)
    if others and len(np.unique(steps.episode)) > 1:
        allowed = steps.episode[index] != steps.episode[:, None]
    else:
        allowed = np.abs(steps.t[index] - steps.t[:, None]) > max(steps.t.max() // 10, 1)
    order = np.argsort(~allowed, axis=1, kind="stable")[:, :count]
    kept = np.take_along_axis(allowed, order, 1)
    return (
        np.where(kept, np.take_along_axis(distance, order, 1), np.inf),
        np.where(kept, np.take_along_axis(index, order, 1), -1),
    )
