"""An ONNX file of standard operators, compared with `predict` in onnxruntime before it is written.

Inputs and outputs have a symbolic batch axis:

    observation    float32 (batch, n); int64 (batch,) for a tabular policy, whose observation is the index of a state
    t              int64 (batch,), the time step of the episode from 0; time-indexed policies only
    last_action    float32 (batch, actions), the action before; with `max_change` only
    action         the deterministic action, within its bounds: float32 (batch, actions), or int64 (batch,)

If an observation is NaN or infinite, its action is NaN, or -1 if actions are discrete.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from understudy.core.errors import missing_extra
from understudy.core.paths import REPLACE, check_new_file, check_own_file
from understudy.core.storage import atomic_file
from understudy.core.types import Continuous
from understudy.core.version import __version__
from understudy.deploy.forward import FIELDS, Node, grid_point
from understudy.policies.export.checking import TOLERANCE, Export, Written

FLOAT, BOOL = 1, 9
"""ONNX's numbers for types."""
OPSET, IR_VERSION = 17, 8
"""Versions of ONNX that runtimes from 2022 on read."""

START = f"\x08{chr(IR_VERSION)}\x12\x0aunderstudy"
"""How the file begins: the version of its format, and the name of its producer."""


def write(path: Path, what: Export) -> Written:
    """Write the file, after comparing it with `predict`."""
    if what.replace:
        check_own_file(path, START)
    else:
        check_new_file(path, REPLACE)
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise missing_extra("onnx", "exporting to ONNX needs onnx and onnxruntime") from error
    data = Graph(what, onnx).model().SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def call(trial: dict[str, np.ndarray]) -> np.ndarray:
        actions: np.ndarray = session.run(["action"], trial)[0]
        return actions

    difference = what.compare(call, TOLERANCE, "ONNX")
    with atomic_file(path, what.replace) as partial:
        partial.write_bytes(data)
    return Written(path, (path.name,), difference, len(what.trials()["observation"]), what.inputs)


class Graph:
    """A policy as the nodes of an ONNX graph. Methods return the names of their outputs."""

    def __init__(self, what: Export, onnx: Any):
        self.what, self.onnx = what, onnx
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.time: str | None = None
        """The index of the policy to use, while the graph is inside a time-indexed policy."""

    def model(self) -> Any:
        """The model, checked by ONNX."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        spec = self.what.actor.spec
        action = self.guarded(self.bounded(self.policy(self.what.policy, "observation")))
        self.add("Identity", action, output="action")
        shapes = {
            "observation": (spec.obs_shape, types.FLOAT if self.what.states is None else types.INT64),
            "t": ((), types.INT64),
            "last_action": (spec.action.shape, types.FLOAT),
            "action": (spec.action.shape, types.FLOAT if isinstance(spec.action, Continuous) else types.INT64),
        }
        inputs, outputs = (
            [helper.make_tensor_value_info(name, shapes[name][1], ["batch", *shapes[name][0]]) for name in names]
            for names in (self.what.inputs, ["action"])
        )
        graph = helper.make_graph(self.nodes, "policy", inputs, outputs, self.weights)
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="understudy")
        model.producer_version = __version__
        metadata = self.what.metadata
        helper.set_model_props(model, {key: json.dumps(value) for key, value in metadata.items()})
        self.onnx.checker.check_model(model, full_check=True)
        return model

    def add(self, op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Append a node; return the name of its output."""
        output = f"{op.lower()}_{len(self.nodes)}" if output is None else output
        self.nodes.append(self.onnx.helper.make_node(op, inputs, [output], **attributes))
        return output

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"constant_{len(self.weights)}"
        self.weights.append(self.onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def array(self, value: np.ndarray) -> str:
        """An array of the policy: inside a time-indexed policy, the one of each observation's time step."""
        name = self.constant(value)
        return name if self.time is None else self.add("Gather", name, self.time, axis=0)

    def policy(self, policy: Node, obs: str) -> str:
        """The deterministic action of a policy, before the bounds."""
        if policy.kind == "Normalized":
            return self.decoded(
                policy.normalization, self.policy(policy.policy, self.encoded(policy.normalization, obs))
            )
        if policy.kind == "TimeIndexed":
            last = _count(policy.policies) - 1
            self.time = self.add("Clip", "t", self.constant(0, np.int64), self.constant(last, np.int64))
            action = self.policy(policy.policies, obs)
            self.time = None
            return action
        if policy.kind == "Timed":
            time = self.add("Min", self.add("Cast", "t", to=FLOAT), self.constant(policy.horizon))
            column = self.add("Unsqueeze", time, self.constant([1], np.int64))
            time = self.add("Div", column, self.constant(policy.horizon))
            return self.policy(policy.policy, self.add("Concat", obs, time, axis=1))
        if policy.kind == "Binned":
            points = grid_point(np.arange(policy.bins**policy.size), policy.bins, policy.size)
            chosen = self.add("ArgMax", self.network(policy.net, obs), axis=-1, keepdims=0)
            return self.add("Gather", self.constant(points), chosen, axis=0)
        if policy.kind == "Deterministic":
            return self.squashed(policy, self.network(policy.net, obs))
        if policy.kind == "Gaussian":  # the first half of the outputs is the mean
            half = policy.net.biases[-1].shape[-1] // 2
            return self.add("Tanh", self.network(_last_layer(policy.net, half), obs))
        if policy.kind == "Mixture":
            return self.clamp(self.heaviest(policy, obs), 1.0)
        if policy.kind == "StateDependent":
            return self.add("Tanh", self.clamp(self.network(policy.net, obs), policy.clip))
        if policy.kind == "Ensemble" and policy.members.kind == "Deterministic":
            return self.mean([self.policy(member, obs) for member in self.members(policy)])
        if policy.kind == "Independent":
            parts = self.parts(self.network(policy.net, obs), policy.nvec)
            return self.add("Concat", *(self.add("ArgMax", one, axis=-1, keepdims=1) for one in parts), axis=1)
        return self.add("ArgMax", self.scores(policy, obs), axis=-1, keepdims=0)

    def heaviest(self, policy: Node, obs: str) -> str:
        """The mean of a mixture's heaviest component. The outputs begin with its logits and means."""
        count = policy.components
        means = (policy.net.biases[-1].shape[-1] - count) // 2
        net = _last_layer(policy.net, count + means)
        logits, flat = self.parts(self.network(net, obs), (count, means))
        each = self.add("Reshape", flat, self.constant([0, count, means // count], np.int64))
        return self.add("GatherND", each, self.add("ArgMax", logits, axis=-1, keepdims=1), batch_dims=1)

    def parts(self, out: str, nvec: tuple[int, ...]) -> list[str]:
        """The outputs of each of several categoricals."""
        sizes = [f"part_{len(self.nodes)}_{i}" for i in range(len(nvec))]
        self.nodes.append(self.onnx.helper.make_node("Split", [out, self.constant(nvec, np.int64)], sizes, axis=1))
        return sizes

    def scores(self, policy: Node, obs: str) -> str:
        """Logits or probabilities of discrete actions."""
        if policy.kind == "Categorical":
            return self.network(policy.net, obs)
        if policy.kind == "Ensemble":
            logits = [self.network(member.net, obs) for member in self.members(policy)]
            return self.mean([self.add("Softmax", one, axis=-1) for one in logits])
        if self.time is None:
            return self.add("Gather", self.constant(policy.table), obs, axis=0)
        states, actions = policy.table.shape[-2:]
        index = self.add("Add", self.add("Mul", self.time, self.constant(states, np.int64)), obs)
        return self.add("Gather", self.constant(policy.table.reshape(-1, actions)), index, axis=0)

    def members(self, policy: Node) -> list[Node]:
        members = policy.members
        axis = 0 if self.time is None else 1
        count = members.net.weights[0].shape[axis]
        return [_mapped(members, lambda array, i=i: array.take(i, axis)) for i in range(count)]

    def mean(self, parts: list[str]) -> str:
        return self.add("Mean", *parts)

    def network(self, net: Node, x: str) -> str:
        if net.input_indices is not None:
            x = self.add("Gather", x, self.constant(net.input_indices, np.int64), axis=1)
        layers = list(zip(net.weights, net.biases, strict=True))
        for i, (weight, bias) in enumerate(layers):
            x = self.layer(weight, bias, x)
            if i < len(layers) - 1 and net.activation != "identity":
                x = self.add({"relu": "Relu", "tanh": "Tanh"}[net.activation], x)
        return x

    def layer(self, weight: np.ndarray, bias: np.ndarray, x: str) -> str:
        if self.time is None:
            return self.add("Gemm", x, self.array(weight), self.array(bias))
        axis = self.constant([1], np.int64)  # (batch, 1, inputs) @ (batch, inputs, outputs)
        product = self.add("MatMul", self.add("Unsqueeze", x, axis), self.array(weight))
        return self.add("Add", self.add("Squeeze", product, axis), self.array(bias))

    def squashed(self, policy: Node, out: str) -> str:
        if policy.clip is not None:
            out = self.clamp(out, policy.clip)
        return self.add("Tanh", out) if policy.squash else out

    def clamp(self, x: str, limit: float) -> str:
        return self.add("Clip", x, self.constant(-limit), self.constant(limit))

    def encoded(self, normalization: Node, obs: str) -> str:
        centered = self.add("Sub", obs, self.array(normalization.obs_mean))
        standardized = self.add("Div", centered, self.array(normalization.obs_std))
        return standardized if normalization.obs_clip is None else self.clamp(standardized, normalization.obs_clip)

    def decoded(self, normalization: Node, act: str) -> str:
        if normalization.act_center is None:
            return act
        scaled = self.add("Mul", self.clamp(act, 1.0), self.array(normalization.act_scale))
        return self.add("Add", scaled, self.array(normalization.act_center))

    def bounded(self, act: str) -> str:
        """The action limited in rate, if asked for, and within its bounds."""
        space = self.what.actor.spec.action
        if not isinstance(space, Continuous):
            return act
        if self.what.max_change is not None:
            change = self.add("Sub", act, "last_action")
            change = self.add("Max", change, self.constant(np.negative(self.what.max_change)))
            change = self.add("Min", change, self.constant(self.what.max_change))
            act = self.add("Add", "last_action", change)
        return self.add("Min", self.add("Max", act, self.constant(space.low)), self.constant(space.high))

    def guarded(self, act: str) -> str:
        """The action if the observation is finite. Operators differ in what they make of NaN."""
        if self.what.states is not None:
            return act
        largest = self.constant(np.finfo(np.float32).max)
        finite = self.add("Cast", self.add("LessOrEqual", self.add("Abs", "observation"), largest), to=FLOAT)
        space = self.what.actor.spec.action
        discrete = not isinstance(space, Continuous)
        all_finite = self.add("Cast", self.add("ReduceMin", finite, axes=[1], keepdims=len(space.shape)), to=BOOL)
        return self.add("Where", all_finite, act, self.constant(-1, np.int64) if discrete else self.constant(np.nan))


def _mapped(value: Any, act: Callable[[np.ndarray], np.ndarray]) -> Any:
    """A policy with a function applied to its arrays."""
    if isinstance(value, Node):
        return Node(value.kind, {name: _mapped(getattr(value, name), act) for name in FIELDS[value.kind]})
    if isinstance(value, tuple):
        return tuple(_mapped(one, act) for one in value)
    return act(value) if isinstance(value, np.ndarray) else value


def _last_layer(net: Node, outputs: int) -> Node:
    """The network with only the first outputs."""
    cut = {name: (*getattr(net, name)[:-1], getattr(net, name)[-1][..., :outputs]) for name in ("weights", "biases")}
    return Node("MLP", {**{name: getattr(net, name) for name in FIELDS["MLP"]}, **cut})


def _count(policies: Any) -> int:
    """The number of time steps of a time-indexed policy."""
    found: list[int] = []

    def noted(array: np.ndarray) -> np.ndarray:
        found.append(len(array))
        return array

    _mapped(policies, noted)
    return found[0]
