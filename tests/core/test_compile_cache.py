"""The files of the compilation cache: damaged ones, a bounded size, and disks that cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from understudy.core import jax_variables
from understudy.core.compile_cache import SUFFIX, CheckedCache, is_usable

PROGRAM = """
import json, logging, sys
import understudy.core.jax_setup, jax, jax.numpy as jnp
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rsplit("/", 1)[-1]))
print(jax.jit(lambda x: jnp.sin(x @ x).sum() * 3)(jnp.eye(3)))
print(events.count("cache_hits"), events.count("cache_misses"))
"""


def damage(content: bytes):
    """The ways in which a file may be damaged."""
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    return [b"", content[:10], content[:-1], content + b"x", bytes(flipped), os.urandom(len(content))]


def test_a_damaged_entry_is_removed_and_can_be_written_again(tmp_path):
    cache = CheckedCache(tmp_path, 10_000)
    cache.put("a", b"program" * 20)
    file = tmp_path / f"a{SUFFIX}"
    for content in damage(file.read_bytes()):
        file.write_bytes(content)
        assert cache.get("a") is None
        assert not file.exists()
        cache.put("a", b"program" * 20)
        assert cache.get("a") == b"program" * 20
    assert cache.get("b") is None
    assert os.listdir(tmp_path) == [f"a{SUFFIX}"]


def test_the_entries_that_were_not_used_for_the_longest_time_are_removed(tmp_path):
    (tmp_path / "mine.txt").write_text("not an entry" * 1000)
    (tmp_path / "jit_old-cache").write_bytes(b"of JAX" * 50)
    os.utime(tmp_path / "jit_old-cache", (1, 1))
    for number in range(4):
        CheckedCache(tmp_path, 1000).put(str(number), b"x" * 300)  # a process looks at the size first
        os.utime(tmp_path / f"{number}{SUFFIX}", (10 + number, 10 + number))
        if number == 2:
            assert CheckedCache(tmp_path, 1000).get("0") is not None  # used now
    names = {"mine.txt", f"0{SUFFIX}", f"2{SUFFIX}", f"3{SUFFIX}"}  # three fit; 1 was not used for the longest time
    assert set(os.listdir(tmp_path)) == names
    CheckedCache(tmp_path, 1000).put("large", b"x" * 1000)
    assert set(os.listdir(tmp_path)) == names


def test_one_process_keeps_the_bound_too(tmp_path):
    cache = CheckedCache(tmp_path, 5000)
    for number in range(100):
        cache.put(str(number), b"x" * 100)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 5000 + 16 * 132


def test_a_cache_that_cannot_be_written_keeps_nothing_and_fails_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file/below", "/proc/nowhere", tmp_path / "\udcff\0"):
        cache = CheckedCache(path, 1000)
        cache.put("a", b"x")
        assert cache.get("a") is None
    cache = CheckedCache(tmp_path / "new", 1000)
    cache.put("a" * 300, b"x")  # the name is too long
    assert cache.get("a" * 300) is None
    assert os.listdir(tmp_path / "new") == []


def test_an_entry_that_does_not_fit_on_the_disk_is_left_out(tmp_path, monkeypatch):
    def full(path, content):
        path.touch()
        raise OSError(28, "No space left on device")

    cache = CheckedCache(tmp_path, 1000)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        cache.put("a", b"x")
    assert os.listdir(tmp_path) == []
    assert cache.get("a") is None


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path):
    assert is_usable(tmp_path)
    assert is_usable(tmp_path / "a/b")
    (tmp_path / "file").write_text("")
    assert not is_usable(tmp_path / "file")
    assert not is_usable(tmp_path / "file/a")
    tmp_path.chmod(0o777)
    assert not is_usable(tmp_path)


def test_a_wrong_size_is_named(monkeypatch):
    monkeypatch.setenv(jax_variables.CACHE_SIZE, "500MB")
    assert jax_variables.cache_size() == 500_000_000
    monkeypatch.setenv(jax_variables.CACHE_SIZE, "much")
    with pytest.raises(ValueError, match="UNDERSTUDY_CACHE_SIZE is 'much'"):
        jax_variables.cache_size()


def run(cache, **variables):
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **variables}
    for name in ("UNDERSTUDY_CACHE", "JAX_COMPILATION_CACHE_DIR"):
        environment.pop(name, None)
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_jax_compiles_again_in_silence_whatever_happened_to_the_cache(tmp_path):
    first = run(tmp_path)
    value, counts = first.stdout.splitlines()
    assert (first.stderr, counts.split()[0]) == ("", "0")
    again = run(tmp_path)
    assert (again.stderr, again.stdout.splitlines()[0]) == ("", value)
    assert int(again.stdout.splitlines()[1].split()[0]) > 0
    files = list((tmp_path / "understudy").glob(f"*{SUFFIX}"))
    assert files
    for kind in (1, 4, 5):
        for file in files:
            file.write_bytes(damage(file.read_bytes())[kind])
        damaged = run(tmp_path)
        assert (damaged.returncode, damaged.stderr, damaged.stdout) == (0, "", first.stdout)
        assert run(tmp_path).stdout == again.stdout  # the entries were written again


@pytest.mark.slow
def test_a_program_runs_without_a_place_for_the_cache(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", "/proc", "/dev/null", "/dev/full"):
        done = run(place)
        assert (done.returncode, done.stderr) == (0, "")
    done = run("", HOME="/dev/null")
    assert (done.returncode, done.stderr) == (0, "")
