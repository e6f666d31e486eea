"""The algorithms, one file each, in the folder of their moments: `off_q`, `reward`, `on_q`.

Every module of these folders that defines a concrete `Algorithm` is found and listed under its card's name.
Other packages add algorithms through the entry point group `understudy.algorithms`, and `find` also takes
"module:Class". Imports core, policies, game and rl. Public: `ALGORITHMS`, `available`, `find`.
"""

import importlib
import inspect
import pkgutil
from importlib import metadata
from typing import Any

from understudy.core.errors import AlgorithmError, unknown
from understudy.core.imports import load_name
from understudy.game import Algorithm

FOLDERS = ("off_q", "reward", "on_q")
GROUP = "understudy.algorithms"


def _discover() -> dict[str, type[Algorithm]]:
    found: dict[str, type[Algorithm]] = {}
    for folder in FOLDERS:
        package = importlib.import_module(f"{__name__}.{folder}")
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(info.name)).values():
                if _is_algorithm(value) and value.__module__ == info.name:
                    found[value.card.name] = value
    return found


def _is_algorithm(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Algorithm) and hasattr(value, "card")


ALGORITHMS: dict[str, type[Algorithm]] = _discover()
"""The library's own algorithms, by name."""


def available() -> dict[str, type[Algorithm]]:
    """The library's algorithms and those of installed packages, by name."""
    others = {point.name: _loaded(point) for point in metadata.entry_points(group=GROUP)}
    return {**others, **ALGORITHMS}


def _loaded(point: metadata.EntryPoint) -> type[Algorithm]:
    try:
        loaded = point.load()
    except Exception as error:  # whatever the package raises as it is imported
        package = point.dist.name if point.dist is not None else point.value
        raise AlgorithmError(
            f"algorithm '{point.name}' of package '{package}' cannot be loaded ({error}): fix or uninstall it"
        ) from error
    return _checked(point.name, loaded)


def find(name: str) -> type[Algorithm]:
    """The algorithm called `name`, or the class that "module:Class" names."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" in name:
        return _checked(name, load_name(name, "algorithm"))
    known = available()
    if name not in known:
        hint = "`understudy algorithms` lists them. Your own: 'module:Class'."
        raise unknown("algorithm", name, known, hint)
    return known[name]


def _checked(name: str, value: Any) -> type[Algorithm]:
    if not _is_algorithm(value):
        raise AlgorithmError(
            f"algorithm '{name}' is {value!r}: a subclass of understudy.Algorithm with a card is needed"
        )
    return value
