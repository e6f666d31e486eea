"""Turn on JAX's persistent compilation cache in ~/.cache/understudy, so that a program compiles once per machine.

`core.arrays` imports this: it runs before a module of ours uses JAX. docs/configuration.md explains the setting. The
cache's files are those of `compile_cache`, of UNDERSTUDY_CACHE_SIZE in all. This is skipped if the user has set a cache
directory (JAX_COMPILATION_CACHE_DIR or jax.config), or UNDERSTUDY_CACHE=off, or if the directory cannot be used.
"""

import os
import warnings
from pathlib import Path

import jax

from understudy.core import compile_cache
from understudy.core.errors import SettingError
from understudy.core.jax_variables import DEFAULT_CACHE_SIZE, cache_size


def _cache_folder() -> Path | None:
    """Where the compilation cache is; None if there is no place for it."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "")
        folder = (base if base.is_absolute() else Path("~/.cache").expanduser()) / "understudy"
        return folder if compile_cache.is_usable(folder) else None
    except (OSError, RuntimeError, ValueError):  # no home directory, no permission
        return None


def _enable_cache() -> None:
    if os.environ.get("UNDERSTUDY_CACHE") == "off" or jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = _cache_folder()
    if folder is None:
        return
    try:
        limit = cache_size()
    except SettingError as error:  # the command line refuses it, but an import should not fail for a cache
        warnings.warn(str(error), stacklevel=2)
        limit = DEFAULT_CACHE_SIZE
    compile_cache.install(folder, limit)
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


_enable_cache()
