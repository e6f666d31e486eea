"""Gymnasium environments: observations of any space but images become a flat row, actions become those of a policy.

`VectorEnvironment` steps several copies together, one episode in each. `stepping.CheckedEnv` is a single copy.
"""

import copy
import importlib.util
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from understudy.core.errors import NeedsError, RenderError, SettingError, SpecError
from understudy.core.spaces import actions_of, observation_parts
from understudy.core.text import quoted
from understudy.core.types import LARGEST_BOUND, ActionSpace, Continuous, Spec
from understudy.envs.making import EXTRAS, Env, Maker, time_limit
from understudy.envs.naming import NamedEnv, check_horizon
from understudy.envs.output import redirected
from understudy.envs.pendulum import swing_up_cost
from understudy.envs.stepping import FAILURES, NO_RUN, CheckedEnv, Report, no_report, reason
from understudy.game.costs import Cost

COSTS: dict[str, Cost] = {"Pendulum-v1": swing_up_cost}
"""Costs of known environments."""


class VectorStep(NamedTuple):
    """One step of a batch of environments."""

    obs: np.ndarray
    reward: np.ndarray
    terminal: np.ndarray
    truncated: np.ndarray
    success: np.ndarray
    """1 or 0 where the environment says whether the task is solved, else NaN."""


class GymnasiumEnvironment:
    """A Gymnasium environment. `vector(n)` runs n copies, which `maker` makes. `understudy.make` makes it.

    An environment whose actions have no bounds has no `spec` until `with_action_bounds` sets them, and one without a
    time limit has none until `with_horizon` does.
    """

    def __init__(self, maker: Maker, one: Any, horizon: int | None = None):
        """`one` is a copy, whose spaces are read; it is closed."""
        self.name, self.maker = maker.name, maker
        try:
            self._spaces = _Spaces(self.name, one)
            limit = time_limit(one)
        finally:
            if isinstance(one, gymnasium.Env):
                with suppress(*FAILURES):
                    one.close()
        check_horizon(horizon)
        self.quiet = maker.quiet or "pybullet" in type(one.unwrapped).__module__
        """Whether its output is dropped. See `envs.output`."""
        self.horizon = limit if horizon is None else int(horizon)
        """The most steps of an episode; None: not known."""
        self._stated = horizon
        self._action = self._spaces.action
        self._spec: Spec | None = None

    @property
    def spec(self) -> Spec:
        """Observations, actions and horizon. Raises SpecError if bounds or horizon are not known."""
        if self._spec is not None:
            return self._spec
        if self._action is None:
            raise SpecError(
                f"{self.name} has actions without bounds, {self._spaces.words}: pass demonstrations, which have some, "
                "or understudy.make(env).with_action_bounds(understudy.Continuous(low, high))"
            )
        parts = self._spaces.parts
        self._spec = Spec(self._spaces.obs_shape, self._action, self.checked_horizon(), obs_parts=parts)
        return self._spec

    @property
    def bounded(self) -> bool:
        """Whether the bounds of its actions are known."""
        return self._action is not None

    @property
    def has_own_bounds(self) -> bool:
        """Whether the bounds of its actions are those of its action space."""
        return self._spaces.action is not None

    @property
    def action_size(self) -> int:
        """Numbers of a continuous action, or the number of discrete ones."""
        return self._spaces.action_size

    @property
    def named(self) -> NamedEnv | None:
        """The name from which `make` makes the same environment; None: there is none."""
        found = self.maker.named
        return None if found is None else NamedEnv(found.name, found.args, found.wrap, self._stated)

    def checked_horizon(self) -> int:
        """The horizon. Raises SettingError if it is not known."""
        if self.horizon is None:
            raise SettingError(
                f"{self.name} has no time limit: pass understudy.make(env, horizon=N), or --horizon N in the shell, "
                "the most steps of an episode"
            )
        return self.horizon

    def with_horizon(self, horizon: int) -> "GymnasiumEnvironment":
        """The same environment, whose episodes are truncated after `horizon` steps."""
        check_horizon(horizon)
        changed = copy.copy(self)
        changed._spec = None
        changed.horizon = changed._stated = int(horizon)
        return changed

    def with_action_bounds(self, bounds: ActionSpace) -> "GymnasiumEnvironment":
        """The same environment, whose actions lie within `bounds` and within those bounds that it has itself."""
        changed = copy.copy(self)
        changed._spec = None
        changed._action = self._spaces.within(self.name, bounds)
        return changed

    def without_bounds(self) -> "GymnasiumEnvironment":
        """The same environment for actions that nothing clips, such as an expert's; unchanged if it has bounds."""
        if self.bounded:
            return self
        most = (LARGEST_BOUND,) * self.action_size
        return self.with_action_bounds(Continuous(tuple(-x for x in most), most))

    def cost(self) -> Cost:
        """The cost c(s, a) as a function of observation and action, if one is known."""
        if self.name not in COSTS:
            raise NeedsError(
                f"{self.name} has no cost of its own: pass cost=, a function of (obs, act), or --cost module:function"
            )
        return COSTS[self.name]

    def vector(self, count: int, run: int = NO_RUN, report: Report = no_report) -> "VectorEnvironment":
        """`count` copies that step together. `run` is the seed of the run that they belong to, for errors."""
        with redirected(self.quiet):
            return VectorEnvironment(self.copies(count, run, report), self.quiet)

    def copies(self, count: int, run: int = NO_RUN, report: Report = no_report) -> list[CheckedEnv]:
        """`count` single environments. If one cannot be made, the others are closed."""
        made: list[CheckedEnv] = []
        try:
            for _ in range(count):
                made.append(self.copy(run, report))
        except BaseException:
            for one in made:
                one.close()
            raise
        return made

    def copy(self, run: int = NO_RUN, report: Report = no_report) -> CheckedEnv:
        """A single environment whose mistakes are named."""
        return CheckedEnv(self.name, self.make_env, run, report)

    def check_settable(self) -> None:
        """Raise NeedsError unless it can be set to the state of an observation."""
        with redirected(self.quiet):
            one = self.copy()
            try:
                one.check_settable()
            finally:
                one.close()

    def make_env(self) -> Env:
        """A single environment. If made by Gymnasium, it has no `PassiveEnvChecker`, which is slow."""
        env: Env = self.maker(disable_env_checker=True) if self.maker.by_gymnasium else self.maker()
        found, before = _Spaces(self.name, env), self._spaces
        if found.key != before.key:
            raise SpecError(
                f"{self.name} has the spaces {before.key}, and {found.key} when it is made again: all copies must have "
                "the same ones"
            )
        return env

    def renderable(self, report: Report = no_report) -> tuple[CheckedEnv, float]:
        """A copy whose `render()` returns pictures, and its frames per second. Raises RenderError if there is none."""
        with redirected(self.quiet):
            copy = CheckedEnv(self.name, self._make_renderable, NO_RUN, report)
        return copy, copy.frames_per_second

    def _make_renderable(self) -> Env:
        try:
            env: Env = self.maker(render_mode="rgb_array") if self.maker.by_gymnasium else self.maker()
        except (TypeError, gymnasium.error.Error) as error:
            raise RenderError(f"{self.name} cannot be made with render_mode='rgb_array': {reason(error)}") from error
        if env.render_mode != "rgb_array":
            env.close()
            raise RenderError(
                f"{self.name} has the render mode {quoted(env.render_mode)}: make it with render_mode='rgb_array'"
            )
        return env

    def __repr__(self) -> str:
        return f"GymnasiumEnvironment({self.name!r})"


class _Spaces:
    """The spaces of an environment, as a policy sees them."""

    def __init__(self, name: str, env: Any):
        if not isinstance(env, gymnasium.Env):
            raise SpecError(f"{name} returns a {type(env).__name__}: it must return a gymnasium.Env")
        size, self.parts = observation_parts(env.observation_space, name)
        self.obs_shape = (size,)
        actions = actions_of(env.action_space, name)
        self.action, self.action_size = actions.space, actions.size
        self.action_space = env.action_space

    @property
    def words(self) -> str:
        """The action space, for errors."""
        return quoted(self.action_space)

    @property
    def key(self) -> tuple[Any, ...]:
        """What all copies have in common."""
        shown = self.words if self.action is None else self.action
        return (self.obs_shape, shown, self.parts) if self.parts else (self.obs_shape, shown)

    def within(self, name: str, bounds: ActionSpace) -> Continuous:
        """Bounds that are also within those of the space."""
        space = self.action_space
        if not isinstance(bounds, Continuous) or not isinstance(space, Box) or len(bounds.low) != self.action_size:
            raise SpecError(f"{name} has the action space {self.words}: its bounds cannot be {bounds}")
        low = np.maximum(bounds.low, space.low.reshape(-1))
        high = np.minimum(bounds.high, space.high.reshape(-1))
        return Continuous(tuple(low.tolist()), tuple(high.tolist()))


class VectorEnvironment:
    """Copies of a Gymnasium environment that step together, for one episode each."""

    def __init__(self, copies: Sequence[CheckedEnv], quiet: bool = False):
        self._copies, self._quiet = copies, quiet
        self._obs = np.zeros(0, np.float32)

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Start an episode in each copy, with one seed per copy."""
        with redirected(self._quiet):
            self._obs = np.stack([copy.reset(seed) for copy, seed in zip(self._copies, seeds, strict=True)])
        return self._obs

    def step(self, actions: np.ndarray, alive: np.ndarray) -> VectorStep:
        """Step the copies whose episode is alive. The others keep their last observation and get no reward."""
        count, actions = len(self._copies), actions.astype(self._copies[0].action_kind)
        no, unknown = np.zeros(count, bool), np.full(count, np.nan, np.float32)
        new = VectorStep(self._obs.copy(), np.zeros(count, np.float32), no, no.copy(), unknown)
        with redirected(self._quiet):
            for i in np.flatnonzero(alive).tolist():
                new.obs[i], new.reward[i], new.terminal[i], new.truncated[i], success = self._copies[i].step(actions[i])
                new.success[i] = np.nan if success is None else success
        self._obs = new.obs
        return new

    def close(self) -> None:
        with redirected(self._quiet):
            for copy in self._copies:
                copy.close()


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
