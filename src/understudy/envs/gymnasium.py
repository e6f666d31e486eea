"""Gymnasium environments with flat Box observations and Box or Discrete actions.

`VectorEnvironment` steps several copies together, one episode in each. `stepping.CheckedEnv` is a single copy.
"""

import ctypes
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, NamedTuple, TextIO

import gymnasium
import numpy as np

from understudy.core.errors import ExtraError, RenderError, SpecError, missing_extra, unknown
from understudy.core.text import quoted
from understudy.core.types import ActionSpace, Continuous, Discrete, Spec
from understudy.envs.bullet import speed_up
from understudy.envs.stepping import FAILURES, NO_RUN, CheckedEnv, Report, made, no_report, reason

C_LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None
DEFAULT_HORIZON = 1000
"""The horizon of environments without a time limit."""
EXTRAS = {"bullet": "pybullet_envs_gymnasium", "box2d": "Box2D", "mujoco": "mujoco"}


class VectorStep(NamedTuple):
    """One step of a batch of environments."""

    obs: np.ndarray
    reward: np.ndarray
    terminal: np.ndarray
    truncated: np.ndarray


class GymnasiumEnvironment:
    """A Gymnasium environment, given by its name or by a function that makes it. `vector(n)` runs n copies."""

    def __init__(
        self,
        env: str | Callable[[], gymnasium.Env[Any, Any]],
        known: tuple[str, ...] = (),
        horizon: int | None = None,
    ):
        self.name = env if isinstance(env, str) else getattr(getattr(env, "func", env), "__name__", "environment")
        self.registered = isinstance(env, str)
        """Whether `gymnasium.make(name)` makes it."""
        self._source = env
        self._make: Callable[..., gymnasium.Env[Any, Any]] = _maker(env, known) if isinstance(env, str) else env
        with quiet():
            self.spec = made(self.name, lambda: self._probed(horizon))

    def vector(self, count: int, run: int = NO_RUN, report: Report = no_report) -> "VectorEnvironment":
        """`count` copies that step together. `run` is the seed of the run that they belong to, for errors."""
        with quiet():
            return VectorEnvironment([self.copy(run, report) for _ in range(count)])

    def copy(self, run: int = NO_RUN, report: Report = no_report) -> CheckedEnv:
        """A single environment whose mistakes are named."""
        return CheckedEnv(self.name, self.spec, self.make_env, run, report)

    def make_env(self) -> gymnasium.Env[Any, Any]:
        """A single environment. If made by name, it has no `PassiveEnvChecker`, which is slow."""
        env = self._make(disable_env_checker=True) if self.registered else self._make()
        found = _spec(self.name, env, self.spec.horizon)
        before = self.spec.obs_shape, self.spec.action
        if (found.obs_shape, found.action) != before:
            raise SpecError(
                f"{self.name} has the spaces {before}, and {(found.obs_shape, found.action)} when it is made again: "
                "all copies must have the same ones"
            )
        return env

    def renderable(self, report: Report = no_report) -> tuple[CheckedEnv, float]:
        """A copy whose `render()` returns pictures, and its frames per second. Raises RenderError if there is none."""
        with quiet():
            copy = CheckedEnv(self.name, self.spec, self._make_renderable, NO_RUN, report)
        return copy, copy.frames_per_second

    def _make_renderable(self) -> gymnasium.Env[Any, Any]:
        try:
            env = self._make(render_mode="rgb_array") if self.registered else self._make()
        except (TypeError, gymnasium.error.Error) as error:
            raise RenderError(f"{self.name} cannot be made with render_mode='rgb_array': {reason(error)}") from error
        if env.render_mode != "rgb_array":
            env.close()
            raise RenderError(
                f"{self.name} has the render mode {quoted(env.render_mode)}: make it with render_mode='rgb_array'"
            )
        return env

    def _probed(self, horizon: int | None) -> Spec:
        """The spec of a copy that is made for it and closed."""
        one = self._make()
        try:
            return _spec(self.name, one, horizon)
        finally:
            if isinstance(one, gymnasium.Env):
                with suppress(*FAILURES):
                    one.close()

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs to make it: the name with its entry in Gymnasium's registry, or the function."""
        entry = gymnasium.registry.get(self.name.partition(":")[2] or self.name) if self.registered else None
        return {"source": self._source, "name": self.name, "spec": self.spec, "entry": entry}

    def __setstate__(self, state: dict[str, Any]) -> None:
        source, entry = state["source"], state["entry"]
        self.name, self.spec, self.registered, self._source = (
            state["name"],
            state["spec"],
            isinstance(source, str),
            source,
        )
        if entry is not None:  # an environment that the user registered is unknown in a new process
            gymnasium.registry.setdefault(entry.id, entry)
        self._make = _maker(source, ()) if isinstance(source, str) else source

    def __repr__(self) -> str:
        return f"GymnasiumEnvironment({self.name!r})"


class VectorEnvironment:
    """Copies of a Gymnasium environment that step together, for one episode each."""

    def __init__(self, copies: Sequence[CheckedEnv]):
        self._copies = copies
        self._obs = np.zeros(0, np.float32)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Start an episode in each copy, with one seed per copy."""
        with quiet():
            self._obs = np.stack([copy.reset(seed) for copy, seed in zip(self._copies, seeds, strict=True)])
        return self._obs

    def step(self, actions: np.ndarray, alive: np.ndarray) -> VectorStep:
        """Step the copies whose episode is alive. The others keep their last observation and get no reward."""
        count, actions = len(self._copies), actions.astype(self._copies[0].action_kind)
        new = VectorStep(self._obs.copy(), np.zeros(count, np.float32), np.zeros(count, bool), np.zeros(count, bool))
        with quiet():
            for i in np.flatnonzero(alive).tolist():
                new.obs[i], new.reward[i], new.terminal[i], new.truncated[i] = self._copies[i].step(actions[i])
        self._obs = new.obs
        return new

    def close(self) -> None:
        with quiet():
            for copy in self._copies:
                copy.close()


def _spec(name: str, env: Any, horizon: int | None) -> Spec:
    if not isinstance(env, gymnasium.Env):
        raise SpecError(f"{name} returns a {type(env).__name__}: it must return a gymnasium.Env")
    obs_space, action_space = env.observation_space, env.action_space
    if not isinstance(obs_space, gymnasium.spaces.Box) or len(obs_space.shape) != 1:
        raise SpecError(
            f"{name} has the observation space {obs_space}: a flat Box is needed; wrap the environment in "
            "gymnasium.wrappers.FlattenObservation"
        )
    action: ActionSpace
    if isinstance(action_space, gymnasium.spaces.Discrete) and action_space.start == 0:
        action = Discrete(int(action_space.n))
    elif isinstance(action_space, gymnasium.spaces.Box) and len(action_space.shape) == 1 and action_space.is_bounded():
        action = Continuous(tuple(map(float, action_space.low)), tuple(map(float, action_space.high)))
    else:
        raise SpecError(
            f"{name} has the action space {action_space}: a flat Box with finite bounds, or Discrete starting at 0, "
            "is needed"
        )
    limit = env.spec.max_episode_steps if env.spec is not None else None
    return Spec(obs_space.shape, action, int(horizon or limit or DEFAULT_HORIZON))


def _maker(name: str, known: tuple[str, ...]) -> Callable[..., gymnasium.Env[Any, Any]]:
    if "Bullet" in name:
        try:
            with quiet():
                import pybullet_envs_gymnasium  # noqa: F401
        except ImportError as error:
            raise missing_extra("bullet", f"{name} needs PyBullet and Python 3.11") from error
    if name not in gymnasium.registry and ":" not in name:
        raise unknown("environment", name, [*known, *gymnasium.registry], "`understudy envs` lists them.")

    def make(**options: Any) -> gymnasium.Env[Any, Any]:
        try:
            env: gymnasium.Env[Any, Any] = gymnasium.make(name, **options)
            return speed_up(env) if "Bullet" in name else env
        except gymnasium.error.DependencyNotInstalled as error:
            extra = next((extra for extra in EXTRAS if extra in str(error).lower()), None)
            needs = f"{name} needs a package that is not installed"
            if extra:
                raise missing_extra(extra, needs) from error
            raise ExtraError(f"{needs}: {str(error).splitlines()[0]}") from error
        except (gymnasium.error.NamespaceNotFound, gymnasium.error.NameNotFound, ImportError) as error:
            raise ExtraError(f"{name} cannot be made: {str(error).splitlines()[0]}") from error
        except gymnasium.error.DeprecatedEnv as error:
            raise unknown("environment", name, [*known, *gymnasium.registry], str(error).splitlines()[0]) from error

    return make


def available() -> list[tuple[str, str]]:
    """Supported Gymnasium environments: (name, extra that is not installed). The extra is '' if nothing is missing."""
    named = {
        "": ("CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "Acrobot-v1"),
        "bullet": ("HalfCheetahBulletEnv-v0", "AntBulletEnv-v0", "HopperBulletEnv-v0", "Walker2DBulletEnv-v0"),
        "box2d": ("LunarLander-v3", "BipedalWalker-v3"),
        "mujoco": ("HalfCheetah-v5", "Ant-v5", "Hopper-v5", "Walker2d-v5"),
    }
    rows = []
    for extra, names in named.items():
        installed = not extra or importlib.util.find_spec(EXTRAS[extra]) is not None
        rows += [(name, "" if installed else extra) for name in names]
    return rows


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress everything that a simulator prints, from Python or C, and its warnings. Errors still raise."""
    if _silenced:
        yield
        return
    sink = _silence()

    def flush() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        if C_LIBRARY is not None:
            C_LIBRARY.fflush(None)  # otherwise C's own buffers are printed at exit

    flush()
    saved = [os.dup(1), os.dup(2)]
    os.dup2(sink.fileno(), 1)
    os.dup2(sink.fileno(), 2)
    try:
        # In a notebook, sys.stdout is not file descriptor 1, so redirect both.
        with warnings.catch_warnings(), redirect_stdout(sink), redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        flush()
        for descriptor, own in zip(saved, (1, 2), strict=True):
            os.dup2(descriptor, own)
            os.close(descriptor)


def silence() -> None:
    """Suppress the output of simulators for good, in a process that has no other output."""
    _silenced.append(True)
    for descriptor in (1, 2):
        os.dup2(_silence().fileno(), descriptor)
    warnings.simplefilter("ignore")


_silenced: list[bool] = []
_sinks: list[TextIO] = []


def _silence() -> TextIO:
    """/dev/null, opened once per process, and again after a simulator that closed sys.stdout."""
    if not _sinks or _sinks[-1].closed:
        _sinks.append(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as the process lives)
    return _sinks[-1]
