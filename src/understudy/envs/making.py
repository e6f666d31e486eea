"""Makes copies of an environment from what the user gives: a name, a function, or an instance.

A `Maker` can be sent to another process if its function, wrappers and arguments can be.
"""

import copy
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from understudy.core.errors import ExtraError, SettingError, SpecError, UnderstudyError, missing_extra, unknown
from understudy.core.imports import find_own_code, load_name
from understudy.core.notices import notice
from understudy.core.text import quoted
from understudy.envs.bullet import speed_up
from understudy.envs.naming import WRAPPERS, NamedEnv, check_args, check_wrap, own_wrappers
from understudy.envs.output import redirected
from understudy.envs.stepping import FAILURES, reason

Env = gymnasium.Env[Any, Any]
Wrap = str | Callable[[Env], Env]
EXTRAS = {"bullet": "pybullet_envs_gymnasium", "box2d": "Box2D", "mujoco": "mujoco"}


class Maker:
    """Makes copies of one environment. `known` are names of other environments, for the error of an unknown one."""

    def __init__(
        self,
        source: Any,
        args: Mapping[str, Any] | None = None,
        wrap: Sequence[Wrap] = (),
        known: tuple[str, ...] = (),
    ):
        self.args, self.wrap, self._known = dict(args or {}), _wrappers(wrap), known
        self.given = source
        """The name, the function or the environment that the user gave."""
        if isinstance(source, gymnasium.Env):
            if self.args:
                raise SettingError(f"env_args is {quoted(self.args)}, and env is an environment that is made already")
            self.name = source.spec.id if source.spec is not None else type(source.unwrapped).__name__
            self._source: Any = _copier(source, self.name)
        else:
            self.name = source if isinstance(source, str) else _function_name(source)
            self._source = source
        if isinstance(source, str):
            find_own_code(source)
            self._check_name()
        self.quiet = "Bullet" in self.name
        """Whether its output is dropped: PyBullet prints a banner for each copy."""

    @property
    def by_gymnasium(self) -> bool:
        """Whether `gymnasium.make` makes it: then it takes a `render_mode`."""
        return isinstance(self._source, EnvSpec) or (isinstance(self._source, str) and self._function() is None)

    @property
    def only_copy(self) -> bool:
        """Whether it is an instance that cannot be copied."""
        return isinstance(self._source, _OnlyCopy)

    @property
    def named(self) -> NamedEnv | None:
        """The name from which another process, or a later command, makes the same environment; None: there is none."""
        if not isinstance(self.given, str):
            return None
        try:
            return NamedEnv(self.given, check_args(self.args), check_wrap(self.wrap))
        except SettingError:  # arguments or wrappers that cannot be written down
            return None

    def __call__(self, **options: Any) -> Any:
        """A copy. `options` are those of `gymnasium.make`; a function of the user does not get them."""
        made = self._made(options)
        if not isinstance(made, gymnasium.Env):
            return made  # the caller checks it
        if "Bullet" in self.name:
            made = speed_up(made)
        for wrap in self.wrap:
            made = _wrapped(made, wrap, self.name)
        return made

    def _made(self, options: dict[str, Any]) -> Any:
        if isinstance(self._source, EnvSpec):
            return gymnasium.make(self._source, **options)
        if not isinstance(self._source, str):
            return self._source(**self.args)
        name = self._source
        try:
            function = self._function()
            if function is not None:
                return function(**self.args)
            return gymnasium.make(name, **{**self.args, **options})
        except gymnasium.error.DependencyNotInstalled as error:
            extra = next((extra for extra in EXTRAS if extra in str(error).lower()), None)
            needs = f"{name} needs a package that is not installed"
            if extra:
                raise missing_extra(extra, needs) from error
            raise ExtraError(f"{needs}: {str(error).splitlines()[0]}") from error
        except (gymnasium.error.NamespaceNotFound, gymnasium.error.NameNotFound, ImportError) as error:
            module, _, attribute = name.partition(":")
            why = str(error).splitlines()[0]
            if attribute and isinstance(error, gymnasium.error.Error):
                why = f"{module} has no function '{attribute}', and registers no such environment"
            elif isinstance(error, ModuleNotFoundError):
                why += ": it is looked for in the current directory and among the installed packages"
            raise ExtraError(f"{name} cannot be made: {why}") from error
        except gymnasium.error.DeprecatedEnv as error:
            known = [*self._known, *gymnasium.registry]
            raise unknown("environment", name, known, str(error).splitlines()[0]) from error

    def _function(self) -> Callable[..., Any] | None:
        """The function or class that `module:name` names; None if the name is an id of Gymnasium."""
        module, colon, attribute = self._source.partition(":")
        if not colon or not attribute.isidentifier():
            return None
        found = getattr(importlib.import_module(module), attribute, None)
        return found if callable(found) else None

    def _check_name(self) -> None:
        name = self._source
        if "Bullet" in name:
            try:
                with redirected(quiet=True):
                    import pybullet_envs_gymnasium  # noqa: F401
            except ImportError as error:
                raise missing_extra("bullet", f"{name} needs PyBullet and Python 3.11") from error
        if name not in gymnasium.registry and ":" not in name:
            known = [*self._known, *gymnasium.registry]
            raise unknown("environment", name, known, "`understudy envs` lists them. Your own: 'module:Class'.")

    def __getstate__(self) -> dict[str, Any]:
        """With the entry of Gymnasium's registry: one that the user registered is unknown in a new process."""
        source = self._source
        entry = gymnasium.registry.get(source.rpartition(":")[2]) if isinstance(source, str) else None
        given = source if isinstance(source, str) else None
        return {**self.__dict__, "given": given, "_known": (), "entry": entry}

    def __setstate__(self, state: dict[str, Any]) -> None:
        entry = state.pop("entry")
        self.__dict__.update(state)
        if entry is not None:
            gymnasium.registry.setdefault(entry.id, entry)
        if isinstance(self._source, str):
            self._check_name()


def time_limit(env: Env) -> int | None:
    """The steps after which an environment truncates an episode; None: it has no limit."""
    one: Any = env
    limits: list[int] = []
    while isinstance(one, gymnasium.Wrapper):
        if isinstance(one, gymnasium.wrappers.TimeLimit):
            limits.append(int(one._max_episode_steps))
        one = one.env
    if not limits and env.spec is not None and env.spec.max_episode_steps is not None:
        limits.append(int(env.spec.max_episode_steps))
    return min(limits, default=None)


def _wrappers(wrap: Any) -> tuple[Wrap, ...]:
    if isinstance(wrap, str) or not isinstance(wrap, Sequence):
        raise SettingError(f"wrap is {quoted(repr(wrap))}: a list of module:Class, or of classes, is needed")
    for one in wrap:
        if isinstance(one, str):
            check_wrap((one,))
        elif not callable(one):
            raise SettingError(f"wrap has {quoted(repr(one))}: module:Class, or a class, is needed")
    find_own_code(*own_wrappers(one for one in wrap if isinstance(one, str)))
    return tuple(wrap)


def _wrapped(env: Env, wrap: Wrap, name: str) -> Env:
    function: Any = load_name(wrap, "wrapper") if isinstance(wrap, str) else wrap
    shown = wrap if isinstance(wrap, str) else _function_name(wrap)
    own = isinstance(wrap, str) and wrap.partition(":")[0] == WRAPPERS
    if not callable(function) or (own and not (isinstance(function, type) and issubclass(function, gymnasium.Wrapper))):
        raise SettingError(f"wrap has '{quoted(shown)}', no wrapper: a subclass of gymnasium.Wrapper is needed")
    try:
        wrapped: Any = function(env)
    except UnderstudyError:
        raise
    except FAILURES as error:
        raise SettingError(f"{quoted(shown)} cannot wrap {name}: {reason(error)}") from error
    if not isinstance(wrapped, gymnasium.Env):
        raise SpecError(f"{quoted(shown)} returns a {type(wrapped).__name__}: it must return a gymnasium.Env")
    return wrapped


def _function_name(source: Any) -> str:
    return str(getattr(getattr(source, "func", source), "__name__", "environment"))


def _copier(env: Env, name: str) -> Any:
    """How copies of an instance are made: from its spec, by deepcopy, or not at all."""
    if env.spec is not None and _remakes(env.spec, env):
        return env.spec
    try:
        copy.deepcopy(env).close()
        return _Copies(env)
    except FAILURES as error:
        notice(
            f"{name} cannot be copied ({reason(error)}): its episodes run one after the other, in this process; pass a "
            "function that makes it to run them in workers"
        )
        return _OnlyCopy(env, name)


def _remakes(spec: EnvSpec, env: Env) -> bool:
    """Whether Gymnasium can make the environment again. It does not know the arguments of every wrapper."""
    try:
        with redirected("Bullet" in spec.id):
            made = gymnasium.make(spec)
            made.close()
    except FAILURES:
        return False
    return bool(made.observation_space == env.observation_space and made.action_space == env.action_space)


class _Copies:
    """Copies of an instance, by deepcopy."""

    def __init__(self, env: Env):
        self._env = env

    def __call__(self) -> Env:
        return copy.deepcopy(self._env)


class _OnlyCopy:
    """An instance that cannot be copied. Only one episode can use it at a time, and it is never closed."""

    def __init__(self, env: Env, name: str):
        self._env, self._name, self.used = env, name, False

    def __call__(self) -> Env:
        if self.used:
            raise SpecError(
                f"{self._name} cannot be copied, and several copies are needed at once: pass a function that makes it"
            )
        self.used = True
        return _Borrowed(self._env, self)

    def __reduce__(self) -> Any:
        raise TypeError("it is an environment that cannot be copied")


class _Borrowed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The only copy, until it is closed."""

    def __init__(self, env: Env, owner: _OnlyCopy):
        super().__init__(env)
        self._owner = owner

    def close(self) -> None:
        self._owner.used = False
