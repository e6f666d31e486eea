"""The reader of HDF5 files: the same numbers as h5py, and nothing from outside the file."""

import tracemalloc
import zlib

import h5py
import numpy as np
import pytest

from understudy.core.errors import DemonstrationError, ExtraError
from understudy.core.hdf5 import Hdf5Reader, is_hdf5

RNG = np.random.default_rng(0)
WAYS = {
    "contiguous": {},
    "chunked": {"chunks": (33, 2, 5), "maxshape": (None, 3, 7)},
    "gzip": {"chunks": (33, 2, 5), "compression": "gzip"},
    "shuffle": {"chunks": (64, 3, 7), "compression": "gzip", "shuffle": True},
    "fletcher32": {"chunks": (64, 3, 7), "fletcher32": True},
    "all filters": {"chunks": (33, 2, 5), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "one chunk": {"chunks": (500, 3, 7), "compression": "gzip"},
}


def opened(path):
    return Hdf5Reader(path, "an HDF5 file", "choose another", DemonstrationError).hdf5("text", "bytes", "none")


def write(path, libver="earliest", **arrays):
    with h5py.File(path, "w", libver=libver) as file:
        for name, array in arrays.items():
            file[name] = array
    return path


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2", "u1", "bool", "<f2"])
@pytest.mark.parametrize("way", WAYS)
def test_all_layouts_and_types_are_read_as_h5py_reads_them(tmp_path, way, dtype, libver):
    array = (RNG.normal(size=(500, 3, 7)) * 50).astype(dtype)
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.create_dataset("x", data=array, **WAYS[way])
    with opened(tmp_path / "a.h5") as file:
        stored = file.dataset("x")
        for rows in (slice(0, 500), slice(31, 70), slice(499, 500)):
            found = stored.read(rows.start, rows.stop)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array[rows])
        np.testing.assert_array_equal(stored.read(dtype=np.float32), array.astype(np.float32))


def test_small_numbers_and_texts_are_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["number"] = 3.5
        file["fixed"], file["free"] = np.array([b"demo_1", b"demo_10"]), ["demo_1", "é"]
        file["group/x"] = np.zeros((0, 3))
        file["group"].attrs["text"], file["group"].attrs["bytes"] = "é" * 100, np.bytes_("abc")
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, made).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.arange(3, dtype=np.int32)
        )
    with opened(tmp_path / "a.h5") as file:
        assert file.dataset("number").read() == 3.5
        assert file.dataset("group/x").read().shape == (0, 3)
        assert file.dataset("compact").read().tolist() == [0, 1, 2]
        assert (file.texts("fixed"), file.texts("free")) == (["demo_1", "demo_10"], ["demo_1", "é"])
        assert (file.attribute("group", "text"), file.attribute("group", "bytes")) == ("é" * 100, "abc")
        assert file.attribute("group", "none") is None
        assert (file.names(), file.names("group")) == (["compact", "fixed", "free", "group", "number"], ["x"])
        assert [file.has(path) for path in ("group/x", "group/y", "none/x", "number/x")] == [True, False, False, False]


def test_a_group_that_contains_itself_does_no_harm(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("g")
        group["loop"] = group
        file["g/root"] = file["/"]
    with opened(tmp_path / "a.h5") as file:
        assert file.names("g") == ["loop", "root"]
        assert file.is_group("g/loop/root/g/loop")


def soft_link(file, folder):
    write(folder / "other.h5", y=np.arange(3.0))
    file["y"] = np.arange(3.0)
    file["x"] = h5py.SoftLink("/y")


def external_link(file, folder):
    write(folder / "other.h5", y=np.arange(3.0))
    file["x"] = h5py.ExternalLink("other.h5", "/y")


def virtual_dataset(file, folder):
    write(folder / "other.h5", y=np.arange(3.0))
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "y", (3,))
    file.create_virtual_dataset("x", layout)


def external_storage(file, folder):
    (folder / "numbers").write_bytes(np.arange(3.0).tobytes())
    file.create_dataset("x", (3,), "f8", external=[(str(folder / "numbers"), 0, 24)])


def unknown_filter(file, folder):
    """A filter that a plugin library on the disk would have to undo."""
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((3,))
    made.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (1,))
    h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((3,)), made)


def unusual_type(file, folder):
    kind = h5py.h5t.NATIVE_INT32.copy()
    kind.set_precision(17)
    h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((3,)))


HOSTILE = {
    "soft link": (soft_link, "links are not followed"),
    "external link": (external_link, "links are not followed"),
    "virtual dataset": (virtual_dataset, "other files"),
    "external storage": (external_storage, "other files"),
    "unknown filter": (unknown_filter, "filter 32015"),
    "lzf": (lambda f, _: f.create_dataset("x", data=np.zeros(300), compression="lzf"), "only gzip is read"),
    "scale and offset": (lambda f, _: f.create_dataset("x", data=np.arange(300), scaleoffset=4), "only gzip is read"),
    "references": (lambda f, _: f.create_dataset("x", data=[f.ref], dtype=h5py.ref_dtype), "type object"),
    "lists": (lambda f, _: f.create_dataset("x", (3,), h5py.vlen_dtype(np.float32)), "records or lists"),
    "records": (lambda f, _: f.create_dataset("x", data=np.zeros(3, "f4,i4")), "records or lists"),
    "texts": (lambda f, _: f.create_dataset("x", data=["a", "b"]), "type object"),
    "complex": (lambda f, _: f.create_dataset("x", data=np.zeros(3, complex)), "complex|records"),
    "opaque": (lambda f, _: f.create_dataset("x", data=np.zeros(3, h5py.opaque_dtype("M8[us]"))), "type"),
    "long double": (lambda f, _: f.create_dataset("x", data=np.zeros(3, np.longdouble)), "type"),
    "17 bits": (unusual_type, "unusual type"),
    "a group": (lambda f, _: f.create_group("x"), "is not a dataset"),
    "an empty one": (lambda f, _: f.create_dataset("x", data=h5py.Empty("f4")), "is empty"),
    "nothing": (lambda f, _: None, "it has no 'x'"),
    "never written": (lambda f, _: f.create_dataset("x", (3,), "f4"), "never written"),
    "a missing chunk": (lambda f, _: f.create_dataset("x", (9,), "f4", chunks=(3,)).__setitem__(0, 1), "1 of 3 chunks"),
    "huge": (lambda f, _: f.create_dataset("x", (10**12, 10**4), "f8", chunks=(1, 10)), "of arrays, and at most"),
    "many chunks": (lambda f, _: f.create_dataset("x", (10**7,), "u1", chunks=(1,)), "10000000 chunks"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_not_plain_numbers_in_this_file_is_refused_in_one_line(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("HDF5_PLUGIN_PATH", str(tmp_path))
    make, words = HOSTILE[kind]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        make(file, tmp_path)
    with pytest.raises(DemonstrationError, match=words) as raised, opened(tmp_path / "a.h5") as file:
        file.dataset("x").read()
    assert "a.h5" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_chunk_that_inflates_beyond_its_size_takes_no_memory(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        x = file.create_dataset("x", (1000,), "u1", chunks=(1000,), compression="gzip")
        x.id.write_direct_chunk((0,), zlib.compress(bytes(200_000_000), 9))
    tracemalloc.start()
    with pytest.raises(DemonstrationError, match="larger than declared"), opened(tmp_path / "a.h5") as file:
        file.dataset("x").read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


@pytest.mark.parametrize("stored", [b"", b"x" * 7, zlib.compress(bytes(999)), zlib.compress(bytes(1000))[:-5]])
def test_a_damaged_chunk_is_refused(tmp_path, stored):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        x = file.create_dataset("x", (1000,), "u1", chunks=(1000,), compression="gzip")
        x.id.write_direct_chunk((0,), stored or b"\0")
    with pytest.raises(DemonstrationError, match="chunk"), opened(tmp_path / "a.h5") as file:
        file.dataset("x").read()


def test_a_changed_number_is_found_by_its_checksum(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.full(100, 7, np.int64), chunks=(100,), fletcher32=True)
    data = bytearray(path.read_bytes())
    data[data.index(np.full(100, 7, np.int64).tobytes()) + 40] ^= 1
    path.write_bytes(data)
    with pytest.raises(DemonstrationError, match="wrong checksum"), opened(path) as file:
        file.dataset("x").read()


def test_booleans_other_than_0_and_1_are_refused(tmp_path):
    path = write(tmp_path / "a.h5", x=np.ones(100, bool))
    path.write_bytes(path.read_bytes().replace(b"\1" * 100, b"\2" * 100))
    with pytest.raises(DemonstrationError, match="neither 0 nor 1"), opened(path) as file:
        file.dataset("x").read()


def attribute_file(path, libver="earliest"):
    with h5py.File(path, "w", libver=libver) as file:
        file.attrs["text"] = "abc" * 30
        file["x"] = np.zeros(1000)
    return bytearray(path.read_bytes())


def empty_object(data, heap):
    data[heap + 16 : heap + 4000] = bytes(3984)


def overflowing_object(data, heap):
    data[heap + 24 : heap + 32] = (2**64 - 16).to_bytes(8, "little")


def larger_heap(data, heap):
    """The library reads the second part of a large heap separately: zeros, in the numbers of x."""
    data[heap + 8 : heap + 16] = (6000).to_bytes(8, "little")


def huge_heap(data, heap):
    data[heap + 8 : heap + 16] = (2**40).to_bytes(8, "little")


@pytest.mark.parametrize("damage", [empty_object, overflowing_object, larger_heap, huge_heap])
def test_a_heap_of_texts_on_which_the_library_would_loop_for_ever_is_refused(tmp_path, damage):
    data = attribute_file(tmp_path / "a.h5")
    damage(data, data.index(b"GCOL"))
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(DemonstrationError, match="heap"), opened(tmp_path / "a.h5") as file:
        file.attribute("", "text")


def test_a_text_of_gigabytes_in_an_attribute_is_refused_before_there_is_room_for_it(tmp_path):
    data = attribute_file(tmp_path / "a.h5")
    heap = data.index(b"GCOL").to_bytes(8, "little")
    place = data.index((90).to_bytes(4, "little") + heap)
    data[place : place + 4] = b"\xff" * 4
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(DemonstrationError, match="too long"), opened(tmp_path / "a.h5") as file:
        file.attribute("", "text")


def test_texts_of_gigabytes_in_a_list_are_refused_before_there_is_room_for_them(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = ["abc" * 30, "abc"]
    data = bytearray((tmp_path / "a.h5").read_bytes())
    place = data.index((90).to_bytes(4, "little") + data.index(b"GCOL").to_bytes(8, "little"))
    data[place : place + 4] = b"\xff" * 4
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(DemonstrationError, match="texts of 4294967298 bytes"), opened(tmp_path / "a.h5") as file:
        file.texts("x")


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_long_texts_are_read(tmp_path, libver):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.attrs["text"] = "abc" * 100_000
        file.attrs.update({f"other{i}": i for i in range(50)})
        file["x"] = ["abc" * 20_000, "", "x"]
    with opened(tmp_path / "a.h5") as file:
        assert file.attribute("", "text") == "abc" * 100_000
        assert file.texts("x") == ["abc" * 20_000, "", "x"]


def test_a_cut_off_file_is_refused_wherever_it_is_cut(tmp_path):
    path = write(tmp_path / "a.h5", x=np.arange(1000.0))
    data = path.read_bytes()
    for length in (0, 4, 8, 100, 1000, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(DemonstrationError, match=r"a\.h5"), opened(path) as file:
            file.dataset("x").read()


def test_a_user_block_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as file:
        file["x"] = np.arange(3)
    with pytest.raises(DemonstrationError), opened(tmp_path / "a.h5"):
        pass


def test_the_limit_counts_all_arrays_and_can_be_raised(tmp_path, monkeypatch):
    path = write(tmp_path / "a.h5", x=np.zeros(1000), y=np.zeros(1000))
    monkeypatch.setenv("UNDERSTUDY_READ_LIMIT", "10kB")
    with opened(path) as file:
        file.dataset("x")
        file.dataset("y", rows=3)
        with pytest.raises(DemonstrationError, match=r"declares 16\.0 kB"):
            file.dataset("y")
    monkeypatch.setenv("UNDERSTUDY_READ_LIMIT", "20kB")
    with opened(path) as file:
        assert file.dataset("x").read().shape == file.dataset("y").read().shape == (1000,)


def test_reading_takes_little_more_memory_than_the_numbers(tmp_path):
    array = np.ones((40_000, 50))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["whole"] = array
        file.create_dataset("chunks", data=array, chunks=(1000, 50), compression="gzip")
    for name in ("whole", "chunks"):
        with opened(tmp_path / "a.h5") as file:
            tracemalloc.start()
            found = file.dataset(name).read(dtype=np.float32)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 1.5 * array.nbytes
        assert found.nbytes == array.nbytes / 2


def test_without_h5py_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    path = write(tmp_path / "a.h5", x=np.zeros(3))
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ExtraError, match="pip install"), opened(path):
        pass


def test_hdf5_files_are_recognised_by_their_first_bytes(tmp_path):
    path = write(tmp_path / "a.h5", x=np.zeros(3))
    (tmp_path / "text").write_text("hello", encoding="utf-8")
    assert is_hdf5(path)
    assert not any(is_hdf5(tmp_path / name) for name in ("", "text", "none"))
