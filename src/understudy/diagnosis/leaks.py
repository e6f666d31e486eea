"""Leaks: whether a single column of the observations gives the action away."""

import numpy as np

from understudy.core.types import ActionSpace, Continuous
from understudy.data import Demonstrations
from understudy.diagnosis.alike import vectors
from understudy.diagnosis.subject import Subject

MOST = 5000


def leaked(demos: Demonstrations) -> tuple[float, int]:
    """How well the best single column of the observation gives the action, and which it is.

    It is the correlation with a column of the actions; or 1 if each value of the column has one discrete action, and
    each action one value.
    """
    if demos.observations.shape[1] == 1:
        return 0.0, -1  # the whole observation gives the action
    rows = slice(None, None, max(demos.steps // MOST, 1))
    return _best(demos.action_space, demos.observations[rows], demos.actions[rows])


def leak_of_expert(subject: Subject, column: int) -> float | None:
    """How well the same column gives the action when the expert acts in the environment. None: unknown."""
    played = subject.theirs
    if played is None or column < 0:
        return None
    obs, act = (played.flat(np.asarray(x)) for x in (played.steps.obs, played.steps.act))
    rows = slice(None, None, max(len(obs) // MOST, 1))
    return _best(subject.spec.action, obs[rows][:, [column]], act[rows])[0]


def _best(space: ActionSpace, obs: np.ndarray, actions: np.ndarray) -> tuple[float, int]:
    act = vectors(space, actions)
    numbers = np.asarray(actions, np.float64).reshape(len(act), -1)
    targets = numbers if isinstance(space, Continuous) else np.concatenate([numbers, act], axis=1)
    targets = targets[:, targets.std(0) > 1e-9]
    best, column = 0.0, -1
    for j, x in enumerate(obs.astype(np.float64).T):
        size = max(float(np.abs(x).max(initial=0.0)), 1e-300)
        if x.std() < 1e-9 * size or targets.shape[1] == 0:
            continue
        fit = max(abs(float(np.corrcoef(x / size, target)[0, 1])) for target in targets.T)
        if not isinstance(space, Continuous) and numbers.shape[1] == 1 and _one_to_one(x, numbers[:, 0]):
            fit = 1.0
        if fit > best:
            best, column = fit, j
    return best, column


def _one_to_one(x: np.ndarray, action: np.ndarray) -> bool:
    values, names = np.unique(x), np.unique(action)
    pairs = np.unique(np.stack([x, action], axis=1), axis=0)
    return len(values) == len(names) == len(pairs) > 2  # of two actions, the sign of a state may decide
