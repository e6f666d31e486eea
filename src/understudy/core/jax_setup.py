"""Configure JAX before it starts. The package imports this first. docs/configuration.md explains both settings.

1. Turn on the persistent compilation cache in ~/.cache/understudy, so that a program compiles once per machine. Its
   files are those of `compile_cache`, of UNDERSTUDY_CACHE_SIZE in all. This is skipped if the user has set a cache
   directory (JAX_COMPILATION_CACHE_DIR or jax.config), or UNDERSTUDY_CACHE=off, or if the directory cannot be used.
2. Turn off XLA's concurrency-optimised scheduler for the CPU. With it, jaxlib 0.10.2 deadlocks on two cores within
   20,000 iterations of a scan over 25 vmapped training steps: all worker threads sleep. Without it, the same program
   and four others ran 850,000 iterations. This is skipped if XLA_FLAGS has the flag already, or with
   UNDERSTUDY_XLA_FLAGS=off. It has no effect if JAX computed something before understudy was imported.
"""

import os
import warnings
from pathlib import Path

import jax
import jaxlib.version

from understudy.core import compile_cache
from understudy.core.errors import SettingError
from understudy.core.memory import parse_size

SCHEDULER_FLAG = "xla_cpu_enable_concurrency_optimized_scheduler"
CACHE_SIZE = "UNDERSTUDY_CACHE_SIZE"
DEFAULT_CACHE_SIZE = 2_000_000_000


def cache_size() -> int:
    """The bytes that the compilation cache may take."""
    given = os.environ.get(CACHE_SIZE)
    return DEFAULT_CACHE_SIZE if given is None else parse_size(given, CACHE_SIZE)


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


def _disable_scheduler() -> None:
    flags = os.environ.get("XLA_FLAGS", "")
    # XLA aborts on an unknown flag, so set it only for versions that are known to have it.
    known = (0, 10) <= jaxlib.version.__version_info__[:2] <= (0, 11)
    if known and SCHEDULER_FLAG not in flags and os.environ.get("UNDERSTUDY_XLA_FLAGS") != "off":
        os.environ["XLA_FLAGS"] = f"{flags} --{SCHEDULER_FLAG}=false".strip()


_enable_cache()
_disable_scheduler()
