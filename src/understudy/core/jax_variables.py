"""The environment variables of JAX's settings, without importing JAX (docs/configuration.md).

The package imports this first. It turns off XLA's concurrency-optimised scheduler for the CPU: with it, jaxlib 0.10.2
deadlocks on two cores within 20,000 iterations of a scan over 25 vmapped training steps: all worker threads sleep.
Without it, the same program and four others ran 850,000 iterations. This is skipped if XLA_FLAGS has the flag already,
with UNDERSTUDY_XLA_FLAGS=off, or if there is no jaxlib. It has no effect if JAX computed something before understudy
was imported.
"""

import os

from understudy.core.memory import parse_size

SCHEDULER_FLAG = "xla_cpu_enable_concurrency_optimized_scheduler"
CACHE_SIZE = "UNDERSTUDY_CACHE_SIZE"
DEFAULT_CACHE_SIZE = 2_000_000_000


def cache_size() -> int:
    """The bytes that the compilation cache may take."""
    given = os.environ.get(CACHE_SIZE)
    return DEFAULT_CACHE_SIZE if given is None else parse_size(given, CACHE_SIZE)


def _disable_scheduler() -> None:
    flags = os.environ.get("XLA_FLAGS", "")
    if SCHEDULER_FLAG in flags or os.environ.get("UNDERSTUDY_XLA_FLAGS") == "off":
        return
    try:
        from jaxlib.version import __version_info__ as version
    except ImportError:  # a robot with NumPy alone
        return
    # XLA aborts on an unknown flag, so set it only for versions that are known to have it.
    if (0, 10) <= version[:2] <= (0, 11):
        os.environ["XLA_FLAGS"] = f"{flags} --{SCHEDULER_FLAG}=false".strip()


_disable_scheduler()
