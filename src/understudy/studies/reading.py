"""Reading a study from its TOML file, or from study.json. Errors name the file, the table and the key.

A study file may come from a stranger. It may name code (`module:Class`) only if the person has allowed the module
(`core.imports`), which is checked before anything is made.
"""

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from understudy.core.errors import SettingError, UnderstudyError, unknown
from understudy.core.imports import check_import
from understudy.core.reader import FileReader
from understudy.core.text import quoted
from understudy.envs.naming import check_code
from understudy.experts.bundled import bundled_experts
from understudy.studies.plan import BUNDLED, Entry, Hardware, Protocol, Study, Task

TABLES = {"protocol": Protocol, "hardware": Hardware}
LISTS = {"task": Task, "algorithm": Entry}
KEYS = (*Study.checks, *TABLES, *LISTS)
STORED_KEYS = (*Study.checks, *TABLES, "tasks", "algorithms", "text")
"""The keys of `Study.to_dict`."""
LONGEST, DEEPEST, LARGEST = 1_000_000, 8, 2**63
"""Bytes of a study file, levels of its tables and lists, and the size of its whole numbers."""
LONGEST_ERROR = 600


def read(path: str | os.PathLike[str]) -> Study:
    """Read the study in a TOML file."""
    path = Path(path)
    reader = FileReader(path, "a study file", "write it as docs/studies.md shows", SettingError)
    text, place = reader.text(LONGEST), quoted(path.name)
    with _prefix_errors(place):
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise SettingError(f"not a TOML file in UTF-8: {error}") from error
        _check_values(content)
        _check_keys(content, KEYS, "a study")
        tasks = [_resolve_paths(table, path.absolute().parent) for table in _tables(content, "task")]
        entries = _tables(content, "algorithm")
    _check_imports(tasks, entries, path)
    with _prefix_errors(place):
        values = {"name": path.stem} | {key: content[key] for key in Study.checks if key in content}
        for key, cls in TABLES.items():
            if key in content:
                values[key] = _make(cls, content[key], f"[{key}]")
        values["tasks"] = _make_list(Task, tasks, "[[task]]")
        swept = [_make(Entry, table, f"[[algorithm]] {number}", Entry.sweep) for number, table in enumerate(entries, 1)]
        values["algorithms"] = [entry for sweep in swept for entry in sweep]
        return Study(**values, text=text)


def from_dict(values: Mapping[str, Any], file: Path | None = None) -> Study:
    """The inverse of `Study.to_dict`. `file` is the file that holds the values, which may come from a stranger."""
    place = "the study" if file is None else f"'{quoted(file)}'"
    with _prefix_errors(place):
        if file is not None:
            _check_values({name: value for name, value in values.items() if name != "text"})
        _check_keys(values, STORED_KEYS, "a study")
        missing = [key for key in STORED_KEYS if key not in values]
        if missing:
            raise SettingError(f"{missing[0]} is missing: run the study again")
        tasks, entries = (_listed(values, key) for key in ("tasks", "algorithms"))
    if file is not None:
        _check_imports(tasks, entries, file)
    with _prefix_errors(place):
        tables = {key: _make(cls, values[key], key) for key, cls in TABLES.items()}
        text = values["text"] if isinstance(values["text"], str) else ""
        made: dict[str, Any] = {
            "tasks": _make_list(Task, tasks, "task"),
            "algorithms": _make_list(Entry, entries, "algorithm"),
        }
        return Study(**{key: values[key] for key in Study.checks}, **tables, **made, text=text)


@contextmanager
def _prefix_errors(where: str) -> Iterator[None]:
    """Prepend the place in the file to the message of an error, which is one printable line."""
    try:
        yield
    except UnderstudyError as error:
        raise type(error)(quoted(f"{where}: {error}", LONGEST_ERROR)) from error


def _check_values(value: Any, depth: int = 0) -> None:
    """Raise if values are nested too deep, or a whole number is too large to print or to compute with."""
    if depth > DEEPEST:
        raise SettingError(f"tables or lists are nested more than {DEEPEST} deep")
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise SettingError("a whole number is 2**63 or larger: choose a smaller one")
    inner: Iterable[Any] = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for one in inner:
        _check_values(one, depth + 1)


def _check_imports(tasks: Iterable[Any], entries: Iterable[Any], file: Path) -> None:
    """Raise if the file names code whose module the person has not allowed."""
    for task in tasks:
        if isinstance(task, Mapping):
            env, expert, wrap = task.get("env"), task.get("expert"), task.get("wrap", ())
            names = [name for name in wrap if isinstance(name, str)] if isinstance(wrap, list | tuple) else []
            check_code(env if isinstance(env, str) else "", names, file)
            if isinstance(expert, str) and not os.path.isabs(expert):  # a file
                check_import(expert, file)
    for entry in entries:
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
            check_import(entry["name"], file)


def _make(cls: type[Any], table: Any, where: str, make: Callable[..., Any] | None = None) -> Any:
    """`make(**table)`, by default `cls(**table)`, after checking the table's keys."""
    with _prefix_errors(where):
        if not isinstance(table, Mapping):
            raise SettingError(f"{table!r} is not a table: write {where} above its keys")
        _check_keys(table, cls.checks, where)
        for one in fields(cls):
            if one.default is MISSING and one.default_factory is MISSING and one.name not in table:
                raise SettingError(f"{one.name} is missing: add {one.name} = ...")
        return (make or cls)(**table)


def _make_list(cls: type[Any], tables: list[Any], key: str) -> list[Any]:
    return [_make(cls, table, f"{key} {number}") for number, table in enumerate(tables, 1)]


def _tables(content: Mapping[str, Any], key: str) -> list[Any]:
    tables = content.get(key, [])
    if not isinstance(tables, list):
        raise SettingError(f"{key} is a single table: write [[{key}]] in place of [{key}]")
    if not tables:
        raise SettingError(f"no [[{key}]]: a study needs at least one")
    return tables


def _listed(values: Mapping[str, Any], key: str) -> list[Any]:
    if not isinstance(values[key], list | tuple):
        raise SettingError(f"{key} is {values[key]!r}: a list is needed")
    return list(values[key])


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
    if isinstance(expert, str) and expert and (os.path.exists(folder / expert) or not _is_expert_name(expert)):
        resolved["expert"] = str(folder / expert)
    return resolved


def _is_expert_name(expert: str) -> bool:
    """Whether an expert is a keyword, a task's name or module:function, and not a file."""
    return expert in (BUNDLED, "scripted", *bundled_experts()) or ":" in expert
