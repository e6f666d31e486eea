"""The JAX settings that `import understudy` changes, and the switches that turn them off."""

import json
import os
import subprocess
import sys

import pytest

from understudy.core.jax_variables import SCHEDULER_FLAG

SCRIPT = """
import json, os, jax, understudy.core.jax_setup
print(json.dumps([jax.config.values["jax_compilation_cache_dir"], os.environ.get("XLA_FLAGS", "")]))
"""
VARIABLES = ("UNDERSTUDY_CACHE", "UNDERSTUDY_XLA_FLAGS", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")


def settings(tmp_path, **variables: str) -> tuple[str | None, str]:
    """The cache directory and XLA flags of a new process with these environment variables."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), **variables}
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    cache, flags = json.loads(process.stdout.splitlines()[-1])
    return cache, flags


@pytest.mark.slow
def test_the_defaults_set_the_cache_and_the_scheduler_flag(tmp_path):
    cache, flags = settings(tmp_path)
    assert cache == str(tmp_path / "understudy")
    assert flags == f"--{SCHEDULER_FLAG}=false"


@pytest.mark.slow
def test_each_switch_turns_its_own_setting_off(tmp_path):
    cache, flags = settings(tmp_path, UNDERSTUDY_CACHE="off")
    assert cache is None
    assert SCHEDULER_FLAG in flags
    cache, flags = settings(tmp_path, UNDERSTUDY_XLA_FLAGS="off")
    assert cache == str(tmp_path / "understudy")
    assert flags == ""


@pytest.mark.slow
def test_the_users_own_settings_are_kept(tmp_path):
    own = f"--xla_force_host_platform_device_count=1 --{SCHEDULER_FLAG}=true"
    cache, flags = settings(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "mine"), XLA_FLAGS=own)
    assert (cache, flags) == (str(tmp_path / "mine"), own)
    _, flags = settings(tmp_path, XLA_FLAGS="--xla_force_host_platform_device_count=1")
    assert flags == f"--xla_force_host_platform_device_count=1 --{SCHEDULER_FLAG}=false"
