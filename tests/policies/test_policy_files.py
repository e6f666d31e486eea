"""Policy files: what cannot act is refused on load, with the file's name and the reason."""

import json
import os
import pickle
import tracemalloc

import numpy as np
import pytest

import understudy as us
from support.fuzzing import check_actor, make_policies
from understudy.core.errors import RunError
from understudy.policies import MLP, Actor, Deterministic
from understudy.policies.actor import read_policy


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    return {path.stem: path for path in make_policies(tmp_path_factory.mktemp("policies"))}


def changed(valid, name, folder, arrays=None, structure=None):
    """A copy of a policy file: `arrays` replaces arrays, `structure` changes the JSON value in place."""
    with np.load(valid[name], allow_pickle=False) as file:
        contents = dict(file)
    value = json.loads(str(contents["structure.json"]))
    if structure is not None:
        structure(value)
    contents |= {"structure.json": np.array(json.dumps(value)), **(arrays or {})}
    np.savez(folder / "changed.npz", **{key: array for key, array in contents.items() if array is not None})
    return folder / "changed.npz"


def network(value):
    return value["policy"]["fields"]["policy"]["fields"]


def test_every_kind_of_policy_comes_back_and_acts(valid):
    for path in valid.values():
        check_actor(us.load_policy(path))


WEIGHTS, STD = "policy.policy.net.weights.0", "policy.normalization.obs_std"
FLOATS = {WEIGHTS: (2, 5), "policy.policy.net.biases.1": (2,), STD: (4,)}


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda a: np.full_like(a, np.nan), "NaN or infinite"),
        (lambda a: np.where(np.arange(a.size).reshape(a.shape) == 1, np.inf, a), "NaN or infinite"),
        (lambda a: a[..., :-1], "has shape"),
        (lambda a: a[None], "has shape"),
        (lambda a: a.astype(np.float16), "float32 or float64"),
        (lambda a: a.astype(">f4"), "float32 or float64"),
        (lambda a: a.astype(np.int64), "type int64"),
        (lambda a: a.astype(object), "never read"),
        (lambda a: None, "it has no"),
    ],
)
def test_damaged_arrays_are_refused(valid, tmp_path, name, change, reason):
    path = changed(valid, "network", tmp_path, {name: change(np.ones(FLOATS[name], np.float32))})
    with pytest.raises(RunError, match=rf"changed\.npz' is not a policy saved by understudy \(.*{reason}"):
        us.load_policy(path)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [(WEIGHTS, 3e38, "overflow"), (STD, 1e-38, "overflow"), (STD, 0, "not above 0"), (STD, -1, "not above 0")],
)
def test_numbers_that_would_overflow_in_an_action_are_refused(valid, tmp_path, name, value, reason):
    path = changed(valid, "network", tmp_path, {name: np.full(FLOATS[name], value, np.float32)})
    with pytest.raises(RunError, match=reason):
        us.load_policy(path)


def swap_class(name):
    def change(value):
        value["policy"]["class"] = name

    return change


STRUCTURES = {
    "another activation": (
        lambda v: network(v)["net"]["fields"].update(activation={"value": "gelu"}),
        "activation is 'g",
    ),
    "an activation that is a list": (
        lambda v: network(v)["net"]["fields"].update(activation={"tuple": []}),
        r"activation is \(\)",
    ),
    "a negative clip": (lambda v: network(v).update(clip={"value": -1}), "clip is -1"),
    "an endless clip": (lambda v: network(v).update(clip={"value": 10**400}), "clip is 1000"),
    "a clip of text": (lambda v: network(v).update(clip={"value": "\x1b[31m"}), "clip is"),
    "squash of 1": (lambda v: network(v).update(squash={"value": 1}), "squash is 1"),
    "an index out of range": (
        lambda v: network(v)["net"]["fields"].update(input_indices={"tuple": [{"value": 0}, {"value": 4}]}),
        r"input_indices is \(0, 4\)",
    ),
    "an unknown class": (swap_class("Popen"), "contains"),
    "another class": (swap_class("TimeIndexed"), "fields of its TimeIndexed"),
    "a missing field": (lambda v: network(v).pop("clip"), "fields of its Deterministic"),
    "another field": (lambda v: network(v).update(more={"value": 1}), "fields of its Deterministic"),
    "an array twice": (
        lambda v: network(v)["net"]["fields"].update(biases=network(v)["net"]["fields"]["weights"]),
        "contains",
    ),
    "layers that are missing": (lambda v: network(v)["net"]["fields"].update(biases={"tuple": []}), "without layers"),
    "a network in place of a policy": (lambda v: v.update(policy=network(v)["net"]), "a MLP for continuous actions"),
    "a value that is an object": (lambda v: network(v).update(clip={"value": {}}), "contains"),
    "a node with two kinds": (lambda v: network(v).update(clip={"value": 1, "array": "x"}), "contains"),
    "nodes without end": (lambda v: network(v).update(clip={"tuple": [{"value": 1}] * 100_001}), "too large"),
    "other observations": (lambda v: v["spec"].update(obs_shape=[3]), "has shape"),
    "observations without end": (lambda v: v["spec"].update(obs_shape=[10**9, 10**9]), "observations of shape"),
    "other actions": (lambda v: v["spec"].update(action={"n": 3}, kind="Discrete"), "discrete actions"),
    "actions of another kind": (lambda v: v["spec"].update(kind="Discrete"), "another kind"),
    "bounds in the wrong order": (lambda v: v["spec"]["action"].update(low=[5.0, 5.0]), "low < high"),
    "an endless horizon": (lambda v: v["spec"].update(horizon=10**30), "'horizon' is"),
    "observed entries that do not exist": (lambda v: v["spec"].update(policy_obs=[9]), "policy_obs"),
    "no spec": (lambda v: v.pop("spec"), "has no 'spec'"),
    "metadata that is a list": (lambda v: v.update(about=[]), "'about' is"),
    "a format of text": (lambda v: v.update(format="4"), "'format' is"),
}


@pytest.mark.parametrize("case", STRUCTURES)
def test_a_damaged_structure_is_refused(valid, tmp_path, case):
    change, reason = STRUCTURES[case]
    path = changed(valid, "network", tmp_path, structure=change)
    with pytest.raises(RunError, match=reason) as failure:
        us.load_policy(path)
    assert "changed.npz" in str(failure.value)
    assert str(failure.value).isprintable()
    assert len(str(failure.value)) < 600


@pytest.mark.parametrize(
    ("name", "arrays", "reason"),
    [
        ("table", {"policy.table": np.zeros((6, 3))}, "not probabilities"),
        ("table", {"policy.table": np.full((6, 2), 0.5)}, "has shape"),
        ("tables", {"policy.policies.table": np.full((6, 3), 1 / 3)}, "has shape"),
        ("tables", {"policy.policies.table": np.zeros((0, 6, 3))}, "an empty stack"),
        ("noisy", {"policy.log_std": np.full((5, 2), 500, np.float32)}, "log_std is out of range"),
        ("noisy", {"policy.log_std": np.zeros((4, 2), np.float32)}, "log_std has shape"),
        ("ensemble", {"policy.policy.members.net.biases.1": np.zeros((4, 2), np.float32)}, "has shape"),
        ("timed", {"policy.policy.policies.net.biases.0": np.zeros(5, np.float32)}, "has shape"),
        ("gaussian", {"policy.policy.net.biases.1": np.zeros(2, np.float32)}, "has shape"),
        ("mixture", {"policy.policy.net.biases.1": np.zeros(14, np.float32)}, "has shape"),
    ],
)
def test_damaged_policies_of_other_classes_are_refused(valid, tmp_path, name, arrays, reason):
    with pytest.raises(RunError, match=reason):
        us.load_policy(changed(valid, name, tmp_path, arrays))


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "3", None, 10**9])
def test_a_wrong_number_of_components_is_refused(valid, tmp_path, count):
    def change(value):
        network(value).update(components={"value": count})

    with pytest.raises(RunError, match="components is"):
        us.load_policy(changed(valid, "mixture", tmp_path, structure=change))


def test_other_members_are_not_decompressed_and_a_long_structure_is_refused(valid, tmp_path):
    path = changed(valid, "network", tmp_path, {"bomb": np.zeros(4_000_000)})
    long = changed(valid, "network", tmp_path, structure=None).with_name("long.npz")
    np.savez_compressed(long, **{"structure.json": np.array(" " * 4_000_001)})
    tracemalloc.start()
    assert us.load_policy(path).spec.obs_shape == (4,)
    with pytest.raises(RunError, match=r"at most 16\.0 MB"):
        us.load_policy(long)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_directory_a_pipe_and_a_pickle_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "policy.pkl").write_bytes(pickle.dumps(Deterministic))
    for name, reason in (("pipe.npz", "not a regular file"), ("policy.pkl", "a pickle")):
        with pytest.raises(RunError, match=reason):
            us.load_policy(tmp_path / name)


def test_the_policy_of_a_diverged_run_can_be_read_and_only_there(tmp_path):
    nan = Deterministic(MLP((np.full((3, 1), np.nan, np.float32),), (np.zeros(1, np.float32),), "relu"))
    Actor(nan, us.Spec((3,), us.Continuous((-1.0,), (1.0,)), 5)).save(tmp_path / "nan.npz")
    with pytest.raises(RunError, match="NaN or infinite"):
        us.load_policy(tmp_path / "nan.npz")
    assert np.isnan(read_policy(tmp_path / "nan.npz", diverged=True)(np.zeros(3))).all()
