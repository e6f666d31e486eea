"""Experts that are the user's own code: a function of a batch, a function of one observation, a model with `predict`.

What a function takes is found out by a trial call with a few observations, before training. It gets a batch first. If
the answer is not a batch of actions, it gets one observation, and if that works it is called once for each. The number
of observations in the trial differs from the sizes of an observation and an action, so that one is not taken for the
other. If the first batch of real observations fits, it is the trial, and the function is not called twice.
"""

import inspect
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from gymnasium import Space, spaces

from understudy.core.errors import SpecError, WorkerError
from understudy.core.spaces import actions_of, is_plain, unflattened
from understudy.core.types import Discrete, Spec
from understudy.envs.stepping import FAILURES, as_numbers, reason
from understudy.experts.answers import check_numbers

Function = Callable[[np.ndarray], Any]
FEWEST = 3
"""Observations of a trial call."""


def name_of(source: Any) -> str:
    """The name of a function of the user, or of its class."""
    return str(getattr(getattr(source, "func", source), "__name__", type(source).__name__))


class BatchFunction:
    """A user's function as a function of a batch of observations."""

    def __init__(self, function: Function, spec: Spec):
        self._function, self._spec = function, spec
        self.__name__ = name_of(function)
        self._single: bool | None = None
        """Whether the function takes one observation; None: not known yet."""

    def __call__(self, obs: np.ndarray) -> Any:
        if self._single is None:
            rows = trial_rows(obs, self._spec)
            answer = self._try(rows)
            if self._single is False and len(rows) == len(obs):
                return answer
        return np.stack([self._one(row) for row in obs]) if self._single else self._function(obs)

    def _one(self, row: np.ndarray) -> np.ndarray:
        name, shape = f"the expert {self.__name__}", self._spec.action.shape
        return check_numbers(name, "actions", [self._function(row)], (1, *shape))[0]

    def _try(self, rows: np.ndarray) -> Any:
        """Find out what the function takes; returns its answer for the batch. Raises if it takes neither."""
        shape = self._spec.action.shape
        batch, batch_error = _called(self._function, np.array(rows))
        numbers = as_numbers(batch)
        if batch_error is None and numbers is not None and numbers.shape == (len(rows), *shape):
            self._single = False
            return batch
        one, one_error = _called(self._function, np.array(rows[0]))
        number = as_numbers(one)
        if one_error is None and number is not None and number.shape == shape:
            self._single = True
            return None
        name = f"the expert {self.__name__}"
        if batch_error is not None:
            again = "" if one_error is None else f", and {reason(one_error)} for one"
            hint = self._advice(None, number, len(rows)) if one_error is None else "call it with one of them yourself"
            raise WorkerError(f"{name} raised {reason(batch_error)} for {len(rows)} observations{again}; {hint}")
        try:
            check_numbers(name, "actions", batch, (len(rows), *shape))
        except SpecError as error:
            raise SpecError(f"{error}; {self._advice(batch, number, len(rows))}") from None
        raise AssertionError("unreachable")

    def _advice(self, batch: Any, one: np.ndarray | None, rows: int) -> str:
        """The line that makes an expert of the function."""
        name, space = self.__name__, self._spec.action
        numbers, count = as_numbers(batch), space.n if isinstance(space, Discrete) else None
        found = None if numbers is None or numbers.shape[:1] != (rows,) else numbers.shape[1:]
        size = 1 if one is None else one.size
        if isinstance(batch, tuple) and len(batch) == 2:
            line = f"lambda obs: {name}(obs)[0]"
        elif count is not None and found == (count,):
            line = f"lambda obs: {name}(obs).argmax(axis=1)"
        elif found is not None and space.shape in ((), (1,)) and found in ((), (1,)):
            line = f"lambda obs: np.reshape({name}(obs), {'-1' if space.shape == () else '(-1, 1)'})"
        elif one is not None and count is None and size == space.shape[0]:
            line = f"lambda obs: np.stack([np.ravel({name}(o)) for o in obs])"
        else:
            line = f"lambda obs: np.stack([{name}(o) for o in obs])"
        return f"pass a function of a batch, for example {line}"


def trial_rows(obs: np.ndarray, spec: Spec) -> np.ndarray:
    """Some observations for a trial call: the given ones if their number is clear, else a few, repeated if needed."""
    unclear = (*spec.obs_shape, *spec.action.shape, spec.action_size)
    if len(obs) >= FEWEST and len(obs) not in unclear:
        return obs
    count = next(count for count in range(FEWEST, FEWEST + len(unclear) + 1) if count not in unclear)
    return obs[np.arange(count) % len(obs)]


def predicting(model: Any) -> Function:
    """The function of a batch of a model with `predict`, such as one of Stable-Baselines3.

    `predict` returns (actions, state), or actions only. If it takes `deterministic`, that is set. A model whose
    environment is in a VecNormalize gets normalized observations, as in its training. If a model has the spaces of
    Gymnasium, it gets observations as its space has them, such as a dictionary of parts, and its actions may be those
    of a MultiDiscrete space.
    """
    options = {"deterministic": True} if _takes(model.predict, "deterministic") else {}
    find = getattr(model, "get_vec_normalize_env", None)
    normalizer = find() if callable(find) else None
    observed, acted = (getattr(model, name, None) for name in ("observation_space", "action_space"))
    rows = not isinstance(observed, Space) or (isinstance(observed, spaces.Box) and is_plain(observed))
    encode = (
        actions_of(acted, type(model).__name__).encode if isinstance(acted, Space) and not is_plain(acted) else None
    )

    def predict(obs: np.ndarray) -> Any:
        seen = obs if rows else unflattened(cast("Space[Any]", observed), obs)
        seen = seen if normalizer is None else normalizer.normalize_obs(seen)
        returned = model.predict(seen, **options)
        actions = returned[0] if isinstance(returned, tuple) and len(returned) == 2 else returned
        return actions if encode is None else encode(np.asarray(actions))

    predict.__name__ = f"{type(model).__name__}.predict"
    return predict


def _takes(function: Any, name: str) -> bool:
    """Whether a function has a parameter of this name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # one that is not written in Python
        return False
    return any(one.name == name or one.kind == one.VAR_KEYWORD for one in parameters)


def _called(function: Function, argument: np.ndarray) -> tuple[Any, BaseException | None]:
    try:
        return function(argument), None
    except FAILURES as error:
        return None, error
