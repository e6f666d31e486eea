"""The tensors of a PyTorch file: what is read equals the file's numbers, and no file can do anything else."""

import io
import pickle
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import understudy as us
from support.fuzzing import TARGETS, attack
from support.mutations import loaded
from support.sb3_mutations import FIRED, HOSTILE_PICKLES, OTHER_PICKLES, archive, changed, with_pickle
from understudy.core.errors import RunError
from understudy.core.reader import FileReader
from understudy.experts.torch_files import Tensor, TensorFile, read_tensors

MODELS = Path(__file__).parents[1] / "data_files" / "sb3"
PPO = MODELS / "ppo.zip"
FOUR = np.arange(4, dtype=np.float32).tobytes()


def tensor_file(path):
    return TensorFile(FileReader(path, "a model", "save it again"), "policy.pth")


def written(tmp_path, data):
    path = tmp_path / "model.zip"
    path.write_bytes(data)
    return path


def test_the_tensors_of_a_file_have_the_numbers_of_its_storages():
    file = tensor_file(PPO)
    assert file.shapes["mlp_extractor.policy_net.0.weight"] == (8, 3)
    with zipfile.ZipFile(PPO) as outer, zipfile.ZipFile(io.BytesIO(outer.read("policy.pth"))) as inner:
        stored = np.frombuffer(inner.read("archive/data/1"), np.float32).reshape(8, 3)
    array = file.read(["mlp_extractor.policy_net.0.weight"])["mlp_extractor.policy_net.0.weight"]
    np.testing.assert_array_equal(array, stored)
    assert array.dtype == np.float32


@pytest.mark.parametrize("name", HOSTILE_PICKLES)
def test_a_pickle_that_python_would_run_is_refused_and_runs_nothing(name, tmp_path):
    program = HOSTILE_PICKLES[name]
    try:
        pickle.loads(program)  # noqa: S301 (our own pickle: it shows that it is hostile)
    except (pickle.UnpicklingError, ImportError, TypeError):
        assert FIRED  # it fired, and failed after that
    assert FIRED
    FIRED.clear()
    with pytest.raises(ValueError, match="its pickle"):
        read_tensors(program)
    path = written(tmp_path, with_pickle(PPO.read_bytes(), lambda _: program))
    with pytest.raises(RunError, match=r"model\.zip.*its pickle"):
        us.policy_from_sb3(path, "Pendulum-v1")
    assert not FIRED


@pytest.mark.parametrize("name", OTHER_PICKLES)
def test_a_pickle_that_is_no_dictionary_of_tensors_is_refused_in_one_line(name, tmp_path):
    path = written(tmp_path, with_pickle(PPO.read_bytes(), lambda _: OTHER_PICKLES[name]))
    tracemalloc.start()
    assert loaded(lambda: us.policy_from_sb3(path, "Pendulum-v1"), "model.zip") is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000


def storage(kind="Float", size=4):
    return (
        b"(X\x07\x00\x00\x00storagectorch\n"
        + f"{kind}Storage\n".encode()
        + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK"
        + bytes([size])
        + b"tQ"
    )


def tensor_program(offset=0, shape=(2, 2), strides=(2, 1), kind="Float", size=4):
    """A pickle with one tensor, "a"."""

    def numbers(values):
        return b"(" + b"".join(b"J" + value.to_bytes(4, "little", signed=True) for value in values) + b"t"

    return (
        b"\x80\x02ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n("
        + storage(kind, size)
        + b"J"
        + offset.to_bytes(4, "little", signed=True)
        + numbers(shape)
        + numbers(strides)
        + b"\x89ccollections\nOrderedDict\n)RtRu."
    )


def model(program, contents=FOUR, more=()):
    inner = archive([("x/data.pkl", program), ("x/data/0", contents), *more])
    return archive([("data", b"{}"), ("policy.pth", inner)])


def test_strides_and_offsets_select_the_numbers_that_pytorch_selects(tmp_path):
    for program, expected in (
        (tensor_program(), [[0, 1], [2, 3]]),
        (tensor_program(strides=(1, 2)), [[0, 2], [1, 3]]),
        (tensor_program(offset=1, shape=(3,), strides=(1,)), [1, 2, 3]),
        (tensor_program(offset=3, shape=(1,), strides=(0,)), [3]),
        (tensor_program(shape=(), strides=()), 0),
    ):
        file = tensor_file(written(tmp_path, model(program)))
        np.testing.assert_array_equal(file.read(["a"])["a"], np.array(expected))


@pytest.mark.parametrize(("kind", "dtype"), [("Float", np.float32), ("Double", np.float64), ("Half", np.float16)])
def test_three_types_of_numbers_are_read(kind, dtype, tmp_path):
    file = tensor_file(written(tmp_path, model(tensor_program(kind=kind), np.arange(4, dtype=dtype).tobytes())))
    assert file.read(["a"])["a"].tolist() == [[0, 1], [2, 3]]
    assert file.read(["a"])["a"].dtype == dtype


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (tensor_program(offset=1), "outside of its 4 numbers"),
        (tensor_program(shape=(3, 2)), "outside of its 4 numbers"),
        (tensor_program(shape=(2**31 - 1, 2**31 - 1), strides=(0, 0)), "outside of its 4 numbers"),
        (tensor_program(shape=(2, 0)), "outside of its 4 numbers"),
        (tensor_program(strides=(100, 1)), "outside of its 4 numbers"),
        (tensor_program(shape=(2,), strides=(2, 1)), "1 axes and 2 strides"),
        (tensor_program(shape=(1,) * 9, strides=(1,) * 9), "9 axes"),
        (tensor_program(strides=(-2, 1)), "calls something that is no tensor"),
        (tensor_program(offset=-1), "calls something that is no tensor"),
        (tensor_program(size=5), "5 numbers are declared"),
        (tensor_program(kind="Long"), "LongStorage: FloatStorage, DoubleStorage, HalfStorage are read"),
        (tensor_program(kind="BFloat16"), "BFloat16Storage"),
        (tensor_program(kind="Evil"), "names torch.EvilStorage"),
    ],
)
def test_a_tensor_outside_of_its_storage_is_refused(program, reason, tmp_path):
    with pytest.raises(RunError, match=reason) as failure:
        tensor_file(written(tmp_path, model(program))).read(["a"])
    assert "model.zip" in str(failure.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (archive([("data", b"{}"), ("other", b"")]), "has no policy.pth"),
        (archive([("data", b"{}"), ("policy.pth", b"\x80\x02old")]), "PyTorch before 1.6"),
        (archive([("data", b"{}"), ("policy.pth", archive([("x/a", b"")]))]), "it has 0 data.pkl"),
        (model(tensor_program(), more=[("y/data.pkl", b"")]), "it has 2 data.pkl"),
        (model(tensor_program(), more=[("x/byteorder", b"big")]), "byte order"),
        (model(tensor_program(), b"\0" * 15), "4 numbers are declared"),
        (model(b"\x80\x02" + b"}0" * 2_100_000 + b"}."), "its pickle has 4.2 MB"),
    ],
)
def test_another_archive_is_refused(data, reason, tmp_path):
    with pytest.raises(RunError, match=reason):
        tensor_file(written(tmp_path, data)).read(["a"])


def test_tensors_that_are_not_asked_for_are_not_read(tmp_path):
    """Those of optimizers may be of any type, and their numbers may be missing."""
    program = tensor_program(kind="Long")
    assert isinstance(read_tensors(program)["a"], Tensor)
    assert tensor_file(written(tmp_path, model(program, b""))).shapes == {"a": (2, 2)}


@pytest.mark.parametrize("member", ["data", "policy.pth"])
def test_a_small_file_that_declares_much_is_refused_before_it_is_read(member, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as out:
        for name in ("data", "policy.pth"):
            out.writestr(name, b" " * 100_000_000 if name == member else b"{}")
    path = written(tmp_path, buffer.getvalue())
    tracemalloc.start()
    with pytest.raises(RunError, match=r"100\.0 MB, and at most 16\.0 MB are read"):
        us.policy_from_sb3(path, "Pendulum-v1")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_three_hundred_damaged_models_are_read_as_something_valid_or_refused(tmp_path):
    """`tools/fuzz.py models` damages thousands."""
    target = TARGETS["models"]
    (tmp_path / "valid").mkdir()
    valid = target.make(tmp_path / "valid")
    read = [attack(target, valid, tmp_path, seed)[1] for seed in range(300)]
    assert 0 < sum(read) < 150
    assert not FIRED


def test_settings_that_are_not_readable_are_refused(tmp_path):
    for text, reason in ((b"[1]", "no table"), (b"{", "JSONDecodeError"), (b"\xff", "UnicodeDecodeError")):
        path = written(tmp_path, changed(PPO.read_bytes(), "data", lambda old, text=text: text))
        with pytest.raises(RunError, match=reason):
            us.policy_from_sb3(path, "Pendulum-v1")
    deep = b'{"policy_kwargs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(RunError, match="RecursionError"):
        us.policy_from_sb3(written(tmp_path, changed(PPO.read_bytes(), "data", lambda old: deep)), "Pendulum-v1")
