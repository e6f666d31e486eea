"""The reader on damaged files: it returns what the file declares, or raises a named error that names the file."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mutations import KINDS, loaded, mutated
from understudy.core.reader import NUMBERS, TEXT, Expected, FileReader

JSON = b'{\n "a": {"b": [1, 2.5, {"c": "x"}]},\n "d": null,\n "e": [true, "y"]\n}\n'
CSV = b"seed,loss,status\n0,0.5,finished\n1,nan,finished\n"
ARRAYS = {
    "a": np.arange(6.0).reshape(3, 2),
    "n": np.int64(4),
    "flag": np.array([True, False]),
    "t": np.array("Pendulum"),
}
pytestmark = pytest.mark.filterwarnings("ignore:Duplicate name")


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **ARRAYS, structure=np.array(JSON.decode()))
    return buffer.getvalue()


def read(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return FileReader(path, "a test file", "make it again")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize(
    ("kind", "data"), [("npz", npz()), ("json", JSON), ("csv", CSV), ("toml", b'name = "x"\nn = 3\n')]
)
def test_every_mutation_repeats_with_its_seed_and_few_leave_the_file_as_it_was(kind, data):
    damaged = [mutated(data, kind, seed) for seed in range(300)]
    assert damaged == [mutated(data, kind, seed) for seed in range(300)]
    assert {name.split(",")[0] for name, _ in damaged} == {mutation.__name__ for mutation in KINDS[kind]}
    assert sum(new == data for _, new in damaged) < 30


def check_npz(folder, seed):
    kind, data = mutated(npz(), "npz", seed)
    file = read(folder, "file.npz", data)
    arrays = loaded(lambda: file.npz(lambda _: Expected(NUMBERS + TEXT, finite=True)), "file.npz")
    for name, array in (arrays or {}).items():
        assert array.dtype.kind in NUMBERS + TEXT, (kind, name)
        assert array.dtype.kind != "f" or np.isfinite(array).all(), (kind, name)


def check_json(folder, seed):
    file = read(folder, "file.json", mutated(JSON, "json", seed)[1])
    value = loaded(lambda: file.json({"a": {"b": list}, "e": list}), "file.json")
    assert value is None or isinstance(value["a"]["b"], list)


def check_csv(folder, seed):
    file = read(folder, "file.csv", mutated(CSV, "csv", seed)[1])
    rows = loaded(lambda: file.csv({"seed": int, "loss": float, "status": str}), "file.csv")
    assert all(isinstance(row["seed"], int) and isinstance(row["loss"], float) for row in rows or [])


CHECKS = (check_npz, check_json, check_csv)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_damaged_file_is_read_or_refused_by_name(folder, seed):
    for check in CHECKS:
        check(folder, seed)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_thousands_of_damaged_files_are_read_or_refused_by_name(folder, check):
    for seed in range(5000):
        check(folder, seed)
