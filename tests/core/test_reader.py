"""The one reader of files: damage of every kind is a named error in one line, and nothing unexpected is read."""

import io
import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from understudy.core.errors import RunError, SettingError
from understudy.core.reader import LIMIT, NUMBERS, TEXT, Expected, FileReader, mismatch, read_limit


def reader(path):
    return FileReader(path, "a test file", "make it again")


def anything(name):
    return Expected(NUMBERS + TEXT)


def npy(array):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array))
    return buffer.getvalue()


def test_arrays_of_every_kind_and_order_come_back_as_they_were_written(tmp_path):
    arrays = {
        "a": np.arange(12.0).reshape(3, 4),
        "fortran": np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
        "flag": np.array([True, False]),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(7, np.uint8),
        "text": np.array("Pendulum"),
        "big_endian": np.arange(3, dtype=">f8"),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "file.npz", **arrays)
        read = reader(tmp_path / "file.npz").npz(anything)
        assert list(read) == list(arrays)
        for name, array in arrays.items():
            assert read[name].dtype == array.dtype
            np.testing.assert_array_equal(read[name], array)


def test_a_read_array_can_be_written_to(tmp_path):
    np.savez(tmp_path / "file.npz", a=np.zeros(3))
    array = reader(tmp_path / "file.npz").npz(anything)["a"]
    array[0] = 1
    assert array[0] == 1


def test_unknown_members_are_not_decompressed(tmp_path):
    path = tmp_path / "file.npz"
    np.savez_compressed(path, a=np.zeros(3), bomb=np.zeros(30_000_000))
    tracemalloc.start()
    read = reader(path).npz(lambda name: Expected() if name == "a" else None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert list(read) == ["a"]
    assert peak < 5_000_000


def test_a_small_file_that_declares_much_is_refused_before_it_is_decompressed(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, a=np.zeros(2_000_000))
    monkeypatch.setenv(LIMIT, "1MB")
    with pytest.raises(RunError, match=r"declares 16\.0 MB.*at most 1\.0 MB.*UNDERSTUDY_READ_LIMIT=1GB"):
        reader(path).npz(anything)
    monkeypatch.setenv(LIMIT, "17MB")
    assert reader(path).npz(anything)["a"].size == 2_000_000


def test_the_limit_takes_units_and_refuses_nonsense(monkeypatch):
    for text, size in (("1000", 1000), ("2kB", 2000), ("1.5GB", 1_500_000_000), ("7 bytes", 7)):
        monkeypatch.setenv(LIMIT, text)
        assert read_limit(0) == size
    monkeypatch.setenv(LIMIT, "plenty")
    with pytest.raises(SettingError, match="plenty"):
        read_limit(0)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }", "not 8000000000000"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "never read"),
        ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }", "type"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", "shape"),
        ("{'descr': '<f8', 'fortran_order': False}", "header"),
        ("(" * 1000, "header"),
        ("__import__('os').system('true')", "header"),
    ],
)
def test_a_forged_header_is_refused(tmp_path, header, reason):
    body = header.encode()
    data = b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body + b"\0" * 8
    with zipfile.ZipFile(tmp_path / "file.npz", "w") as archive:
        archive.writestr("a.npy", data)
    with pytest.raises(RunError, match=reason):
        reader(tmp_path / "file.npz").npz(anything)


def test_doubled_encrypted_and_strangely_compressed_members_are_refused(tmp_path):
    twice, strange, locked = (tmp_path / name for name in ("twice.npz", "strange.npz", "locked.npz"))
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("a.npy", npy([1.0]))
        archive.writestr("a", npy([2.0]))
    with pytest.raises(RunError, match="'a' twice"):
        reader(twice).npz(anything)
    with zipfile.ZipFile(strange, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", npy([1.0]))
    with pytest.raises(RunError, match="unknown compression"):
        reader(strange).npz(anything)
    np.savez(locked, a=np.zeros(2))
    data = bytearray(locked.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    locked.write_bytes(data)
    with pytest.raises(RunError, match="encrypted"):
        reader(locked).npz(anything)


def test_wrong_types_shapes_and_numbers_are_refused_by_name(tmp_path):
    path = tmp_path / "file.npz"
    np.savez(path, a=np.array([1.0, np.nan]))
    for want, reason in ((Expected("i"), "type"), (Expected(shape=(3,)), "shape"), (Expected(finite=True), "NaN")):
        with pytest.raises(RunError, match=f"'a' has {reason}"):
            reader(path).npz(lambda name, want=want: want)
    with pytest.raises(RunError, match="has no b"):
        reader(path).npz(anything, required=("b",))


def test_what_the_members_declare_can_be_checked_before_they_are_decompressed(tmp_path):
    path = tmp_path / "file.npz"
    np.savez_compressed(path, a=np.zeros(10_000_000), b=np.zeros(3, np.int16), other=np.zeros(4))

    def check(headers):
        assert {name: (header.dtype.str, header.shape) for name, header in headers.items()} == {
            "a": ("<f8", (10_000_000,)),
            "b": ("<i2", (3,)),
        }
        raise RunError("a and b have different lengths")

    tracemalloc.start()
    with pytest.raises(RunError, match="different lengths"):
        reader(path).npz(lambda name: Expected() if name in "ab" else None, check=check)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_the_limit_counts_the_size_after_conversion(tmp_path, monkeypatch):
    path = tmp_path / "file.npz"
    np.savez_compressed(path, a=np.zeros(1_000_000, np.uint8))
    monkeypatch.setenv(LIMIT, "3MB")
    assert reader(path).npz(anything)["a"].size == 1_000_000
    with pytest.raises(RunError, match=r"declares 4\.0 MB"):
        reader(path).npz(lambda name: Expected(itemsize=4))
    with pytest.raises(RunError, match=r"'a' has 1\.0 MB, and at most 5\.0 kB"):
        reader(path).npz(lambda name: Expected(most=5000))


def test_files_of_other_kinds_are_named(tmp_path):
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "object.pkl").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "text.npz").write_text("hello")
    for name, reason in (("one.npy", "a single array"), ("object.pkl", "a pickle"), ("empty.npz", "an empty file")):
        with pytest.raises(RunError, match=rf"{name}' is not a test file \({reason}"):
            reader(tmp_path / name).npz(anything)
    with pytest.raises(RunError, match="not an npz file"):
        reader(tmp_path / "text.npz").npz(anything)


def test_an_archive_with_other_bytes_around_it_or_other_names_inside_is_refused(tmp_path):
    path = tmp_path / "file.npz"
    np.savez(path, a=np.zeros(3), b=np.zeros(3))
    whole = path.read_bytes()
    renamed, end = bytearray(whole), whole.rindex(b"PK\x05\x06")
    renamed[whole.rindex(b"b.npy")] ^= 1  # in the directory, not in front of the contents
    counted = bytearray(whole)
    counted[end + 10] = 1
    for damaged in (b"PK" + whole, whole + b"\0", whole + whole, renamed, counted):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match="is not a test file"):
            reader(path).npz(lambda name: Expected() if name == "a" else None)


def test_text_that_is_not_unicode_is_refused(tmp_path):
    for code in (0x110000, 0xD800):
        data = npy(np.array("x"))[:-4] + code.to_bytes(4, "little")
        with zipfile.ZipFile(tmp_path / "file.npz", "w") as archive:
            archive.writestr("a.npy", data)
        with pytest.raises(RunError, match="not Unicode"):
            reader(tmp_path / "file.npz").npz(anything)


def test_a_pipe_and_a_directory_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunError, match="not a regular file"):
        reader(tmp_path / "pipe").bytes()
    with pytest.raises(RunError, match="a directory"):
        reader(tmp_path).text()
    with pytest.raises(RunError, match="no file"):
        reader(tmp_path / "absent").text()


@pytest.mark.parametrize(
    "text",
    [
        *('{"a": 1', '{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}', "[" * 100_000, "\x00", '{"a": "\ud800"}'),
        *('{"a": ' + "1" * 5000 + "}", "[1, 2]", '{"b": 1}', '{"a": "text"}', '{"a": true}', ""),
    ],
)
def test_damaged_json_is_refused(tmp_path, text):
    (tmp_path / "file.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(RunError, match="is not a test file") as failure:
        reader(tmp_path / "file.json").json({"a": int})
    assert "\n" not in str(failure.value)


def test_patterns_describe_json_values():
    pattern = {"a": int, "b": [str], "c?": (float, None), "d": {str: float}}
    assert mismatch({"a": 1, "b": ["x"], "d": {"x": 2}}, pattern) is None
    assert mismatch({"a": 1, "b": [], "c": None, "d": {}}, pattern) is None
    assert mismatch({"a": 1, "b": [2], "d": {}}, pattern) == "entry 0 of 'b' is 2"
    assert mismatch({"a": True, "b": [], "d": {}}, pattern) == "'a' is True"
    assert mismatch({"a": 1, "b": [], "c": "x", "d": {}}, pattern) == "'c' is 'x'"
    assert mismatch({"a": 1, "b": []}, pattern) == "it has no 'd'"


def test_csv_rows_are_converted_and_damage_names_the_line(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("seed,loss,extra\n1,0.5,2\n2,nan,3\n")
    rows = reader(path).csv({"seed": int, "loss": float}, float)
    assert rows[0] == {"seed": 1, "loss": 0.5, "extra": 2.0}
    for text, reason in (
        ("seed,loss\n1,0.5\n2\n", "line 3 has 1 of 2"),
        ("seed,loss\n1,x\n", "line 2"),
        ("seed\n1\n", "columns are seed"),
        ("seed,loss,loss\n1,2,3\n", "columns"),
        ("seed,loss,other\n1,2,3\n", "columns"),
        ("", "ValueError"),
        ('seed,loss\n"1,2\n', "Error"),
    ):
        path.write_text(text)
        with pytest.raises(RunError, match=reason):
            reader(path).csv({"seed": int, "loss": float})


def test_text_of_a_file_is_quoted_without_escape_sequences_and_shortened(tmp_path):
    path = tmp_path / "file.npz"
    np.savez(path, **{"\x1b[31mred" + "x" * 500: np.array([None], object)})
    with pytest.raises(RunError) as failure:
        reader(path).npz(anything)
    assert "\x1b" not in str(failure.value)
    assert len(str(failure.value)) < 400
