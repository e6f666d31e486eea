"""Arrow and Parquet files of strangers: forged sizes, counts, offsets, types and names are refused by name."""

import os
import struct

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from understudy.core.arrow import arrow_blocks
from understudy.core.columns import Column, Want
from understudy.core.errors import DemonstrationError
from understudy.core.folder import Folder
from understudy.core.parquet import parquet_blocks
from understudy.core.thrift import read_struct

MANY = 400_000
"""Rows of a small file, which take more memory than the limit of these tests."""


def folder_of(path):
    return Folder(path, "a test directory", "make it again", DemonstrationError)


def parquet(path, *wants):
    return list(parquet_blocks(folder_of(path.parent), path.name, wants))


def arrow(path, *wants):
    return list(arrow_blocks(folder_of(path.parent), path.name, wants))


def write_arrow(path, table, stream=True, **options):
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, table.schema, **options) as file:
        file.write_table(table)
    return path


def refused(path, words, read, *wants):
    with pytest.raises(DemonstrationError, match=words) as error:
        read(path, *wants)
    assert path.name in str(error.value)
    assert "\n" not in str(error.value)


X = Want(("x",))


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setenv("UNDERSTUDY_READ_LIMIT", "1MB")


TYPES = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_()]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_numbers_in_lists_are_read(tmp_path, kind, depth):
    values = pa.array([0, 1, 1, 0, 1, 0]).cast(kind)
    column, counts = values, []
    for size in (3, 2, 1)[:depth]:
        column = pa.ListArray.from_arrays(np.arange(0, len(column) + 1, size, dtype=np.int32), column)
        counts.insert(0, np.full(len(column), size))
    table = pa.table({"x": column, "y": pa.array([b"other"] * len(column))})
    pq.write_table(table, tmp_path / "file.parquet", compression="zstd")
    blocks = [
        parquet(tmp_path / "file.parquet", X),
        arrow(write_arrow(tmp_path / "file.arrow", table), X),
        arrow(write_arrow(tmp_path / "file.ipc", table, stream=False), X),
    ]
    for (block,) in blocks:
        np.testing.assert_array_equal(block["x"].values, values.to_numpy(zero_copy_only=False))
        assert block["x"].values.dtype == kind.to_pandas_dtype()
        assert len(block["x"].counts) == depth
        for found, expected in zip(block["x"].counts, counts, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_fields_of_records_and_sliced_lists_are_read(tmp_path):
    lists = pa.array([[9.0], [1.0, 2.0], [], [3.0]]).slice(1)
    table = pa.table({"x": pa.StructArray.from_arrays([lists, lists], ["a.b", "c"])})
    for read, path in ((arrow, write_arrow(tmp_path / "file.arrow", table)),):
        (block,) = read(path, Want(("x", "a.b")), Want(("x", "d"), optional=True))
        assert block["x.a.b"].values.tolist() == [1, 2, 3]
        assert block["x.a.b"].counts[0].tolist() == [2, 0, 1]
        assert set(block) == {"x.a.b"}


def test_text_is_read_from_parquet_files(tmp_path):
    for kind in (pa.string(), pa.large_string(), pa.list_(pa.string())):
        values = ["a", "ü", "a"]
        column = pa.array([[value] for value in values] if pa.types.is_list(kind) else values, kind)
        for use_dictionary in (True, False):
            pq.write_table(pa.table({"x": column}), tmp_path / "file.parquet", use_dictionary=use_dictionary)
            (block,) = parquet(tmp_path / "file.parquet", Want(("x",), text=True))
            assert block["x"].values == values


def test_a_repeated_value_counts_as_often_as_it_is_there(tmp_path, small_limit):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"x": np.zeros(MANY)}), path)
    assert path.stat().st_size < 10_000
    refused(path, "declares 4.8 MB of arrays, and at most 1.0 MB", parquet, X)


def test_a_compressed_page_counts_with_its_real_size(tmp_path, small_limit):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"x": np.zeros(MANY)}), path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 10_000
    refused(path, "of arrays, and at most 1.0 MB", parquet, X)


def test_a_repeated_text_is_there_once(tmp_path, small_limit):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"x": ["word" * 1000] * 5000}), path)
    (block,) = parquet(path, Want(("x",), text=True))
    assert len({id(text) for text in block["x"].values}) == 1


def varint(number):
    """A number as a Parquet file stores it."""
    coded, data = number << 1, b""
    while coded >= 0x80:
        data, coded = data + bytes([coded & 0x7F | 0x80]), coded >> 7
    return data + bytes([coded])


@pytest.mark.parametrize("kind", ["numbers", "lists"])
def test_an_index_that_declares_less_than_its_pages_hold_is_refused(tmp_path, kind):
    path = tmp_path / "file.parquet"
    column = pa.array(np.zeros(MANY)) if kind == "numbers" else pa.array([np.zeros(MANY)])
    pq.write_table(pa.table({"x": column}), path, compression="none", data_page_size=1 << 30)
    data = path.read_bytes()
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    index = data[start:]
    assert varint(MANY) in index
    path.write_bytes(data[:start] + index.replace(varint(MANY), varint(MANY // 2)))
    assert path.stat().st_size == len(data)
    refused(path, "declares 200000 values|more pages than declared", parquet, X)


def test_pages_that_are_larger_than_declared_are_refused(tmp_path):
    path = tmp_path / "file.parquet"
    pq.write_table(
        pa.table({"x": np.zeros(MANY)}), path, compression="zstd", use_dictionary=False, column_encoding="PLAIN"
    )
    size = pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size
    data = path.read_bytes()
    path.write_bytes(data.replace(varint(size), varint(size // 2)))
    refused(path, "larger than declared", parquet, X)


def test_damage_to_the_index_is_refused_or_harmless(tmp_path):
    """pyarrow 26 aborts the process when its metadata is used, for a histogram of levels with the wrong length."""
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"x": pa.array([{"a": [1.0, 2.0]}, {"a": [3.0, 4.0]}])}), path)
    data = path.read_bytes()
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    for position in range(start, len(data), 2):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        try:
            for block in parquet(path, Want(("x", "a"))):
                assert len(block["x.a"].values) <= 1000
        except DemonstrationError as error:
            assert path.name in str(error)  # noqa: PT017 (a damaged file may also be read)


def test_extension_types_are_refused(tmp_path):
    field = pa.field("x", pa.float64(), metadata={"ARROW:extension:name": "mine", "ARROW:extension:metadata": "{}"})
    table = pa.table([pa.array([1.0])], schema=pa.schema([field]))
    pq.write_table(table, tmp_path / "file.parquet")
    refused(tmp_path / "file.parquet", "extension type", parquet, X)
    refused(write_arrow(tmp_path / "file.arrow", table), "extension type", arrow, X)


def test_an_index_of_empty_structs_or_lists_is_refused(tmp_path):
    """Each takes one byte in the file and 64 or more in memory."""
    for kind, empty in ((0xFC, b"\0"), (0xF9, b"\x0c")):
        with pytest.raises(ValueError, match="too many empty structs or lists"):
            read_struct(b"\x29" + bytes([kind]) + b"\x90\x4e" + empty * 10_000 + b"\0")


@pytest.mark.parametrize("entries", [pa.nulls(MANY), pa.array([{}] * 1000, pa.struct([]))], ids=["nulls", "records"])
def test_lists_of_entries_without_bytes_are_refused(tmp_path, small_limit, entries):
    lists = pa.FixedSizeListArray.from_arrays(entries, 1)
    path = write_arrow(tmp_path / "x.arrow", pa.table({"x": lists}))
    refused(path, "and numbers are needed", arrow, X)


def test_the_lengths_of_lists_of_a_fixed_size_count(tmp_path, small_limit):
    """A boolean has one bit in the file, and the length of its list 8 bytes in memory."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(MANY, bool)), 1)
    refused(write_arrow(tmp_path / "x.arrow", pa.table({"x": lists})), "at most 1.0 MB", arrow, X)


def test_two_columns_with_one_joined_name_are_refused(tmp_path):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"a": [{"b": 1.0}], "a.b": [2.0]}), path)
    refused(path, "several columns", parquet, Want(("a", "b")))


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_text_in_encodings_that_can_grow_is_refused(tmp_path, encoding):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"x": ["a", "b"]}), path, use_dictionary=False, column_encoding=encoding)
    refused(path, "encoding", parquet, Want(("x",), text=True))


@pytest.mark.parametrize("encoding", ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
def test_other_encodings_of_numbers_are_read(tmp_path, encoding):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"x": [1, 5, 3]}), path, use_dictionary=False, column_encoding=encoding)
    (block,) = parquet(path, X)
    assert block["x"].values.tolist() == [1, 5, 3]


def test_a_checksum_shows_damage(tmp_path):
    path = tmp_path / "file.parquet"
    pq.write_table(
        pa.table({"x": np.arange(100.0)}), path, compression="none", use_dictionary=False, write_page_checksum=True
    )
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<d", 50.0), struct.pack("<d", 51.5), 1))
    refused(path, "CRC", parquet, X)


def test_compressed_and_dictionary_batches_and_another_byte_order_are_refused(tmp_path):
    table = pa.table({"x": [1.0, 2.0]})
    for compression in ("lz4", "zstd"):
        path = write_arrow(tmp_path / "file.arrow", table, options=pa.ipc.IpcWriteOptions(compression=compression))
        refused(path, "compressed", arrow, X)
    path = write_arrow(tmp_path / "file.arrow", pa.table({"x": pa.array(["a"]).dictionary_encode()}))
    refused(path, "kind 2", arrow, X)


def test_every_forged_word_of_an_arrow_file_is_refused_or_read(tmp_path):
    table = pa.table({"x": pa.array([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]), "y": pa.array(["a", "b"])})
    path = write_arrow(tmp_path / "file.arrow", table)
    data, outcomes = path.read_bytes(), set()
    for position in range(0, len(data) - 3, 4):
        for word in (0x7FFFFFFF, 0x80000000):
            path.write_bytes(data[:position] + struct.pack("<I", word) + data[position + 4 :])
            try:
                for block in arrow(path, X):
                    assert block["x"].values.size <= len(data)
                outcomes.add("read")
            except DemonstrationError as error:
                assert path.name in str(error)  # noqa: PT017 (a damaged file may also be read)
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_a_body_larger_than_the_file_and_than_the_limit_is_refused(tmp_path, small_limit):
    path = write_arrow(tmp_path / "file.arrow", pa.table({"x": np.zeros(MANY)}))
    refused(path, "at most 1.0 MB", arrow, X)
    os.truncate(path, 1000)
    refused(path, r"declares \d+ bytes, and the file has 1000", arrow, X)


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"PAR1" * 3, b"ARROW1\0\0", bytes(100), b"\xff\xff\xff\xff\0\0\0\0", b"x" * 5000]
)
def test_other_files_are_refused(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    refused(path, "is not a test directory", parquet, X)
    refused(path, "is not a test directory", arrow, X)


def test_all_files_of_a_directory_share_one_limit(tmp_path, small_limit):
    folder = folder_of(tmp_path)
    (tmp_path / "file").write_bytes(b"x")
    folder.weigh("file")
    folder.reserve("file", 600_000)
    folder.check_fits("file", 300_000)
    with pytest.raises(DemonstrationError, match="declares"):
        folder.check_fits("file", 500_000)
    with pytest.raises(DemonstrationError, match="declares"):
        folder.reserve("file", 600_000)


@pytest.mark.parametrize("name", ["..", "../x", "/x", "a//b", "./x", "a/../b", "", "x\0", "x" * 256])
def test_names_stay_in_the_directory(tmp_path, name):
    with pytest.raises(DemonstrationError, match="not the name of a file"):
        folder_of(tmp_path).inside(name)


def test_links_stay_in_the_directory(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data-other").mkdir()
    folder = folder_of(tmp_path / "data")
    for target in ("/", "..", "../data-other", "../data-other/missing"):
        (tmp_path / "data/link").symlink_to(target)
        with pytest.raises(DemonstrationError, match="link out of the directory"):
            folder.file("link/x")
        (tmp_path / "data/link").unlink()
    (tmp_path / "data/link").symlink_to("../data/real")
    assert folder.inside("link/x") == tmp_path / "data/link/x"


def test_rows_of_one_number_are_one_column_and_others_are_not():
    assert Column("x", np.arange(3), ()).table().shape == (3, 1)
    assert Column("x", np.arange(6), (np.full(3, 2),)).table().shape == (3, 2)
    assert Column("x", np.arange(3), (np.ones(3, int),)).flat().tolist() == [0, 1, 2]
    assert Column("x", np.arange(0), (np.zeros(0, int),)).flat().size == 0


DEEP = b"\x1c" * 30 + b"\x00" * 31
THRIFT = [
    b"",
    b"\x15",
    b"\x15\x80",
    b"\x18\x05ab",
    b"\x19\xfc\xff\xff\xff\x7f",
    b"\x1d\x00",
    DEEP,
    b"\x15" + b"\xff" * 11,
]


@pytest.mark.parametrize("data", THRIFT)
def test_damaged_thrift_raises(data):
    with pytest.raises((IndexError, ValueError)):
        read_struct(data)
