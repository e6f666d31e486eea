"""The answers of an expert: numbers of the right shape, in time, or an error of one line that names the expert."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from understudy.core.errors import SpecError, UnderstudyError, WorkerError
from understudy.core.types import ActionSpace, Continuous, Discrete
from understudy.envs.stepping import FAILURES, as_numbers, described, reason


def ask(name: str, answer: Callable[[], Any], count: int, timeout: float) -> Any:
    """What `answer()` returns for `count` observations. It may take `timeout` seconds (0: any time).

    With a timeout it runs in a thread. Nothing can stop it there: after the timeout we stop waiting for it, and the
    thread ends with the program.
    """

    def answered() -> Any:
        try:
            return answer()
        except UnderstudyError:
            raise
        except FAILURES as error:
            raise WorkerError(f"{name} raised {reason(error)} for {count} observations") from error

    if not timeout:
        return answered()
    done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((answered(), None))
        except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
            done.put((None, error))

    threading.Thread(target=run, daemon=True, name=name).start()
    try:
        result, error = done.get(timeout=timeout)
    except queue.Empty:
        raise WorkerError(
            f"{name} did not answer {count} observations within {timeout:g} s: set another expert_timeout (in the "
            "shell --expert-timeout; 0: no limit)"
        ) from None
    if error is not None:
        raise error
    return result


def check_numbers(name: str, what: str, answer: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The answer as an array. Raises unless it holds finite real numbers of this shape."""
    numbers = as_numbers(answer)
    if numbers is None:
        given = described(_as_array(answer))
        raise SpecError(f"{name} returned {given} for its {what}: real numbers of shape {shape} are needed")
    if numbers.shape != shape:
        raise SpecError(
            f"{name} returned {what} of shape {numbers.shape} for {shape[0]} observations: {shape} is needed"
        )
    if not np.isfinite(numbers).all():
        wrong = int((~np.isfinite(numbers)).sum())
        raise SpecError(f"{name} returned {wrong} {what} that are NaN or infinite: finite numbers are needed")
    return numbers


def check_range(name: str, actions: np.ndarray, space: ActionSpace) -> None:
    """Raise if an action is outside the action space."""
    bad = space.outside(actions)
    if bad.any():
        low, high = _range(space)
        lowest, highest = (", ".join(f"{bound:g}" for bound in bounds) for bounds in (low, high))
        whole = "" if isinstance(space, Continuous) else "whole numbers "
        raise SpecError(
            f"{name} returned {int(bad.sum())} actions that are out of range, the first is {actions[bad][0]:g}: "
            f"actions must be {whole}from {lowest} to {highest}"
        )


def _range(space: ActionSpace) -> tuple[Sequence[float], Sequence[float]]:
    """The smallest and the largest numbers of an action."""
    if isinstance(space, Continuous):
        return space.low, space.high
    counts = (space.n,) if isinstance(space, Discrete) else space.nvec
    return (0,) * len(counts), tuple(n - 1 for n in counts)


def _as_array(answer: Any) -> Any:
    """A list of numbers as an array, whose type and shape say more; anything else as it is."""
    if not isinstance(answer, list | tuple):
        return answer
    try:
        return np.asarray(answer)
    except Exception:  # noqa: BLE001 (rows of different lengths, or objects of the user)
        return answer
