"""Damaged files of every kind: read as something valid, or refused in one line with the file's name.

`tools/fuzz.py` does the same with more files and other seeds. test_run_directories.py has the quick test of runs, and
test_checkpoints.py that of checkpoints.
"""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fuzzing import TARGETS, attack
from support.mutations import loaded

FILES = [name for name in TARGETS if name not in ("runs", "checkpoints")]


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """A function that writes the valid files of a kind, once."""
    made = {}

    def write(name):
        if name not in made:
            made[name] = TARGETS[name].make(tmp_path_factory.mktemp(name))
        return made[name]

    return write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_damaged_file_is_read_as_something_valid_or_refused(valid, folder, seed):
    for name in FILES:
        attack(TARGETS[name], valid(name), folder, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("demonstrations", 3000),
        ("policies", 2000),
        ("weights", 800),
        ("models", 3000),
        ("runs", 500),
        ("checkpoints", 100),
    ],
)
def test_thousands_of_damaged_files_are_read_as_something_valid_or_refused(valid, folder, name, count):
    read = [attack(TARGETS[name], valid(name), folder, seed)[1] for seed in range(count)]
    assert 0 < sum(read) < count / 2


@pytest.mark.parametrize("name", ["demonstrations", "policies", "weights"])
def test_no_small_file_takes_much_memory(folder, name):
    """Less than a megabyte of zeros that declare hundreds of megabytes, in the arrays that are read."""
    path, zeros = folder / "Pendulum.npz", np.zeros((100_000_000, 1), np.uint8)
    arrays = {
        "demonstrations": {"observations": zeros, "actions": zeros, "lengths": np.array([100_000_000])},
        "policies": {"structure.json": np.array("{" + " " * 25_000_000)},
        "weights": {"w0": zeros, "b0": np.zeros(1)},
    }
    np.savez_compressed(path, **arrays[name])
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    assert loaded(lambda: TARGETS[name].load(path), "Pendulum.npz") is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
