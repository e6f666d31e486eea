"""Demonstrations in the form that a task needs: its action bounds, its horizon, its order of the parts observed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from understudy.core.errors import DemonstrationError, SettingError, SpecError
from understudy.core.parts import Parts, columns, reordered
from understudy.core.text import quoted
from understudy.core.types import Spec, action_kind
from understudy.data.checks import Checker
from understudy.data.demonstrations import Demonstrations


def for_task(given: Demonstrations, spec: Spec, name: str) -> Demonstrations:
    """The same episodes with an environment's action bounds and horizon. Raises if they do not fit.

    If both name the parts of an observation, in another order, the columns take the environment's order.
    """
    if spec.obs_shape != given.observations.shape[1:]:
        raise DemonstrationError(
            f"the demonstrations' observations have shape {given.observations.shape[1:]}, those of {name} have "
            f"{spec.obs_shape}: pass demonstrations of this environment"
        )
    if given.recorded_space is not None and type(spec.action) is not type(given.recorded_space):
        raise DemonstrationError(
            f"the demonstrations' actions are {action_kind(given.recorded_space)}, those of {name} "
            f"{action_kind(spec.action)}: pass demonstrations of this environment"
        )
    actions, space = given.recorded_actions, spec.action
    if actions is not None:
        check = Checker(f"demonstrations for {name}", copy=False)
        actions, space = check.actions(actions, spec.action, given.lengths)
    return replace(
        _with_parts(given, spec.obs_parts, name) if spec.obs_parts else given,
        recorded_actions=actions,
        recorded_space=space,
        horizon=max(spec.horizon, given.horizon),
        env=name,
        bounds_from_data=False,
        horizon_from_data=False,
    )


def _with_parts(given: Demonstrations, parts: Parts, name: str) -> Demonstrations:
    """The same episodes with these parts of an observation, in this order. `name` is that of the environment."""
    try:
        order = reordered(given.obs_parts, parts)
    except SpecError as error:
        raise DemonstrationError(f"the demonstrations do not fit {name}: {error}") from error
    return replace(given, obs_parts=parts) if order is None else _with_columns(given, order, parts)


def with_keys(given: Demonstrations, keys: Sequence[str]) -> Demonstrations:
    """The same episodes with only these parts of an observation, in this order. Indices count as keys too."""
    found = list(columns(given.obs_parts, keys, "keys") or ())
    size = given.observations.shape[1]
    if not found or len(set(found)) < len(found) or not all(0 <= index < size for index in found):
        raise SettingError(f"keys is {quoted(list(keys))}: different parts of an observation of {size} are needed")
    sizes = dict(given.obs_parts)
    parts = tuple((key, sizes[key]) for key in keys) if all(key in sizes for key in keys) else ()
    return _with_columns(given, found, parts)


def _with_columns(given: Demonstrations, order: list[int], parts: Parts) -> Demonstrations:
    def taken(array: np.ndarray | None) -> np.ndarray | None:
        return None if array is None else array[:, order]

    return replace(
        given,
        observations=given.observations[:, order],
        last_observations=taken(given.last_observations),
        other_next=taken(given.other_next),
        obs_parts=parts,
    )
