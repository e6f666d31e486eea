"""Code of the user: `module:name`, as an algorithm, an expert or an environment.

Importing a module runs it. A name that the person types, or passes in Python, may be imported. A name that stands in a
file (a study, a run's directory) may come from a stranger: it is used only if the person has named its module too, with
`--import MODULE`, or in Python with `allow_import(module)`. docs/security.md explains this.
"""

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any

from understudy.core.errors import NeedsError
from understudy.core.text import quoted

_allowed: set[str] = set()


def import_from(directory: str | os.PathLike[str]) -> None:
    """Let module:name find modules in a directory, after all installed ones."""
    path = os.path.abspath(directory)
    if path not in sys.path:
        sys.path.append(path)


def find_own_code(*words: str | None) -> None:
    """Let module:name, if a word of the person names code, be found in the current directory too."""
    if any(word is not None and ":" in word for word in words):
        import_from(os.getcwd())


def allow_import(module: str) -> None:
    """Import a module that the person has named. Files may name it from now on."""
    load_module(module)
    _allowed.add(module)


def allow_imports(modules: Iterable[str]) -> None:
    """Import the modules that the person has named with `--import`; the current directory may hold them.

    Without modules the current directory is not searched: it may be a stranger's, and installed packages try to import
    others that are not installed.
    """
    for module in modules:
        import_from(os.getcwd())
        allow_import(module)


def allowed_imports() -> tuple[str, ...]:
    """The modules that the person has named, to pass on to other processes."""
    return tuple(sorted(_allowed))


def check_import(name: str | None, where: object) -> None:
    """Raise if a file names code, `module:name`, whose module the person has not named."""
    module, colon, _ = (name or "").partition(":")
    if colon and module not in _allowed:
        raise NeedsError(
            f"'{quoted(where)}' names code to run, '{quoted(name)}': if you trust it, add --import {quoted(module)} "
            f"(in Python: understudy.allow_import('{quoted(module)}'))"
        )


def load_name(name: str, what: str) -> Any:
    """The object `module:name`. `what` says what it is for, in the error."""
    module, _, attribute = name.partition(":")
    loaded = load_module(module, f"{what} '{name}'")
    try:
        return getattr(loaded, attribute)
    except AttributeError as error:
        raise NeedsError(f"{what} '{quoted(name)}' cannot be imported: {module} has no '{attribute}'") from error


def load_module(module: str, what: str = "") -> Any:
    """Import a module of the user. Whatever it raises becomes one line."""
    try:
        return importlib.import_module(module)
    except Exception as error:
        reason = quoted(f"{type(error).__name__}: {error}")
        raise NeedsError(f"{what or f'module {module!r}'} cannot be imported ({reason})") from error
