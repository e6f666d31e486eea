"""The parts of a study.

    Study       tasks × algorithms under one protocol
    Task        an environment, its demonstrations, how many of them to train on, and the expert
    Entry       an algorithm: its preset, the hyperparameters that differ from it, and its label
    Protocol    seeds, length of training, when and how long to evaluate
    Hardware    resources of one group

Each class checks its own fields. `checks` maps a field to its check; a study file has the same keys.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from understudy.algorithms import find
from understudy.collect.worker import STEP_TIMEOUT
from understudy.core.errors import SettingError, check_not_negative, check_whole, unknown
from understudy.core.text import printable, quoted
from understudy.core.types import MOST_STEPS
from understudy.data import Demonstrations
from understudy.envs.naming import NamedEnv, check_args, check_wrap
from understudy.game import DEFAULT, Algorithm
from understudy.studies.settings import overrides, selected, setting_texts
from understudy.studies.sweeps import combinations
from understudy.train.imitate import as_seeds
from understudy.train.results import hyperparameters

if TYPE_CHECKING:
    from understudy.studies.groups import Group

BUNDLED = "bundled"
LONGEST_TEXT, LONGEST_NAME, LONGEST_PART = 4000, 100, 255
"""Characters of a text, bytes of the study's name, and bytes of a part of a path."""
MOST_SEEDS, MOST_CELLS = 10_000, 100_000
MOST_EPISODES, MOST_CPUS, MOST_GPUS = 1_000_000, 10_000, 10_000
"""Numbers that no machine can serve are refused when the study is read, and not after a day."""
Check = Callable[[str, Any], Any]
"""Takes a field's name and value, returns the value to store, and raises SettingError if it is not allowed."""


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SettingError(f"{name} is {value!r}: a non-empty string is needed")
    if len(value) > LONGEST_TEXT:
        raise SettingError(f"{name} has {len(value)} characters: at most {LONGEST_TEXT} are allowed")
    if printable(value) != value or "\n" in value:
        raise SettingError(f"{name} is {value!r}: it has characters that cannot be printed, remove them")
    return value


def _file_name(name: str, value: Any) -> str:
    """The study's name is that of its directory in runs/."""
    text = _text(name, value)
    if "/" in text or "\\" in text or text.startswith(".") or len(text.encode()) > LONGEST_NAME:
        raise SettingError(
            f"{name} is '{quoted(text)}': a name of at most {LONGEST_NAME} bytes without / that does not begin with a "
            "dot is needed; --out says where the study is stored"
        )
    return text


def _path(name: str, value: Any) -> str:
    """A name or a path."""
    for part in _text(name, value).split("/"):
        if len(part.encode()) > LONGEST_PART:
            raise SettingError(f"{name} is '{quoted(value)}': no part of a path may exceed {LONGEST_PART} bytes")
    return str(value)


def _counts(name: str, value: Any) -> tuple[int, ...]:
    counts = tuple(value) if isinstance(value, list | tuple) else (value,)
    if len(counts) > MOST_CELLS:
        raise SettingError(f"{name} has {len(counts)} numbers: at most {MOST_CELLS} are allowed")
    for count in counts:
        _whole(1)(name, count)
    if len(set(counts)) < len(counts):
        raise SettingError(f"{name} is {list(counts)}: give each number once")
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
        raise SettingError(f"{name} is {value!r}: a whole number or a list of whole numbers is needed")
    count = value if isinstance(value, int) else len(value) if isinstance(value, list | tuple) else 1
    if count > MOST_SEEDS:
        raise SettingError(f"{name} is {count}: at most {MOST_SEEDS} are allowed")
    return tuple(as_seeds(value))


def _whole(least: int, most: int = 10**12) -> Check:
    def check(name: str, value: Any) -> int:
        check_whole(least, **{name: value})
        if value > most:
            raise SettingError(f"{name} is {value}: at most {most} is allowed")
        return int(value)

    return check


def _amount(name: str, value: Any) -> float:
    check_not_negative(**{name: value})
    if value > MOST_GPUS:
        raise SettingError(f"{name} is {value}: at most {MOST_GPUS} is allowed")
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
    """Abstract base of the dataclasses below. `_check` checks all fields; None passes where it is the default."""

    checks: ClassVar[dict[str, Check]]

    def _check(self) -> None:
        for name, check in self.checks.items():
            value = getattr(self, name)
            if value is not None or getattr(type(self), name, ...) is not None:
                object.__setattr__(self, name, check(name, value))


@dataclass(frozen=True)
class Task(_Checked):
    """An environment with its demonstrations and expert."""

    checks: ClassVar[dict[str, Check]] = {
        "env": _path,
        "demos": _path,
        "trajectories": _counts,
        "expert": _path,
        "env_args": lambda name, value: check_args(value, name),
        "wrap": lambda name, value: check_wrap(value),
        "horizon": _whole(1, MOST_STEPS),
    }

    env: str
    """Name of the environment."""
    demos: str = BUNDLED
    """What `understudy.load` takes: a data set, or "format:path"; or "bundled" for those in the package."""
    trajectories: tuple[int, ...] = ()
    """Numbers of demonstrated episodes to train on, one run for each. Empty: one run on all of them."""
    expert: str | None = None
    """The expert that algorithms query: "bundled", "scripted", a run's directory, or a file of an expert."""
    env_args: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment."""
    wrap: tuple[str, ...] = ()
    """Wrappers of a Gymnasium environment, "module:Class", from the inside out."""
    horizon: int | None = None
    """Steps of an episode of a Gymnasium environment. None: its time limit."""

    def __post_init__(self) -> None:
        self._check()

    @property
    def named_env(self) -> NamedEnv:
        """The environment, for `make`."""
        return NamedEnv(self.env, self.env_args, self.wrap, self.horizon)

    @property
    def env_settings(self) -> dict[str, Any]:
        """Arguments, wrappers and horizon, where they are given. A cell's result depends on them."""
        given = {"env_args": self.env_args, "wrap": list(self.wrap), "horizon": self.horizon}
        return {name: value for name, value in given.items() if value}


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
    """The algorithm's name, or "module:Class" for an algorithm outside the package."""
    preset: str = DEFAULT
    settings: dict[str, Any] = field(default_factory=dict)
    """Hyperparameters that differ from the preset. A player's settings are a table: {"sac": {"lr": 1e-3}}."""
    trajectories: tuple[int, ...] = ()
    """Replaces the task's numbers of trajectories. Empty: use the task's."""
    tasks: tuple[str, ...] = ()
    """Names of the environments to run on. Empty: all tasks."""
    label: str | None = None
    """Name in the report. None: algorithm, preset and settings."""

    def __post_init__(self) -> None:
        self._check()
        self.algorithm()
        if self.label is None:
            preset = "" if self.preset == DEFAULT else f" ({self.preset})"
            label = ", ".join([f"{self.name}{preset}", *setting_texts(self.plain_settings())])
            object.__setattr__(self, "label", label)

    @classmethod
    def sweep(
        cls,
        name: str,
        preset: str = DEFAULT,
        settings: Mapping[str, Any] | None = None,
        label: str | None = None,
        **others: Any,
    ) -> "list[Entry]":
        """An entry for each combination of the settings that are lists of values (`sweeps`).

        A label gets the values of the swept settings: "BC lr=0.0001".
        """
        given = {} if settings is None else settings
        if not isinstance(given, Mapping) or not isinstance(name, str) or not isinstance(preset, str):
            return [cls(name, preset, given, label=label, **others)]  # raises
        entries = []
        for chosen, swept in combinations(find(name).preset(preset), given):
            entry = cls(name, preset, chosen, label=label, **others)
            if label is not None and swept:
                values = " ".join(setting_texts(selected(entry.plain_settings(), swept)))
                entry = replace(entry, label=f"{label} {values}")
            entries.append(entry)
        return entries

    def algorithm(self, **changes: Any) -> Algorithm:
        """The algorithm with the entry's settings; `changes` replace some fields."""
        return find(self.name).preset(self.preset, **{**overrides(self.name, self.preset, self.settings), **changes})

    def plain_settings(self) -> dict[str, Any]:
        """The settings as JSON values."""

        def select(given: Any, value: Any) -> Any:
            return {name: select(given[name], value[name]) for name in given} if isinstance(given, Mapping) else value

        settings: dict[str, Any] = select(self.settings, hyperparameters(self.algorithm()))
        return settings


@dataclass(frozen=True)
class Protocol(_Checked):
    """How runs are trained and evaluated."""

    checks: ClassVar[dict[str, Check]] = {
        "seeds": _seeds,
        "eval_episodes": _whole(1, MOST_EPISODES),
        "steps": _whole(1),
        "eval_every": _whole(1),
        "eval_every_rounds": _whole(1),
        "holdout": _holdout,
        "staleness": _staleness,
    }

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """A list of seeds, or their number: 3 means 0, 1, 2."""
    eval_episodes: int = 10
    """Episodes of one evaluation of one policy."""
    steps: int | None = None
    """Environment steps of a run, for algorithms with a schedule (reward moments). None: the algorithm's rounds."""
    eval_every: int | None = None
    """Environment steps between evaluations, for the same algorithms. None: evaluate only the final policy."""
    eval_every_rounds: int | None = None
    """Rounds between evaluations, for the other algorithms that use an environment. None: only the final policy."""
    holdout: float | None = None
    """Fraction of demonstrated steps held out for selection. None: the default of `imitate`."""
    staleness: int = 0
    """Updates by which the acting policy lags the learner, for algorithms with this setting. PPO always uses 0."""

    def __post_init__(self) -> None:
        self._check()
        if self.steps is not None and self.eval_every is not None and self.eval_every > self.steps:
            raise SettingError(f"eval_every is {self.eval_every}: choose at most the {self.steps} steps of a run")


@dataclass(frozen=True)
class Hardware(_Checked):
    """Resources of one group: GPUs and CPUs to request from Ray, and processes for Gymnasium environments."""

    checks: ClassVar[dict[str, Check]] = {"gpus": _amount, "cpus": _whole(1, MOST_CPUS), "step_timeout": _amount}

    gpus: float = 0.0
    cpus: int = 1
    step_timeout: float = STEP_TIMEOUT
    """Seconds that a step or reset of a Gymnasium environment may take; 0: no limit. No cell depends on it."""

    def __post_init__(self) -> None:
        self._check()


@dataclass(frozen=True)
class Study(_Checked):
    """Algorithms on tasks under one protocol. An algorithm runs on all tasks unless its entry names some."""

    checks: ClassVar[dict[str, Check]] = {"name": _file_name, "title": _text}

    name: str
    title: str | None = None
    """None: the name."""
    tasks: tuple[Task, ...] = ()
    algorithms: tuple[Entry, ...] = ()
    protocol: Protocol = Protocol()
    hardware: Hardware = Hardware()
    text: str = field(default="", compare=False, repr=False)
    """Contents of the study file."""

    def __post_init__(self) -> None:
        self._check()
        if self.title is None:
            object.__setattr__(self, "title", self.name)
        for name in ("tasks", "algorithms"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            if not getattr(self, name):
                raise SettingError(f"study '{self.name}' has no {name}: give at least one")
        envs = [task.env for task in self.tasks]
        for env, count in Counter(envs).items():
            if count > 1:
                raise SettingError(f"two tasks have env '{env}': write one task with all its trajectories")
        for entry in self.algorithms:
            for env in entry.tasks:
                if env not in envs:
                    raise unknown("task", env, envs, where=f"tasks of {entry.label}")
        labels: dict[tuple[str, str], Entry] = {}
        for entry in self.algorithms:
            for task in self.tasks_of(entry):
                if labels.setdefault((str(entry.label), task.env), entry) is not entry:
                    raise SettingError(f"two algorithms on {task.env} have label '{entry.label}': change one label")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Study":
        """Read a study from a TOML file. Errors name the file, the table and the key."""
        from understudy.studies.reading import read

        return read(path)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Study":
        """The inverse of `to_dict`. Errors name the table and the key."""
        from understudy.studies.reading import from_dict

        return from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """The study as JSON values."""
        return asdict(self)

    def tasks_of(self, entry: Entry) -> tuple[Task, ...]:
        """The tasks that an algorithm runs on."""
        return tuple(task for task in self.tasks if not entry.tasks or task.env in entry.tasks)

    def groups(self, demonstrations: Mapping[str, Demonstrations] | None = None) -> "list[Group]":
        """The study's cells, grouped by compiled program. `demonstrations`: by environment, if already loaded."""
        from understudy.studies.groups import plan_groups

        return plan_groups(self, demonstrations)
