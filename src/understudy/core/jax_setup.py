"""What JAX is told before it starts. Imported first.

1. The persistent compilation cache is on, in a per-user directory, so that the second run of a shape starts at once.
   A cache the user has configured (JAX_COMPILATION_CACHE_DIR, or jax.config) is left alone; UNDERSTUDY_CACHE=off turns
   ours off.
2. On the CPU, XLA's concurrency-optimised scheduler is off. With it, jaxlib 0.10.2 stops for good on two cores within
   20,000 iterations of a scan over 25 vmapped training steps: every worker sleeps and none is woken. Without it, the
   same program and four of other shapes ran 850,000 iterations without a stop. A setting of the user's in XLA_FLAGS is
   left alone. This takes effect only if JAX has not computed anything before understudy is imported.
"""

import os
from pathlib import Path

import jax
import jaxlib.version

SCHEDULER = "xla_cpu_enable_concurrency_optimized_scheduler"

if os.environ.get("UNDERSTUDY_CACHE") != "off" and jax.config.values["jax_compilation_cache_dir"] is None:
    settings = {
        "jax_compilation_cache_dir": str(
            Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "understudy").expanduser()
        ),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]

# XLA ends the process over a flag it does not know, so it is given only to versions seen to know it.
if (0, 10) <= jaxlib.version.__version_info__[:2] <= (0, 11) and SCHEDULER not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{SCHEDULER}=false".strip()
