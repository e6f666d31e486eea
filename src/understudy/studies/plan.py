"""What a study is: these algorithms, these tasks, these numbers of demonstrations, these seeds.

    Study       tasks × algorithms under one protocol
    Task        an environment, its demonstrations, how many of them to learn from, who is asked
    Entry       an algorithm: its preset, the hyperparameters that differ from it, and what curves are called
    Protocol    seeds, how long to train, when and how long to play
    Hardware    what a group asks of Ray

Each checks itself, field by field: `checks` names its fields, and a study file's keys are the same.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from understudy.algorithms import find
from understudy.core.errors import SettingError, check_not_negative, check_whole, unknown
from understudy.data import Demonstrations
from understudy.game import DEFAULT, Algorithm
from understudy.studies.settings import overrides
from understudy.train.imitate import as_seeds
from understudy.train.results import hyperparameters

if TYPE_CHECKING:
    from understudy.studies.groups import Group

BUNDLED = "bundled"
Check = Callable[[str, Any], Any]
"""From a field's name and value to the value as it is kept; raises SettingError."""


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SettingError(f"{name} is {value!r}: a text is needed")
    return value


def _counts(name: str, value: Any) -> tuple[int, ...]:
    counts = tuple(value) if isinstance(value, list | tuple) else (value,)
    for count in counts:
        check_whole(1, **{name: count})
    if len(set(counts)) < len(counts):
        raise SettingError(f"{name} is {list(counts)}: each number can be given once")
    return counts


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise SettingError(f"{name} is {value!r}: a list of names is needed")
    return tuple(_text(name, item) for item in value)


def _settings(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingError(f"{name} is {value!r}: a table of hyperparameters is needed, such as {{ rounds = 200 }}")
    return dict(value)


def _seeds(name: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, bool | str) or (isinstance(value, list | tuple) and any(isinstance(x, bool) for x in value)):
        raise SettingError(f"{name} is {value!r}: a whole number, or a list of them, is needed")
    return tuple(as_seeds(value))


def _whole(least: int) -> Check:
    def check(name: str, value: Any) -> int:
        check_whole(least, **{name: value})
        return int(value)

    return check


def _amount(name: str, value: Any) -> float:
    check_not_negative(**{name: value})
    return float(value)


def _holdout(name: str, value: Any) -> float:
    if _amount(name, value) > 0.5:
        raise SettingError(f"{name} is {value!r}: choose a fraction from 0 to 0.5")
    return float(value)


def _staleness(name: str, value: Any) -> int:
    if isinstance(value, bool) or value not in (0, 1):
        raise SettingError(f"{name} is {value!r}: choose 0 or 1")
    return int(value)


class _Checked:
    """Abstract: a frozen record whose fields are checked when it is made; None is left where it is the default."""

    checks: ClassVar[dict[str, Check]]

    def _check(self) -> None:
        for name, check in self.checks.items():
            value = getattr(self, name)
            if value is not None or getattr(type(self), name, ...) is not None:
                object.__setattr__(self, name, check(name, value))


@dataclass(frozen=True)
class Task(_Checked):
    """An environment, by its name, and what is shown of it."""

    checks: ClassVar[dict[str, Check]] = {"env": _text, "demos": _text, "trajectories": _counts, "expert": _text}

    env: str
    demos: str = BUNDLED
    """Those that come with the package, or an npz file."""
    trajectories: tuple[int, ...] = ()
    """How many demonstrated episodes to learn from: a run for each. Empty: all there are."""
    expert: str | None = None
    """Who is asked, by algorithms that ask: bundled, scripted, an npz of weights, a run's directory."""

    def __post_init__(self) -> None:
        self._check()


@dataclass(frozen=True)
class Entry(_Checked):
    """An algorithm of a study."""

    checks: ClassVar[dict[str, Check]] = {
        "name": _text,
        "preset": _text,
        "settings": _settings,
        "trajectories": _counts,
        "tasks": _names,
        "label": _text,
    }

    name: str
    preset: str = DEFAULT
    settings: dict[str, Any] = field(default_factory=dict)
    """Hyperparameters that differ from the preset's; of players, by a table: {"sac": {"lr": 1e-3}}."""
    trajectories: tuple[int, ...] = ()
    """Instead of the task's."""
    tasks: tuple[str, ...] = ()
    """Environments by name. Empty: all tasks."""
    label: str | None = None
    """What its curves are called. None: by name, preset and settings."""

    def __post_init__(self) -> None:
        self._check()
        self.algorithm()
        if self.label is None:
            preset = "" if self.preset == DEFAULT else f" ({self.preset})"
            object.__setattr__(self, "label", ", ".join([f"{self.name}{preset}", *_shown(self.plain_settings())]))

    def algorithm(self, **changes: Any) -> Algorithm:
        """The algorithm with its settings, and with changes of fields."""
        return find(self.name).preset(self.preset, **{**overrides(self.name, self.preset, self.settings), **changes})

    def plain_settings(self) -> dict[str, Any]:
        """The settings as JSON takes them."""

        def part(given: Any, value: Any) -> Any:
            return {name: part(given[name], value[name]) for name in given} if isinstance(given, Mapping) else value

        found: dict[str, Any] = part(self.settings, hyperparameters(self.algorithm()))
        return found


@dataclass(frozen=True)
class Protocol(_Checked):
    """How runs are made and measured."""

    checks: ClassVar[dict[str, Check]] = {
        "seeds": _seeds,
        "episodes": _whole(1),
        "steps": _whole(1),
        "every": _whole(1),
        "rounds_every": _whole(1),
        "holdout": _holdout,
        "staleness": _staleness,
    }

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """A list of them, or how many, from 0."""
    episodes: int = 10
    """Played by each policy in an evaluation."""
    steps: int | None = None
    """Environment steps of a run, for algorithms that learn while they play. None: as many as their rounds have."""
    every: int | None = None
    """Environment steps between evaluations. None: only the policy handed over plays."""
    rounds_every: int | None = None
    """Rounds between evaluations, for algorithms that collect by rounds. None: as above."""
    holdout: float | None = None
    """The share of steps kept aside for selection. None: as `imitate` does."""
    staleness: int = 0
    """For algorithms that have it; with PPO it stays 0."""

    def __post_init__(self) -> None:
        self._check()
        if self.steps is not None and self.every is not None and self.every > self.steps:
            raise SettingError(f"every is {self.every}, more than the {self.steps} steps of a run: choose less")


@dataclass(frozen=True)
class Hardware(_Checked):
    """What a group of runs asks of Ray, and how many processes step its Gymnasium environments."""

    checks: ClassVar[dict[str, Check]] = {"gpus": _amount, "cpus": _whole(1)}

    gpus: float = 0.0
    cpus: int = 1

    def __post_init__(self) -> None:
        self._check()


@dataclass(frozen=True)
class Study(_Checked):
    """Every algorithm on every task that it names, by one protocol."""

    checks: ClassVar[dict[str, Check]] = {"name": _text, "title": _text}

    name: str
    title: str | None = None
    """None: the name."""
    tasks: tuple[Task, ...] = ()
    algorithms: tuple[Entry, ...] = ()
    protocol: Protocol = Protocol()
    hardware: Hardware = Hardware()
    text: str = field(default="", compare=False, repr=False)
    """The file that it was read from."""

    def __post_init__(self) -> None:
        self._check()
        if self.title is None:
            object.__setattr__(self, "title", self.name)
        for name in ("tasks", "algorithms"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            if not getattr(self, name):
                raise SettingError(f"study '{self.name}' has no {name}: at least one is needed")
        envs = [task.env for task in self.tasks]
        for env in envs:
            if envs.count(env) > 1:
                raise SettingError(f"env '{env}' is there twice: one task with all its trajectories is needed")
        for entry in self.algorithms:
            for env in entry.tasks:
                if env not in envs:
                    raise unknown("task", env, envs, place=f"tasks of {entry.label}")
        seen: dict[tuple[str, str], Entry] = {}
        for entry in self.algorithms:
            for task in self.tasks_of(entry):
                if seen.setdefault((str(entry.label), task.env), entry) is not entry:
                    raise SettingError(f"two algorithms are called '{entry.label}' on {task.env}: give one a label")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Study":
        """A study from a TOML file; errors name the file and the line."""
        from understudy.studies.reading import read

        return read(path)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Study":
        """A study from what `plain` made of it."""
        return cls(
            **{
                **plain,
                "tasks": tuple(Task(**task) for task in plain["tasks"]),
                "algorithms": tuple(Entry(**entry) for entry in plain["algorithms"]),
                "protocol": Protocol(**plain["protocol"]),
                "hardware": Hardware(**plain["hardware"]),
            }
        )

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)

    def tasks_of(self, entry: Entry) -> tuple[Task, ...]:
        """The tasks that an algorithm does."""
        return tuple(task for task in self.tasks if not entry.tasks or task.env in entry.tasks)

    def groups(self, demonstrations: Mapping[str, Demonstrations] | None = None) -> "list[Group]":
        """Its cells, by what can be one program; `demonstrations` by environment, where they are loaded already."""
        from understudy.studies.groups import groups

        return groups(self, demonstrations)


def _shown(settings: Mapping[str, Any], above: str = "") -> list[str]:
    """name=value of each setting, those of players by dots."""
    words = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and "class" not in value:
            words += _shown(value, f"{above}{name}.")
        else:
            words.append(f"{above}{name}={tuple(value) if isinstance(value, list) else value}")
    return words
