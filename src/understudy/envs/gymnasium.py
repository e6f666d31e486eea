"""Gymnasium environments with flat Box observations and Box or Discrete actions.

Vector environments reset within the step that ends an episode (`AutoresetMode.SAME_STEP`). The returned observation
then belongs to the next episode, and `info["final_obs"]` holds the true next observation. `VectorEnvironment.step`
returns both, and keeps termination and truncation apart.
"""

import ctypes
import functools
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple, TextIO

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from understudy.core.errors import ExtraError, SpecError, missing_extra, unknown
from understudy.core.types import ActionSpace, Continuous, Discrete, Spec
from understudy.envs.bullet import speed_up

C_LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None
DEFAULT_HORIZON = 1000
"""The horizon of environments without a time limit."""
EXTRAS = {"bullet": "pybullet_envs_gymnasium", "box2d": "Box2D", "mujoco": "mujoco"}


class VectorStep(NamedTuple):
    """One step of a batch of environments.

    `next_obs` is the observation after this step, `obs` the one before the next step. They differ if an episode ended.
    """

    obs: np.ndarray
    next_obs: np.ndarray
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
        self.name = env if isinstance(env, str) else getattr(env, "__name__", "environment")
        self.registered = isinstance(env, str)
        """Whether `gymnasium.make(name)` makes it."""
        self._source = env
        self._make: Callable[..., gymnasium.Env[Any, Any]] = _maker(env, known) if isinstance(env, str) else env
        with quiet():
            one = self._make()
            try:
                self.spec = _spec(self.name, one, horizon)
            finally:
                if isinstance(one, gymnasium.Env):
                    one.close()

    def vector(self, count: int) -> "VectorEnvironment":
        """`count` copies that step together."""
        return VectorEnvironment(self._make, count, self.spec)

    def make_env(self) -> gymnasium.Env[Any, Any]:
        """A single environment. If made by name, it has no `PassiveEnvChecker`, which is slow."""
        return self._make(disable_env_checker=True) if self.registered else self._make()

    def make_renderable(self) -> gymnasium.Env[Any, Any] | None:
        """A single environment with `render_mode="rgb_array"`, or None if it cannot render here."""
        with quiet():
            try:
                env = self._make(render_mode="rgb_array") if self.registered else self._make()
            except (TypeError, ExtraError, ImportError, gymnasium.error.Error):
                return None
        if env.render_mode == "rgb_array":
            return env
        env.close()
        return None

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
    """Copies of a Gymnasium environment that step together."""

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], count: int, spec: Spec):
        self.spec = spec
        with quiet():
            self._env = SyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.SAME_STEP)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Start an episode in each copy, with one seed per copy."""
        with quiet():
            obs, _ = self._env.reset(seed=list(seeds))
        return _flat(obs)

    def step(self, actions: np.ndarray) -> VectorStep:
        """Step all copies. Those whose episode ends are reset."""
        space = self._env.action_space
        with quiet():  # a step may also reset an environment
            obs, reward, terminal, truncated, info = self._env.step(actions.astype(space.dtype).reshape(space.shape))
        next_obs = _flat(obs).copy()
        for index in np.flatnonzero(terminal | truncated):
            next_obs[index] = np.asarray(info["final_obs"][index], np.float32).reshape(-1)
        # If an environment reports both, its state is absorbing, so it counts as terminal only.
        return VectorStep(_flat(obs), next_obs, np.asarray(reward, np.float32), terminal, truncated & ~terminal)

    def close(self) -> None:
        with quiet():
            self._env.close()


def _flat(obs: np.ndarray) -> np.ndarray:
    return np.asarray(obs, np.float32).reshape(len(obs), -1)


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


@functools.cache
def _silence() -> TextIO:
    """/dev/null, opened once per process."""
    return open(os.devnull, "w", encoding="utf-8")
