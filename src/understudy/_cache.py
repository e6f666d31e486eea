"""JAX's persistent compilation cache, on by default in a per-user directory, so that the second run starts at once.

A cache the user has configured (JAX_COMPILATION_CACHE_DIR, or jax.config) is left alone; UNDERSTUDY_CACHE=off turns
ours off.
"""

import os

import jax
import platformdirs

if os.environ.get("UNDERSTUDY_CACHE") != "off" and jax.config.jax_compilation_cache_dir is None:
    jax.config.update("jax_compilation_cache_dir", platformdirs.user_cache_dir("understudy", ensure_exists=False))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
