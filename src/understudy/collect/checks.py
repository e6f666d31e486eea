"""Checks of what policies and JAX environments return. Those of Gymnasium environments are in `envs.stepping`."""

from typing import Any

import numpy as np

from understudy.core.errors import SpecError


def check_actions(chosen: Any, episodes: int, shape: tuple[int, ...]) -> np.ndarray:
    """A policy's actions for a batch of observations. Raises if they have the wrong shape or are not finite."""
    actions = np.asarray(chosen)
    if actions.shape != (episodes, *shape):
        raise SpecError(
            f"the policy returned actions of shape {actions.shape} for {episodes} observations: "
            f"{(episodes, *shape)} is needed"
        )
    check_finite(actions)
    return actions


def check_finite(actions: np.ndarray) -> None:
    """Raise if a policy's actions are NaN or infinite."""
    if not np.isfinite(actions).all():
        raise SpecError(f"the policy returned {int((~np.isfinite(actions)).sum())} actions that are NaN or infinite")


def check_environment(
    name: str, seed: int, what: str, values: np.ndarray, alive: np.ndarray, first: int | None = None
) -> None:
    """Raise if a JAX environment returned NaN or infinity.

    `values` starts with the axes (episodes, time), from step `first` on; None: they are those of a reset.
    """
    wrong = ~np.isfinite(values) & alive.reshape(*alive.shape, *(1,) * (values.ndim - 2))
    if wrong.any():
        episode, step_, *_ = (int(i) for i in np.argwhere(wrong)[0])
        place = "reset" if first is None else f"step {first + step_ + 1}"
        raise SpecError(
            f"{name} returned {values[wrong][0]} in its {what} in {place} of episode {episode + 1} of the rollout with "
            f"seed {seed}: numbers must be finite"
        )
