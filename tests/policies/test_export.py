"""Exported policies act as `predict` does, in NumPy, ONNX and JAX, and never on NaN."""

import importlib.util
import json
import subprocess
import sys

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import understudy as us
from support.fuzzing import make_policies
from understudy.core.errors import ExtraError, RunError, SettingError, SpecError
from understudy.policies import Actor, Categorical, Deterministic, Mixture, Normalized, Tabular, TimeIndexed
from understudy.policies.checks import check_policy
from understudy.policies.export import Export, export, onnx_file
from understudy.policies.export.numpy_file import module_text
from understudy.policies.networks import MLP
from understudy.policies.normalization import Normalization

KINDS = ("network", "gaussian", "noisy", "ensemble", "choices", "timed", "table", "tables", "mixture")


@pytest.fixture(scope="module")
def actors(tmp_path_factory):
    """One of each class, with tables that have no ties."""
    found = {path.stem: us.load_policy(path) for path in make_policies(tmp_path_factory.mktemp("policies"))}
    rows = np.random.default_rng(0).dirichlet(np.ones(3), (2, 6)).astype(np.float32)
    for name, policy in {"table": Tabular(rows[0]), "tables": TimeIndexed(Tabular(rows))}.items():
        found[name] = Actor(policy, found[name].spec, found[name].about)
    return found


@pytest.fixture(scope="module")
def exported(actors, tmp_path_factory):
    """The exported Python modules, imported from their files."""
    folder = tmp_path_factory.mktemp("exported")
    modules = {}
    for name, actor in actors.items():
        export(actor, folder / name)
        spec = importlib.util.spec_from_file_location(f"exported_{name}", folder / name / "policy.py")
        modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[name])
    return modules


def observations(actor, count, seed=0):
    random = np.random.default_rng(seed)
    if not actor.spec.obs_shape:
        return random.integers(0, 6, count)
    return (3 * random.normal(size=(count, *actor.spec.obs_shape))).astype(np.float32)


def test_every_kind_of_policy_is_tried(actors):
    assert set(actors) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_the_numpy_file_acts_as_predict_does_to_the_last_bit(actors, exported, name):
    actor, policy = actors[name], exported[name].load()
    for count in (1, 2, 7, 64):
        obs = observations(actor, count)
        np.testing.assert_array_equal(policy.predict(obs)[0], actor.predict(obs)[0], strict=True)
    one = observations(actor, 1)[0]
    np.testing.assert_array_equal(policy.predict(one)[0], actor.predict(one)[0], strict=True)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("deterministic", [True, False])
def test_the_numpy_file_acts_alike_through_episodes(actors, exported, name, deterministic):
    actor, policy = actors[name], exported[name].load()
    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    state = other = None
    for t in range(12):
        obs, begins = observations(actor, 3, t), np.array([t == 0, t in (0, 5), t in (0, 7)])
        expected, state = actor.predict(obs, state, begins, deterministic, ours)
        actions, other = policy.predict(obs, other, begins, deterministic, theirs)
        np.testing.assert_array_equal(actions, expected, strict=True)
        assert (state is None) == (other is None)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("limit", [None, 0.1])
def test_onnx_acts_as_predict_does(actors, name, limit, tmp_path):
    actor = actors[name]
    if limit is not None and actor.spec.num_actions is not None:
        with pytest.raises(SettingError, match=r"max_change is .* these are discrete"):
            export(actor, tmp_path / "p.onnx", "onnx", limit)
        return
    written = export(actor, tmp_path / "p.onnx", "onnx", limit)
    assert 0 <= written.difference <= 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "p.onnx")
    assert [one.name for one in session.get_inputs()] == list(written.inputs)
    assert ("t" in written.inputs) == (name in ("timed", "tables"))
    for count in (1, 5):
        given = {"observation": observations(actor, count)}
        zeros = np.zeros(count, np.int64)
        if "t" in written.inputs:
            given["t"] = zeros
        if limit is not None:
            given["last_action"] = np.zeros((count, 2), np.float32)
        actions = session.run(["action"], given)[0]
        expected = actor.predict(given["observation"])[0]
        if limit is not None:
            expected = np.clip(expected, -limit, limit)
        np.testing.assert_allclose(actions, expected, atol=1e-5)
    props = {entry.key: json.loads(entry.value) for entry in onnx.load(tmp_path / "p.onnx").metadata_props}
    assert props["about"] == actor.about
    assert props["spec"]["obs_shape"] == list(actor.spec.obs_shape)


@pytest.mark.parametrize("name", ["network", "choices", "timed", "tables", "mixture"])
def test_jax_acts_as_predict_does(actors, name, tmp_path):
    actor = actors[name]
    limit = None if actor.spec.num_actions is not None else [0.1, 0.2]
    written = export(actor, tmp_path / "p", "jax", limit)
    assert 0 <= written.difference <= 1e-5
    function = jax.export.deserialize(bytearray((tmp_path / "p/policy.jax").read_bytes()))
    about = json.loads((tmp_path / "p/policy.json").read_text())
    assert [argument["name"] for argument in about["arguments"]] == list(written.inputs)
    for count in (1, 5):
        obs = observations(actor, count)
        given = [obs.astype(np.float32 if actor.spec.obs_shape else np.int32)]
        given += [np.zeros(count, np.int32)] * ("t" in written.inputs)
        given += [np.zeros((count, 2), np.float32)] * (limit is not None)
        expected = actor.predict(obs)[0]
        if limit is not None:
            expected = np.clip(expected, -np.array(limit), limit)
        np.testing.assert_allclose(function.call(*given), expected, atol=1e-5)


@pytest.mark.parametrize(("name", "refusal"), [("network", np.nan), ("choices", -1)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_no_export_acts_on_an_observation_that_is_not_finite(actors, exported, name, refusal, bad, tmp_path):
    actor, policy = actors[name], exported[name].load()
    obs = observations(actor, 3)
    obs[1, 2] = bad
    for act in (policy, policy.predict, actor, actor.predict):
        with pytest.raises(ValueError, match="1 values that are NaN or infinite"):
            act(obs)
    export(actor, tmp_path / "p.onnx", "onnx")
    export(actor, tmp_path / "p", "jax")
    function = jax.export.deserialize(bytearray((tmp_path / "p/policy.jax").read_bytes()))
    for actions in (
        onnxruntime.InferenceSession(tmp_path / "p.onnx").run(["action"], {"observation": obs})[0],
        np.asarray(function.call(obs)),
    ):
        np.testing.assert_array_equal(actions[1], np.full_like(actions[1], refusal))
        np.testing.assert_allclose(actions[[0, 2]], actor(obs[[0, 2]]), atol=1e-5)


def test_an_onnx_file_that_acts_otherwise_is_refused_and_not_written(actors, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file.Graph, "clamp", lambda self, x, limit: x)
    with pytest.raises(RunError, match="the ONNX file is refused: its actions differ by"):
        export(actors["network"], tmp_path / "p.onnx", "onnx")
    monkeypatch.setattr(
        onnx_file.Graph, "scores", lambda self, policy, obs: self.network(policy.members.at(0).net, obs)
    )
    with pytest.raises(RunError, match="refused"):
        export(actors["choices"], tmp_path / "p.onnx", "onnx")
    assert not list(tmp_path.iterdir())


def test_different_discrete_actions_with_equal_scores_are_no_difference(tmp_path):
    """Both actions have the same weights, so rounding may choose either."""
    weight = np.ones((3, 2), np.float32)
    actor = Actor(Categorical(MLP((weight,), (np.zeros(2, np.float32),), "relu")), us.Spec((3,), us.Discrete(2), 9))
    assert export(actor, tmp_path / "p.onnx", "onnx").difference == 0


def test_a_missing_library_is_named_with_the_command_that_installs_it(actors, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ExtraError, match=r"needs onnx and onnxruntime: pip install 'understudy-il\[onnx\]'"):
        export(actors["network"], tmp_path / "p.onnx", "onnx")


def test_nothing_is_overwritten(actors, tmp_path):
    for to, path in {"numpy": tmp_path / "a", "jax": tmp_path / "b", "onnx": tmp_path / "c.onnx"}.items():
        actors["network"].export(path, to)
        with pytest.raises(RunError, match=r"holds|already exists"):
            actors["network"].export(path, to)
        actors["gaussian"].export(path, to, replace=True)


def test_only_our_own_exports_are_replaced(actors, tmp_path):
    for to, file in {"numpy": "policy.py", "jax": "policy.json", "onnx": "p.onnx"}.items():
        (tmp_path / to).mkdir()
        (tmp_path / to / file).write_text("mine")
        with pytest.raises(RunError, match="is not a file that this command wrote"):
            actors["network"].export(tmp_path / to / "p.onnx" if to == "onnx" else tmp_path / to, to, replace=True)
        assert (tmp_path / to / file).read_text() == "mine"
    actors["network"].export(tmp_path / "p")
    (tmp_path / "p/notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"holds 'notes\.txt'"):
        actors["network"].export(tmp_path / "p", replace=True)


def wide(low=-1.0, high=1.0):
    """A linear policy whose actions would be far outside the bounds."""
    net = MLP((np.full((1, 1), 50, np.float32),), (np.zeros(1, np.float32),), "identity")
    return Actor(Deterministic(net), us.Spec((1,), us.Continuous((low,), (high,)), 9))


def load_limited(actor, folder, limit):
    actor.export(folder, max_change=limit)
    return us.deploy.load(folder)


def test_actions_are_clipped_to_their_bounds(tmp_path):
    """Also where the decoded end of the range is above the bound by rounding."""
    actor = wide(0.1, 0.7)
    policy = load_limited(actor, tmp_path / "p", None)
    np.testing.assert_array_equal(policy([[9.0], [-9.0]]), np.array([[0.7], [0.1]], np.float32))
    np.testing.assert_array_equal(actor([[9.0], [-9.0]]), np.array([[0.7], [0.1]], np.float32))
    scale = Normalization(*np.array([[0.0], [1.0], [0.40000004], [0.3]], np.float32))
    over = Actor(Normalized(Deterministic(actor.policy.net), scale), actor.spec)
    assert float(over.policy.mode(None, np.ones((1, 1), np.float32))[0, 0]) > np.float32(0.7)
    assert over([9.0])[0] == np.float32(0.7)


def test_the_rate_of_actions_is_limited_within_an_episode(tmp_path):
    policy = load_limited(wide(), tmp_path / "p", 0.25)
    with pytest.raises(ValueError, match=r"memory within an episode: call reset\(\)"):
        policy([1.0])
    policy.reset()
    assert [float(policy([x])[0]) for x in (1, -1, -1, 1)] == [1.0, 0.75, 0.5, 0.75]
    policy.reset()
    assert float(policy([-1.0])[0]) == -1.0, "the first action of an episode is free"
    policy.reset(last_action=[0.5])
    assert float(policy([-1.0])[0]) == 0.25
    with pytest.raises(ValueError, match="last_action is"):
        policy.reset([2.0])
    with pytest.raises(ValueError, match="last_action is"):
        policy.reset([np.nan])


def test_predict_limits_the_rate_by_its_state(tmp_path):
    policy = load_limited(wide(), tmp_path / "p", [0.25])
    state, seen = None, []
    for t in range(4):
        obs = np.array([[1.0], [1.0]]) if t % 2 == 0 else np.array([[-1.0], [-1.0]])
        actions, state = policy.predict(obs, state, np.array([t == 0, t in (0, 3)]))
        seen.append(actions[:, 0].tolist())
    assert seen == [[1.0, 1.0], [0.75, 0.75], [1.0, 1.0], [0.75, -1.0]]
    with pytest.raises(ValueError, match="state is that of 2 observations, and there are 1"):
        policy.predict([1.0], state)


@pytest.mark.parametrize("limit", [0, -1, np.nan, np.inf, [0.1, 0.1], "fast", []])
def test_a_wrong_limit_is_named(limit, tmp_path):
    with pytest.raises(SettingError, match="max_change is"):
        wide().export(tmp_path / "p", max_change=limit)


def test_an_unknown_kind_of_export_is_named(tmp_path):
    with pytest.raises(SettingError, match="to is 'tflite': choose one of 'numpy', 'onnx', 'jax'"):
        wide().export(tmp_path / "p", "tflite")


def test_the_numpy_file_needs_neither_understudy_nor_jax(actors, tmp_path):
    """As a program: a summary, and actions for an array on standard input."""
    actor = actors["network"]
    actor.export(tmp_path / "p")
    run = [sys.executable, "-I", "-X", "importtime", str(tmp_path / "p/policy.py")]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["about"] == actor.about
    imported = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "numpy" in imported
    assert not imported & {"jax", "jaxlib", "understudy", "equinox", "gymnasium"}
    obs = observations(actor, 4)
    np.save(tmp_path / "obs.npy", obs)
    piped = (tmp_path / "obs.npy").read_bytes()
    done = subprocess.run([sys.executable, "-I", str(tmp_path / "p/policy.py"), "-"], input=piped, capture_output=True)
    np.testing.assert_array_equal(np.array(json.loads(done.stdout), np.float32), actor(obs))


def test_the_numpy_file_refuses_what_it_cannot_read(actors, exported, tmp_path):
    actors["network"].export(tmp_path / "p")
    with np.load(tmp_path / "p/policy.npz") as file:
        arrays = dict(file)
    load, structure = exported["network"].load, json.loads(str(arrays["structure.json"]))
    names = [name for name in arrays if name != "structure.json"]
    damages = {
        "export it again": {"structure.json": np.array(json.dumps({**structure, "format": 3}))},
        "no finite numbers": {names[0]: np.full_like(arrays[names[0]], np.nan)},
        "the fields of its": {
            "structure.json": np.array(json.dumps({**structure, "policy": {"class": "MLP", "fields": {}}}))
        },
    }
    for message, damage in damages.items():
        np.savez(tmp_path / "bad.npz", **{**arrays, **damage})
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "bad.npz")
    np.savez(tmp_path / "pickle.npz", **{**arrays, "structure.json": np.array({"a": 1})})
    with pytest.raises(ValueError, match="allow_pickle"):
        load(tmp_path / "pickle.npz")


def test_the_numpy_file_is_one_module_without_imports_of_ours():
    text = module_text()
    assert "from understudy" not in text
    assert text.count("import numpy as np") == 1
    assert text.startswith('"""A trained policy')


def test_independent_categoricals_are_exported(tmp_path):
    from understudy.policies import Independent

    spec = us.Spec((4,), us.MultiDiscrete((3, 5, 2)), 9)
    actor = Actor(Independent.init(jax.random.key(0), 4, (3, 5, 2), (8,)), spec)
    obs = observations(actor, 20)
    actor.export(tmp_path / "p")
    policy = us.deploy.load(tmp_path / "p")
    np.testing.assert_array_equal(policy(obs), actor(obs), strict=True)
    samples = [one.predict(obs, deterministic=False, random=np.random.default_rng(0))[0] for one in (policy, actor)]
    np.testing.assert_array_equal(*samples, strict=True)
    assert actor.export(tmp_path / "p.onnx", "onnx").difference == 0
    assert actor.export(tmp_path / "j", "jax").difference == 0
    obs[1, 2] = np.nan
    actions = onnxruntime.InferenceSession(tmp_path / "p.onnx").run(["action"], {"observation": obs})[0]
    assert (actions[1] == -1).all()


def test_a_mixture_for_each_time_step_is_exported(tmp_path):
    """Each time step and observation picks the heaviest of its own components."""
    rng = np.random.default_rng(0)
    shapes = ((3, 4, 5), (3, 5, 8)), ((3, 5), (3, 8))
    weights, biases = (tuple(rng.normal(size=shape).astype(np.float32) for shape in each) for each in shapes)
    policy = TimeIndexed(Mixture(MLP(weights, biases, "tanh"), 2))  # 2 logits, 2 × 1 means, 2 × 1 σ, and 2 over
    with pytest.raises(SpecError, match="weights 1 has shape"):
        check_policy(policy, us.Spec((4,), us.Continuous((-1.0,), (1.0,)), 9))
    policy = jax.tree.map(lambda x: x[..., :6] if x.shape[-1] == 8 else x, policy)
    actor = Actor(policy, us.Spec((4,), us.Continuous((-1.0,), (1.0,)), 9))
    for kind in ("numpy", "onnx", "jax"):
        assert export(actor, tmp_path / kind, kind).difference <= 1e-5
    chosen = {policy_at(policy, t).parameters(row)[0].argmax() for t in range(3) for row in observations(actor, 20)}
    assert chosen == {0, 1}


def policy_at(policy, t):
    return jax.tree.map(lambda x: x[t], policy.policies)


def test_different_components_with_equal_weights_are_no_difference():
    """Two components far apart: a file may take the other one where the logits tie, and only there."""
    spec = us.Spec((1,), us.Continuous((-1.0,), (1.0,)), 9)
    biases = np.float32([1.0, 1.0, -2.0, 2.0, 0.0, 0.0])

    def difference(logit):
        weights = (np.zeros((1, 6), np.float32),)
        actor = Actor(Mixture(MLP(weights, (biases + np.float32([0, logit, 0, 0, 0, 0]),), "relu"), 2), spec)
        export_of = Export(actor, None, {})
        return export_of.compare(lambda trial: -actor.predict(trial["observation"])[0], 1e-5, "NumPy")

    assert difference(0.0) == 0
    with pytest.raises(RunError, match="refused"):
        difference(0.1)
