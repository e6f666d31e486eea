"""One copy of a Gymnasium environment, whose mistakes become errors that name it, the seed of its episode and the step.

What an environment returns is checked at every step, so that a wrong number is not blamed on the policy that gets it.
Steps are counted from 1: the error of step 5 comes back from the fifth call of `step` after `reset(seed=...)`.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn, TypeVar

import gymnasium
import numpy as np

from understudy.core.errors import SpecError, UnderstudyError, WorkerError, install_command
from understudy.core.spaces import Path, actions_of, flat_observations, is_plain, leaves
from understudy.core.text import quoted
from understudy.envs.states import Setter, check_reached, state_setter

T = TypeVar("T")
OURS, MAKE, RESET, STEP, CLOSE, RENDER, PLACE = range(7)
"""Who has the word: our own code, or the environment that is made, reset, stepped, closed, drawn or set to a state."""
NO_RUN = -1
NUMERIC = "fiub"
"""Kinds of NumPy arrays that hold real numbers."""
FAILURES = (Exception, SystemExit)
"""What an environment may raise. `sys.exit` in a simulator must not end the program without a word."""
SAME = "the parts of its observation space are needed"
FRAMES_PER_SECOND = 50
"""Of environments that do not name theirs."""
LARGEST = float(np.finfo(np.float32).max)
SUCCESS = ("is_success", "success")
"""Entries of a step's info that say whether the task is solved: those of Gymnasium-Robotics and of Meta-World."""
Report = Callable[[int, int, int, int], None]
"""Called before each call of an environment with the phase, the run's seed, the episode's seed and the step."""


class StepResult(NamedTuple):
    """What a step returned, checked."""

    obs: np.ndarray
    reward: float
    terminal: bool
    truncated: bool
    success: bool | None
    """`is_success` or `success` in the info; None: neither is there."""


def no_report(phase: int, run: int, seed: int, step: int) -> None:
    """For environments that step in this process."""


def where(phase: int, run: int, seed: int, step: int) -> str:
    """The words for a place in an episode."""
    at = f"step {step} of the episode with seed {seed}"
    calls = {CLOSE: f"close() after {at}", RENDER: f"render() after {at}"}
    words = {MAKE: "its constructor", RESET: f"reset(seed={seed})", PLACE: "set_state(obs)", **calls}.get(phase, at)
    return words if run == NO_RUN else f"{words} (run of seed {run})"


def reason(error: BaseException) -> str:
    """The class and the first line of an exception."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 (an exception of a user's own class)
        lines = []
    return f"{type(error).__name__}: {quoted(lines[0], 300)}" if lines else type(error).__name__


def made(name: str, make: Callable[[], T]) -> T:
    """What `make()` returns. Errors of an environment's constructor name the environment."""
    try:
        return make()
    except UnderstudyError:
        raise
    except FAILURES as error:
        raise WorkerError(f"{name} could not be made: {reason(error)}") from error


class CheckedEnv:
    """A copy of a Gymnasium environment. `make` makes it; `run` is the seed of the run that it belongs to."""

    def __init__(self, name: str, make: Any, run: int = NO_RUN, report: Report = no_report):
        self.name, self._run, self._report = name, run, report
        # Ctrl-C comes as a KeyboardInterrupt in this process. A worker ignores it: there it is the environment's own.
        self._failures = FAILURES if report is no_report else BaseException
        self._place = (MAKE, 0, 0)
        report(MAKE, run, 0, 0)
        self._env: gymnasium.Env[Any, Any] = made(name, make)
        space, actions = self._env.observation_space, self._env.action_space
        flat = isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1
        self._shape = space.shape or ()
        self._leaves = None if flat else list(leaves(space))
        """The parts of an observation that is not a flat Box."""
        plain = is_plain(actions)
        self._decode = None if plain else actions_of(actions, name).decode
        """From a policy's actions to the environment's, if they differ."""
        self._dtype: Any = actions.dtype
        self._boxed = isinstance(actions, gymnasium.spaces.Box)
        self.action_kind = self._dtype if plain or self._boxed else np.dtype(np.int64)
        """The type of a policy's actions, as `step` takes them."""
        self._set_state: Setter | None = None
        self.frames_per_second = float(self._env.metadata.get("render_fps") or FRAMES_PER_SECOND)

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode; returns its first observation."""
        self._enter(RESET, seed, 0)
        try:
            return self._started(self._env.reset(seed=seed))
        except UnderstudyError:
            raise
        except self._failures as error:
            raise self._raised(error) from error

    def check_settable(self) -> None:
        """Raise NeedsError unless it can be set to the state of an observation."""
        self._set_state = state_setter(self._env, self.name)

    def set_state(self, obs: np.ndarray) -> np.ndarray:
        """Go to the state of a demonstrated observation, after a reset; returns the observation there."""
        if self._set_state is None:
            self.check_settable()
        self._enter(PLACE, *self._place[1:])
        try:
            returned = self._set_state(obs.copy())  # the method may keep or change it
            seen = obs if returned is None else self._observation(returned)
        except UnderstudyError:
            raise
        except self._failures as error:
            raise self._raised(error) from error
        check_reached(self.name, obs, seen, "")
        return seen

    def step(self, action: Any) -> StepResult:
        _, seed, count = self._place
        self._enter(STEP, seed, count + 1)
        if self._decode is not None:
            action = self._decode(action[None])[0].astype(self._dtype)
            action = np.asarray(action) if self._boxed else action  # a Box without axes
        try:
            return self._stepped(self._env.step(action))
        except UnderstudyError:
            raise
        except self._failures as error:
            raise self._raised(error) from error

    def render(self) -> np.ndarray:
        """A picture of the current state. A renderer may hang or fail like a step."""
        self._enter(RENDER, *self._place[1:])
        try:
            frame = self._env.render()
        except self._failures as error:
            raise self._raised(error) from error
        if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
            self._wrong(described(frame), "as a picture in", "bytes of shape (height, width, 3) are needed")
        return np.array(frame)  # a copy: some environments draw into the same array every time

    def close(self) -> None:
        """Its episodes are complete: nothing is lost by a simulator that fails here."""
        self._enter(CLOSE, *self._place[1:])
        with suppress(*FAILURES):
            self._env.close()

    def _enter(self, phase: int, seed: int, step: int) -> None:
        self._place = (phase, seed, step)
        self._report(phase, self._run, seed, step)

    def _started(self, returned: Any) -> np.ndarray:
        if not isinstance(returned, tuple) or len(returned) != 2:
            self._wrong(described(returned), "from", "reset must return (observation, info)")
        return self._observation(returned[0])

    def _stepped(self, returned: Any) -> StepResult:
        if not isinstance(returned, tuple) or len(returned) != 5:
            self._wrong(
                described(returned), "from", "step must return (observation, reward, terminated, truncated, info)"
            )
        obs, reward, terminated, truncated, info = returned
        terminal, cut = self._flag("terminated", terminated), self._flag("truncated", truncated)
        return StepResult(self._observation(obs), self._reward(reward), terminal, cut, reported_success(info))

    def _observation(self, obs: Any) -> np.ndarray:
        if self._leaves is not None:
            obs = self._flattened(obs, self._leaves)
        elif type(obs) is not np.ndarray or obs.shape != self._shape or obs.dtype.kind not in NUMERIC:
            given, obs = obs, as_numbers(obs)
            if obs is None or obs.shape != self._shape:
                self._wrong(described(given), "as its observation in", f"numbers of shape {self._shape} are needed")
        numbers: np.ndarray = obs.astype(np.float32)  # a copy: some environments return the same array every time
        if not math.isfinite(numbers.dot(numbers)) and not np.isfinite(numbers).all():
            self._not_finite(numbers[~np.isfinite(numbers)][0], "observation")
        return numbers

    def _flattened(self, obs: Any, parts: list[tuple[Path, Any]]) -> np.ndarray:
        """The parts of an observation as one row. Names the part that is missing or wrong."""
        columns = []
        for path, space in parts:
            name, value = ".".join(path), obs
            for key in path:
                try:
                    value = value[int(key)] if isinstance(value, tuple | list) else value[key]
                except (KeyError, IndexError, TypeError, ValueError):
                    self._wrong(f"{described(obs)} without '{quoted(name)}'", "as its observation in", SAME)
            numbers = as_numbers(value)
            if numbers is None or numbers.shape != (space.shape or ()):
                part = f" in its observation '{quoted(name)}'" if path else " as its observation"
                self._wrong(f"{described(value)}{part}", "in", f"numbers of shape {space.shape or ()} are needed")
            try:
                columns.append(flat_observations(space, numbers))
            except ValueError as error:
                self._wrong(f"{described(value)} in '{quoted(name)}'", "in", f"{quoted(error)} for {quoted(space)}")
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    def _reward(self, reward: Any) -> float:
        if not isinstance(reward, float | int):
            number = as_numbers(reward)
            if number is None or number.size != 1:
                self._wrong(described(reward), "as its reward in", "a number is needed")
            reward = number.item()
        if not -LARGEST <= reward <= LARGEST:
            if not math.isfinite(reward):
                self._not_finite(reward, "reward")
            self._wrong(f"{float(reward):.3g}", "as its reward in", f"numbers up to {LARGEST:.3g} can be stored")
        return float(reward)

    def _flag(self, name: str, flag: Any) -> bool:
        if not isinstance(flag, bool | np.bool_) and not (
            isinstance(flag, np.ndarray) and flag.dtype == bool and flag.size == 1
        ):
            self._wrong(described(flag), f"as `{name}` in", "a bool is needed")
        return bool(flag)

    def _where(self) -> str:
        phase, seed, step = self._place
        return where(phase, self._run, seed, step)

    def _raised(self, error: BaseException) -> WorkerError:
        if isinstance(error, gymnasium.error.DependencyNotInstalled) and "pygame" in str(error):
            return WorkerError(f"{self.name} needs pygame to be drawn: {install_command('video')}")
        return WorkerError(f"{self.name} raised {reason(error)} in {self._where()}")

    def _wrong(self, given: str, relation: str, needed: str) -> NoReturn:
        raise SpecError(f"{self.name} returned {given} {relation} {self._where()}: {needed}")

    def _not_finite(self, value: Any, what: str) -> NoReturn:
        raise SpecError(
            f"{self.name} returned {value} in its {what} in {self._where()}: numbers must be finite; one of "
            "gymnasium.wrappers can clip or replace them"
        )


def reported_success(info: Any) -> bool | None:
    """`is_success` in a step's info, or else `success`: a bool, or a number that is not 0. None: no such entry."""
    for name in SUCCESS if isinstance(info, dict) else ():
        if name in info:
            number = as_numbers(info[name])
            if number is not None and number.size == 1 and np.isfinite(number).all():
                return bool(number.item() != 0)
    return None


def as_numbers(value: Any) -> np.ndarray | None:
    """An array of real numbers, or None if the value is something else."""
    try:
        array = np.asarray(value)
    except Exception:  # noqa: BLE001 (rows of different lengths, or an object of the user)
        return None
    return array if array.dtype.kind in NUMERIC and not np.ma.is_masked(value) else None


def described(value: Any) -> str:
    """What a value is, in a few words for an error."""
    if value is None:
        return "None"
    if isinstance(value, dict):
        return f"a dict of {quoted(', '.join(map(str, value)))}"
    if isinstance(value, str):
        return f"the text '{quoted(value, 40)}'"
    if np.ma.is_masked(value):
        return "an array with masked values"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, bool | int | float | complex | np.generic):
        return f"{quoted(value, 40)} ({type(value).__name__})"
    size = f" of {len(value)} values" if isinstance(value, tuple | list) else ""
    return f"a {type(value).__name__}{size}"
