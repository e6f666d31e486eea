"""An environment by its name, as a person types it and as a study or a run stores it.

    CartPole-v1               an id of Gymnasium
    module:Id-v0              an id that importing the module registers
    module:function           a function, or a class, that makes the environment

Each with keyword arguments (JSON values), wrappers (`module:Class`) and a horizon.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from understudy.core.errors import SettingError, check_whole
from understudy.core.imports import check_import, find_own_code
from understudy.core.text import is_line, quoted
from understudy.core.types import MOST_STEPS

WRAPPERS = "gymnasium.wrappers"
HARMLESS = frozenset(
    f"{WRAPPERS}:{name}"
    for name in (
        "Autoreset",
        "ClipAction",
        "ClipReward",
        "FlattenObservation",
        "GrayscaleObservation",
        "MaxAndSkipObservation",
        "NormalizeObservation",
        "NormalizeReward",
        "OrderEnforcing",
        "PassiveEnvChecker",
        "RecordEpisodeStatistics",
        "TimeAwareObservation",
    )
)
"""Wrappers that a file may name without the person's consent. Others write files, open windows or import packages."""
COMPATIBLE = ("GymV21Environment-v0", "GymV26Environment-v0")
"""Ids of Gymnasium whose argument env_id names code of the old Gym."""
MOST_ARGS, LONGEST_VALUE, DEEPEST = 100, 4000, 4
"""Keyword arguments, characters of one as JSON, and levels of its lists."""


@dataclass(frozen=True)
class NamedEnv:
    """A name with the arguments, wrappers and horizon that make the environment. `make` takes it."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    wrap: tuple[str, ...] = ()
    horizon: int | None = None
    """Steps after which an episode is truncated; None: the environment's own time limit."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", check_args(self.args))
        object.__setattr__(self, "wrap", check_wrap(self.wrap))
        check_horizon(self.horizon)
        find_own_code(self.name, *own_wrappers(self.wrap))

    def to_json(self) -> dict[str, Any]:
        """As JSON values, for config.json."""
        return {"name": self.name, "args": self.args, "wrap": list(self.wrap), "horizon": self.horizon}

    @classmethod
    def from_file(cls, values: Mapping[str, Any], where: object) -> "NamedEnv":
        """From JSON values of a file, which may be a stranger's: its code needs the person's consent."""
        check_code(values["name"], values["wrap"], where)
        return cls(values["name"], values["args"], tuple(values["wrap"]), values["horizon"])

    def changed(self, args: Mapping[str, Any], wrap: tuple[str, ...], horizon: int | None) -> "NamedEnv":
        """With some arguments, the wrappers or the horizon replaced by those that are given."""
        return NamedEnv(self.name, {**self.args, **args}, wrap or self.wrap, horizon or self.horizon)


def check_code(name: str, wrap: Iterable[str], where: object) -> None:
    """Raise if a file names an environment or wrappers whose modules the person has not named."""
    check_import(f"gym:{name}" if name in COMPATIBLE else name, where)
    for one in wrap:
        if one not in HARMLESS:
            check_import(one, where)


def own_wrappers(wrap: Iterable[str]) -> list[str]:
    """The wrappers that are not Gymnasium's: those that the working directory may hold."""
    return [name for name in wrap if name.partition(":")[0] != WRAPPERS]


def check_horizon(horizon: Any) -> None:
    """Raise unless the horizon is None or a number of steps."""
    if horizon is not None:
        check_whole(1, horizon=horizon)
        if horizon > MOST_STEPS:
            raise SettingError(f"horizon is {quoted(horizon)}: at most {MOST_STEPS} steps are allowed")


def check_args(args: Any, setting: str = "env_args") -> dict[str, Any]:
    """Keyword arguments as a dict. Raises unless they are JSON values: numbers, texts, booleans, null or lists."""
    if not isinstance(args, Mapping) or len(args) > MOST_ARGS:
        raise SettingError(f"{setting} is {quoted(repr(args))}: at most {MOST_ARGS} names with their values are needed")
    for name, value in args.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise SettingError(f"{setting} has the name {quoted(repr(name))}: the name of an argument is needed")
        if not _is_plain(value) or len(json.dumps(value)) > LONGEST_VALUE:
            raise SettingError(
                f"{setting} has {name} = {quoted(repr(value))}: a number, a text, true, false, null or a list of them, "
                f"of at most {LONGEST_VALUE} characters, is needed"
            )
    return dict(args)


def check_wrap(wrap: Any) -> tuple[str, ...]:
    """Wrappers as a tuple of names. Raises unless each is module:Class."""
    if isinstance(wrap, str) or not isinstance(wrap, Iterable):
        raise SettingError(f"wrap is {quoted(repr(wrap))}: a list of module:Class is needed")
    names = tuple(wrap)
    for name in names:
        if not isinstance(name, str) or not is_line(name) or not all(name.partition(":")):
            raise SettingError(
                f"wrap has {quoted(repr(name))}: module:Class is needed, such as gymnasium.wrappers:ClipAction"
            )
    return names


def parse_args(words: Iterable[str]) -> dict[str, Any]:
    """Keyword arguments from words KEY=VALUE. A value is JSON, or else a text."""
    args: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            raise SettingError(f"--env-arg is '{quoted(word)}': KEY=VALUE is needed, such as --env-arg gravity=9.8")
        if name in args:
            raise SettingError(f"--env-arg {name} is given twice: give it once")
        try:
            args[name] = json.loads(text)
        except (ValueError, RecursionError):
            args[name] = text
    return check_args(args, "--env-arg")


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, list | tuple):
        return depth < DEEPEST and all(_is_plain(one, depth + 1) for one in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)
