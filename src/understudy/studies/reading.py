"""A study from its TOML file. What is wrong is said with the file's name, the line and the nearest name."""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from understudy.core.errors import SettingError, UnderstudyError, unknown
from understudy.experts.bundled import bundled_experts
from understudy.game import DEFAULT
from understudy.studies import toml_lines
from understudy.studies.plan import BUNDLED, Entry, Hardware, Protocol, Study, Task
from understudy.studies.settings import Names, named_by, overrides

TABLES = {"protocol": Protocol, "hardware": Hardware}
LISTS = {"task": Task, "algorithm": Entry}
KEYS = (*Study.checks, *TABLES, *LISTS)


def read(path: str | os.PathLike[str]) -> Study:
    """The study of a file."""
    return _File(Path(path)).study()


class _File:
    """A study file, and where its keys stand."""

    def __init__(self, path: Path):
        self.path = path
        if not path.is_file():
            raise SettingError(f"no study file '{path}': check the path")
        try:
            self.text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
            self.content = tomllib.loads(self.text)
        except UnicodeDecodeError as error:
            line = path.read_bytes()[: error.start].count(b"\n") + 1
            raise SettingError(f"{path.name}, line {line}: not UTF-8 text") from error
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"\(at line (\d+), column \d+\)", str(error))
            line = int(found[1]) if found else len(self.text.splitlines())
            raise SettingError(f"{path.name}, line {line}: not TOML: {error}") from error
        self.lines = toml_lines.key_lines(self.text)

    def study(self) -> Study:
        self._known(self.content, KEYS, (), "a study")
        given = {"name": self.path.stem} | {key: self.content[key] for key in Study.checks if key in self.content}
        for key in given:
            self._tried(lambda key=key: Study.checks[key](key, given[key]), key)
        parts: dict[str, Any] = {key: self._table(key, kind) for key, kind in TABLES.items() if key in self.content}
        tasks, algorithms = (
            tuple(self._one(name, index, table) for index, table in enumerate(self._list(name))) for name in LISTS
        )
        self._check_tasks(tasks, algorithms)
        made: Study = self._tried(lambda: Study(**given, tasks=tasks, algorithms=algorithms, **parts, text=self.text))
        return made

    def _table(self, key: str, kind: type[Any]) -> Any:
        table = self.content[key]
        if not isinstance(table, Mapping):
            raise SettingError(f"{self._at(key)}{key} is {table!r}: a table [{key}] is needed")
        return self._made(kind, table, (key,), f"[{key}]")

    def _list(self, key: str) -> list[Any]:
        if key not in self.content:
            raise SettingError(f"{self.path.name}: no [[{key}]]: a study needs at least one")
        tables = self.content[key]
        if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
            raise SettingError(f"{self._at(key)}{key} is not a list of tables: write [[{key}]] above each")
        return tables

    def _one(self, key: str, index: int, table: Mapping[str, Any]) -> Any:
        place = f"[[{key}]]"
        if key == "task":
            return self._made(Task, self._beside(table), (key, index), place, "env")
        self._known(table, Entry.checks, (key, index), place)
        name, preset, settings = (
            table.get(k, other) for k, other in (("name", ""), ("preset", DEFAULT), ("settings", {}))
        )
        if isinstance(settings, Mapping) and isinstance(name, str) and name and isinstance(preset, str) and preset:
            self._tried(lambda: overrides(name, DEFAULT, {}), key, index, "name")
            self._tried(lambda: overrides(name, preset, {}), key, index, "preset")
            overrides(name, preset, settings, lambda names: self._at(key, index, "settings", *names))
        return self._made(Entry, table, (key, index), place, "name")

    def _made(
        self, kind: type[Any], table: Mapping[str, Any], path: toml_lines.Path, place: str, needed: str = ""
    ) -> Any:
        """A record of a table, key by key and then as a whole."""
        self._known(table, kind.checks, path, place)
        if needed and needed not in table:
            raise SettingError(f"{self._at(*path)}{place} has no {needed}: give one")
        for key, value in table.items():
            self._tried(lambda key=key, value=value: kind.checks[key](key, value), *path, key)
        try:
            return kind(**table)
        except UnderstudyError as error:  # what does not fit together, or a hyperparameter out of its range
            settings = table.get("settings", {})
            below: Names = ("settings", *named_by(error, settings)) if settings else named_by(error, table)
            raise type(error)(f"{self._at(*path, *below)}{error}") from error

    def _known(self, table: Mapping[str, Any], known: Any, path: toml_lines.Path, place: str) -> None:
        for key in table:
            if key not in known:
                error = unknown("key", key, known, place=place)
                raise type(error)(f"{self._at(*path, key)}{error}")

    def _check_tasks(self, tasks: tuple[Task, ...], algorithms: tuple[Entry, ...]) -> None:
        """What `Study` checks across its parts, with the lines that it cannot know."""
        envs = [task.env for task in tasks]
        for index, env in enumerate(envs):
            if env in envs[:index]:
                before = self.lines["task", envs.index(env), "env"]
                raise SettingError(f"{self._at('task', index, 'env')}env '{env}' is on line {before} already")
        for index, entry in enumerate(algorithms):
            for env in entry.tasks:
                if env not in envs:
                    error = unknown("task", env, envs, place=f"tasks of {entry.label}")
                    raise type(error)(f"{self._at('algorithm', index, 'tasks')}{error}")

    def _beside(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """A task whose files are found from anywhere: in the file they are relative to it."""
        changed, folder = dict(table), self.path.absolute().parent
        demos, expert = changed.get("demos"), changed.get("expert")
        if isinstance(demos, str) and demos and demos != BUNDLED:
            changed["demos"] = str(folder / demos)
        if isinstance(expert, str) and expert and ((folder / expert).exists() or not _names_expert(expert)):
            changed["expert"] = str(folder / expert)
        return changed

    def _tried(self, make: Callable[[], Any], *path: str | int) -> Any:
        try:
            return make()
        except UnderstudyError as error:
            raise type(error)(f"{self._at(*path)}{error}") from error

    def _at(self, *path: str | int) -> str:
        """What an error begins with: the file, and the line of the key, or of the nearest one above it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return f"{self.path.name}, line {self.lines[path[:length]]}: "
        return f"{self.path.name}: "


def _names_expert(expert: str) -> bool:
    """Whether it is no file: a word, a task's name, module:function."""
    return expert in (BUNDLED, "scripted", *bundled_experts()) or ":" in expert
