"""ONNX files as experts: actions equal those of the network, and a file can have nothing but a network."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import understudy as us
from support.byte_mutations import BYTES
from support.mutations import loaded
from understudy.core.errors import ExtraError, RunError, SpecError
from understudy.experts.expert import as_expert

RANDOM = np.random.default_rng(0)
CART, SWING = us.make("CartPole-v1"), us.make("Pendulum")
W, B = RANDOM.normal(size=(3, 1)).astype(np.float32), np.zeros(1, np.float32)
V = RANDOM.normal(size=(4, 2)).astype(np.float32)
OBS = RANDOM.normal(size=(20, 3)).astype(np.float32)


def model(nodes, outputs, inputs=3, weights=None, batch="n", kind=TensorProto.FLOAT, **more):
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("obs", kind, [batch, inputs])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {"w": W, "b": B}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, **more)


GEMM = helper.make_node("Gemm", ["obs", "w", "b"], ["out"])
TANH = helper.make_node("Tanh", ["out"], ["act"])
SCORES = helper.make_node("MatMul", ["obs", "v"], ["scores"])


def swing(**changes):
    return model([GEMM, TANH], {"act": TensorProto.FLOAT}, **changes)


def saved(tmp_path, made, name="policy.onnx"):
    (tmp_path / name).write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return tmp_path / name


def answers(path, env, obs):
    return as_expert(path, env).query(obs, env.spec, np.random.default_rng(0))


@pytest.mark.parametrize("batch", ["n", 1])
def test_the_actions_are_those_of_the_network(batch, tmp_path):
    path = saved(tmp_path, swing(batch=batch))
    np.testing.assert_allclose(answers(path, SWING, OBS), np.tanh(OBS @ W + B), atol=1e-6)
    recorded = us.record(SWING, str(path), 1)
    np.testing.assert_allclose(recorded.actions, np.tanh(recorded.observations @ W), atol=1e-5)


def test_scores_of_discrete_actions_and_their_numbers_are_both_taken(tmp_path):
    obs = RANDOM.normal(size=(20, 4)).astype(np.float32)
    chosen = helper.make_node("ArgMax", ["scores"], ["act"], axis=1, keepdims=0)
    scores = model([SCORES], {"scores": TensorProto.FLOAT}, 4, {"v": V})
    numbers = model([SCORES, chosen], {"act": TensorProto.INT64}, 4, {"v": V})
    for made in (scores, numbers):
        np.testing.assert_array_equal(answers(saved(tmp_path, made), CART, obs), (obs @ V).argmax(1))


def test_of_several_outputs_the_one_with_actions_is_taken(tmp_path):
    value = helper.make_node("ReduceMean", ["obs"], ["value"], axes=[1], keepdims=0)
    made = model([value, GEMM, TANH], {"value": TensorProto.FLOAT, "act": TensorProto.FLOAT})
    np.testing.assert_allclose(answers(saved(tmp_path, made), SWING, OBS), np.tanh(OBS @ W), atol=1e-6)


def external():
    made = swing()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    return made


def hidden_external():
    constant = numpy_helper.from_array(W, "w")
    constant.ClearField("raw_data")
    constant.data_location = TensorProto.EXTERNAL
    constant.external_data.add(key="location", value="secret")
    node = helper.make_node("Constant", [], ["w"], value=constant)
    return model([node, GEMM, TANH], {"act": TensorProto.FLOAT}, weights={"b": B})


def loop():
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["d"])], "b", [], [])
    return model([helper.make_node("Loop", ["n"], ["act"], body=body)], {"act": TensorProto.FLOAT})


def branch():
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["d"])], "b", [], [])
    return model([helper.make_node("Identity", ["obs"], ["act"], body=body)], {"act": TensorProto.FLOAT})


def doubled():
    """Thirty times the same tensor twice: 3 billion numbers."""
    nodes = [helper.make_node("Concat", [f"x{i}"] * 2, [f"x{i + 1}"], axis=1) for i in range(30)]
    ends = [
        helper.make_node("ReduceSum", ["x30"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x0", "sum"], ["act"]),
    ]
    return model([helper.make_node("MatMul", ["obs", "w"], ["x0"]), *nodes, *ends], {"act": TensorProto.FLOAT})


def multiplied():
    """A row times a column, multiplied by itself a thousand times."""
    nodes = [helper.make_node("MatMul", [f"x{i}"] * 2, [f"x{i + 1}"]) for i in range(1000)]
    ends = [helper.make_node("ReduceSum", ["x1000"], ["s"], keepdims=0), helper.make_node("Mul", ["obs", "s"], ["act"])]
    weights = {"row": np.zeros((1, 500), np.float32), "column": np.zeros((500, 1), np.float32)}
    first = helper.make_node("MatMul", ["column", "row"], ["x0"])
    return model([first, *nodes, *ends], {"act": TensorProto.FLOAT}, weights=weights)


def unknown():
    """A shape that depends on the observations."""
    nodes = [
        helper.make_node("Cast", ["obs"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["whole", "all"], ["shape"]),
        helper.make_node("Reshape", ["obs", "shape"], ["act"]),
    ]
    return model(nodes, {"act": TensorProto.FLOAT}, weights={"all": np.array([-1], np.int64)})


REFUSED = {
    "doubled": (doubled(), "it computes more than"),
    "multiplied": (multiplied(), "it computes more than"),
    "unknown": (unknown(), "is not known before it runs"),
    "external": (external(), "its tensor w is in another file"),
    "hidden": (hidden_external(), "its tensor w is in another file"),
    "custom": (
        model([helper.make_node("Evil", ["obs"], ["act"], domain="com.evil")], {"act": TensorProto.FLOAT}),
        "the operation com.evil.Evil",
    ),
    "contrib": (
        model([helper.make_node("FusedGemm", ["obs"], ["act"], domain="com.microsoft")], {"act": TensorProto.FLOAT}),
        "the operation com.microsoft.FusedGemm",
    ),
    "loop": (loop(), "the operation Loop"),
    "branch": (branch(), "a graph or a sparse tensor inside"),
    "fill": (
        model([helper.make_node("ConstantOfShape", ["w"], ["act"])], {"act": TensorProto.FLOAT}),
        "the operation ConstantOfShape",
    ),
    "functions": (
        swing(functions=[helper.make_function("x", "f", [], [], [], [helper.make_opsetid("", 17)])]),
        "it has functions",
    ),
    "nothing": (onnx.ModelProto(), "it has 0 operations"),
    "garbage": (b"\xff" * 40, "DecodeError"),
    "invalid": (model([TANH], {"act": TensorProto.FLOAT}), "is not an ONNX policy"),
}


def test_a_shape_that_is_computed_from_the_batch_is_known(tmp_path):
    """As PyTorch exports x.view(len(x), -1)."""
    weights = {"w": W, "b": B, "zero": np.array(0, np.int64), "axes": np.array([0], np.int64), "rest": np.array([-1])}
    nodes = [
        helper.make_node("Shape", ["obs"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Unsqueeze", ["rows", "axes"], ["row"]),
        helper.make_node("Concat", ["row", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["obs", "wanted"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["out"]),
        TANH,
    ]
    path = saved(tmp_path, model(nodes, {"act": TensorProto.FLOAT}, weights=weights))
    np.testing.assert_allclose(answers(path, SWING, OBS), np.tanh(OBS @ W + B), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_with_anything_but_a_network_is_refused_by_name(name, tmp_path):
    made, reason = REFUSED[name]
    with pytest.raises(RunError, match=rf"policy\.onnx.*{reason}") as failure:
        as_expert(saved(tmp_path, made), SWING)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("made", "env", "reason"),
    [
        (
            swing(inputs=5, weights={"w": np.ones((5, 1), np.float32), "b": B}),
            SWING,
            r"takes obs tensor\(float\).*5.*: Pendulum needs float32 of shape \(n, 3\)",
        ),
        (swing(batch=8), SWING, "takes batches of 8"),
        (swing(kind=TensorProto.INT64), SWING, "is not an ONNX policy|takes obs tensor"),
        (model([SCORES], {"scores": TensorProto.FLOAT}, 4, {"v": V[:, :1]}), CART, r"scores \(3, 1\).*shape \(3,\)"),
    ],
)
def test_a_network_of_another_task_is_refused(made, env, reason, tmp_path):
    with pytest.raises((SpecError, RunError), match=reason) as failure:
        as_expert(saved(tmp_path, made), env)
    assert "policy.onnx" in str(failure.value)


def test_an_action_out_of_range_is_named(tmp_path):
    path = saved(tmp_path, model([GEMM], {"out": TensorProto.FLOAT}))
    with pytest.raises(SpecError, match=r"the expert policy\.onnx returned .* out of range"):
        answers(path, SWING, 100 * OBS)


def test_without_onnxruntime_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ExtraError, match=r"understudy-il\[onnx\]"):
        as_expert(saved(tmp_path, swing()), SWING)


def test_damaged_files_are_read_as_something_valid_or_refused(tmp_path):
    valid, refused = swing().SerializeToString(), 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        path = saved(tmp_path, BYTES[random.integers(len(BYTES))](valid, random))
        expert = loaded(lambda path=path: as_expert(path, SWING), "policy.onnx")
        refused += expert is None
        if expert is not None:
            loaded(lambda expert=expert: expert.query(OBS, SWING.spec, np.random.default_rng(0)), "policy.onnx")
    assert 100 < refused < 300
