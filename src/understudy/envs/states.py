"""Setting a Gymnasium environment to the state of a demonstrated observation.

    environment                                  the state is
    one with a method `set_state(obs)`           what that method sets; a wrapper may have it
    MuJoCo: observation = (qpos, qvel)           qpos and qvel; positions that the observation leaves out are 0
    CartPole, Pendulum, MountainCar, Acrobot     `env.unwrapped.state`, which follows from the observation

The left-out positions of MuJoCo's tasks are the x or (x, y) of a body that moves on a plane, on which neither dynamics
nor observations depend. Hopper and Walker2d clip observed velocities to ± 10, so larger ones become 10.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers

from understudy.core.errors import NeedsError, SpecError

Setter = Callable[[np.ndarray], Any]
"""Sets an environment to the state of an observation, and returns the observation of now (None: unknown)."""
TRANSPARENT = (
    gymnasium.ActionWrapper,
    gymnasium.RewardWrapper,
    wrappers.Autoreset,
    wrappers.NormalizeReward,
    wrappers.OrderEnforcing,
    wrappers.PassiveEnvChecker,
    wrappers.RecordEpisodeStatistics,
    wrappers.TimeLimit,
)
"""Wrappers that leave observations as they are."""
MUJOCO, CLASSIC = "gymnasium.envs.mujoco.", "gymnasium.envs.classic_control."
"""Modules of Gymnasium's environments."""
MOST_HIDDEN = 2
"""Positions that an observation of MuJoCo may leave out: x and y."""
TOLERANCE = 1e-4
"""The allowed difference between the demonstrated observation and that of the state, relative from 1 on."""


def state_setter(env: gymnasium.Env[Any, Any], name: str) -> Setter:
    """How `env` is set to the state of an observation. Raises NeedsError if it cannot be."""
    layer: Any = env
    while not _own_method(layer) and isinstance(layer, gymnasium.Wrapper):
        if not isinstance(layer, TRANSPARENT):
            raise NeedsError(
                f"{name} cannot be set to a state: its wrapper {type(layer).__name__} may change observations; give "
                "the wrapper a method set_state(obs), or leave out start_share"
            )
        layer = layer.env
    if _own_method(layer):
        setter: Setter = layer.set_state
        return setter
    classes = {f"{one.__module__}.{one.__name__}" for one in type(layer).__mro__}
    if any(one.startswith(MUJOCO) for one in classes):
        return _mujoco(layer, name)
    for class_name, (module, state_of, observe) in _CLASSIC.items():
        if f"{CLASSIC}{module}.{class_name}" in classes:
            return _classic(layer, state_of, observe)
    raise NeedsError(
        f"{name} cannot be set to a state: give it, or a wrapper of it (wrap=, in the shell --wrap module:Class), a "
        "method set_state(obs) that returns the observation of now, or leave out start_share"
    )


def differs(wanted: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Which numbers of an observation are not those of the demonstrated one. NaN is not."""
    close: np.ndarray = np.abs(seen - wanted) <= TOLERANCE * np.maximum(np.abs(wanted), 1)
    return ~close


def check_reached(name: str, wanted: np.ndarray, seen: np.ndarray, place: str) -> None:
    """Raise SpecError unless the observation of a set state is the demonstrated one."""
    wrong = differs(wanted, seen)
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        raise SpecError(
            f"{name} was set to the state of a demonstrated observation{place}, and is observed at {seen[index]:.6g} "
            f"in its number {index}, not {wanted[index]:.6g}: its set_state must lead to the observation, or these are "
            "demonstrations of another environment"
        )


def _own_method(layer: Any) -> bool:
    """Whether a wrapper or an environment has `set_state(obs)`. That of Gymnasium's MuJoCo takes qpos and qvel."""
    method = getattr(type(layer), "set_state", None)
    return callable(method) and not str(getattr(method, "__module__", "")).startswith(MUJOCO)


def _mujoco(env: Any, name: str) -> Setter:
    positions, velocities = env.model.nq, env.model.nv
    size = int(np.prod(env.observation_space.shape))
    hidden = positions + velocities - size
    if not 0 <= hidden <= MOST_HIDDEN:
        contacts = [one[1:] for one in vars(env) if one.startswith("_include_") and getattr(env, one)]
        shorter = f"make it with {', '.join(f'{one}=False' for one in contacts)}" if contacts else "wrap it in a class"
        raise NeedsError(
            f"{name} cannot be set to a state: its observation has {size} numbers, and positions and velocities have "
            f"{positions + velocities}; {shorter}, or leave out start_share"
        )

    def set_state(obs: np.ndarray) -> Any:
        numbers = np.concatenate([np.zeros(hidden), obs.astype(np.float64)])
        env.set_state(numbers[:positions], numbers[positions:])
        return env._get_obs()

    return set_state


def _classic(env: Any, state_of: Callable[[np.ndarray], Any], observe: Callable[[Any], Any]) -> Setter:
    def set_state(obs: np.ndarray) -> Any:
        env.state = np.asarray(state_of(obs.astype(np.float64)))
        return observe(env)

    return set_state


def _same(obs: np.ndarray) -> np.ndarray:
    return obs


def _state(env: Any) -> np.ndarray:
    return np.array(env.state, np.float32)


_CLASSIC: dict[str, tuple[str, Callable[[np.ndarray], Any], Callable[[Any], Any]]] = {
    "CartPoleEnv": ("cartpole", _same, _state),
    "MountainCarEnv": ("mountain_car", _same, _state),
    "Continuous_MountainCarEnv": ("continuous_mountain_car", _same, _state),
    "PendulumEnv": ("pendulum", lambda o: [np.arctan2(o[1], o[0]), o[2]], lambda env: env._get_obs()),
    "AcrobotEnv": (
        "acrobot",
        lambda o: [np.arctan2(o[1], o[0]), np.arctan2(o[3], o[2]), o[4], o[5]],
        lambda env: env._get_ob(),
    ),
}
"""By class: the module, the state of an observation, and the observation of an environment."""
