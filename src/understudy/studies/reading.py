"""Reading a study from its TOML file. Errors name the file, the table and the key."""

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from understudy.core.errors import SettingError, UnderstudyError, unknown
from understudy.experts.bundled import bundled_experts
from understudy.studies.plan import BUNDLED, Entry, Hardware, Protocol, Study, Task

TABLES = {"protocol": Protocol, "hardware": Hardware}
LISTS = {"task": Task, "algorithm": Entry}
KEYS = (*Study.checks, *TABLES, *LISTS)


def read(path: str | os.PathLike[str]) -> Study:
    """Read the study in a TOML file."""
    path = Path(path)
    if not path.is_file():
        raise SettingError(f"no study file '{path}': check the path")
    with _prefix_errors(path.name):
        try:
            text = path.read_text(encoding="utf-8")
            content = tomllib.loads(text)
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingError(f"not a TOML file in UTF-8: {error}") from error
        _check_keys(content, KEYS, "a study")
        values = {"name": path.stem} | {key: content[key] for key in Study.checks if key in content}
        for key, cls in TABLES.items():
            if key in content:
                values[key] = _make(cls, content[key], f"[{key}]")
        tasks = [_resolve_paths(table, path.absolute().parent) for table in _tables(content, "task")]
        values["tasks"] = _make_list(Task, tasks, "task")
        values["algorithms"] = _make_list(Entry, _tables(content, "algorithm"), "algorithm")
        return Study(**values, text=text)


@contextmanager
def _prefix_errors(where: str) -> Iterator[None]:
    """Prepend the place in the file to the message of an error."""
    try:
        yield
    except UnderstudyError as error:
        raise type(error)(f"{where}: {error}") from error


def _make(cls: type[Any], table: Any, where: str) -> Any:
    with _prefix_errors(where):
        if not isinstance(table, Mapping):
            raise SettingError(f"{table!r} is not a table: write {where} above its keys")
        _check_keys(table, cls.checks, where)
        for one in fields(cls):
            if one.default is MISSING and one.default_factory is MISSING and one.name not in table:
                raise SettingError(f"{one.name} is missing: add {one.name} = ...")
        return cls(**table)


def _make_list(cls: type[Any], tables: list[Any], key: str) -> list[Any]:
    return [_make(cls, table, f"[[{key}]] {number}") for number, table in enumerate(tables, 1)]


def _tables(content: Mapping[str, Any], key: str) -> list[Any]:
    tables = content.get(key, [])
    if not isinstance(tables, list):
        raise SettingError(f"{key} is a single table: write [[{key}]] in place of [{key}]")
    if not tables:
        raise SettingError(f"no [[{key}]]: a study needs at least one")
    return tables


def _check_keys(table: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    for key in table:
        if key not in known:
            raise unknown("key", key, known, where=place)


def _resolve_paths(table: Any, folder: Path) -> Any:
    """A task whose file names are absolute. In the study file they are relative to the file."""
    if not isinstance(table, Mapping):
        return table
    resolved = dict(table)
    demos, expert = resolved.get("demos"), resolved.get("expert")
    if isinstance(demos, str) and demos and demos != BUNDLED:
        resolved["demos"] = str(folder / demos)
    if isinstance(expert, str) and expert and ((folder / expert).exists() or not _is_expert_name(expert)):
        resolved["expert"] = str(folder / expert)
    return resolved


def _is_expert_name(expert: str) -> bool:
    """Whether an expert is a keyword, a task's name or module:function, and not a file."""
    return expert in (BUNDLED, "scripted", *bundled_experts()) or ":" in expert
