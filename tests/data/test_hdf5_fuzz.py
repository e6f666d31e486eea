"""Damaged HDF5 files and Minari directories: read as something valid, or refused in one line with their name.

They have no checksum over their numbers, so a changed number may be read.
"""

import tracemalloc

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from support.hdf5_files import KINDS, attack_hdf5, make_valid
from understudy.core.errors import DemonstrationError


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """The valid files of each format."""
    return {kind: make_valid(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged")


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_damaged_file_is_read_as_something_valid_or_refused(valid, folder, seed):
    for kind in KINDS:
        attack_hdf5(kind, valid[kind], folder, seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_damaged_files_are_read_as_something_valid_or_refused(valid, folder, kind):
    read = [attack_hdf5(kind, valid[kind], folder, seed)[1] for seed in range(2000)]
    assert 0 < sum(read) < 1000


def test_no_small_file_takes_much_memory(tmp_path):
    """Less than a megabyte that declares hundreds of megabytes, in the arrays that are read."""
    zeros = {"dtype": "u1", "chunks": (1_000_000, 1), "compression": "gzip"}
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name in ("observations", "actions"):
            x = file.create_dataset(name, (100_000_000, 1), **zeros)
            x[:1_000_000] = 0
            chunk = x.id.read_direct_chunk((0, 0))[1]
            for start in range(1_000_000, 100_000_000, 1_000_000):
                x.id.write_direct_chunk((start, 0), chunk)
        file["terminals"] = np.zeros(3)
    assert (tmp_path / "a.hdf5").stat().st_size < 1_000_000
    tracemalloc.start()
    with pytest.raises(DemonstrationError, match="declares"):
        us.load(tmp_path / "a.hdf5")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
