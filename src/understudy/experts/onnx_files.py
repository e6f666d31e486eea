"""Policies from ONNX files, run by onnxruntime on the CPU (extra `onnx`).

The model takes float32 or float64 observations of shape (n, size) and returns actions of shape (n, size) in the
environment's units. For discrete actions it returns their numbers (n,), or a score for each action (n, actions); the
largest score counts. If it has several outputs, the first one of such a shape is used.

A file is data. It may have standard operations only, no loops, none that make large arrays from nothing, and no tensors
in other files; `onnx_sizes` limits its memory and work. onnxruntime gets the bytes that were checked, and no path.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from understudy.core.errors import SpecError, missing_extra
from understudy.core.paths import checked_path
from understudy.core.reader import FileReader
from understudy.core.text import quoted
from understudy.core.types import Discrete, Spec
from understudy.envs.stepping import reason
from understudy.experts.onnx_sizes import check_sizes

ENDING = ".onnx"
LARGEST = 256_000_000
"""Bytes of a file."""
MOST_NODES = 10_000
DOMAINS = ("", "ai.onnx")
NETWORK = """
    Abs Add And ArgMax BatchNormalization Cast Clip Concat Constant Div Elu Equal Erf Exp Flatten Floor Gather
    Gelu Gemm Greater GreaterOrEqual HardSigmoid HardSwish Identity InstanceNormalization LayerNormalization
    LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max Mean Min Mish Mul Neg Not Or Pow PRelu Reciprocal
    ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Round Selu Shape Sigmoid Sign Slice Softmax Softplus
    Softsign Split Sqrt Squeeze Sub Sum Tanh ThresholdedRelu Transpose Unsqueeze Where
"""
OPERATIONS = frozenset(NETWORK.split())
"""Operations of a network. Loops, and operations that fill, repeat or draw, are none."""
TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64}
TRIAL = 3


class OnnxPolicy:
    """An ONNX model as a function from a batch of observations to a batch of actions."""

    def __init__(self, path: str | os.PathLike[str], spec: Spec, env: str):
        path = checked_path(path)
        self.__name__ = quoted(path.name, 300)
        self._reader = FileReader(path, "an ONNX policy", "export it again")
        self._spec = spec
        self._session = self.opened(self._checked(self._reader.bytes(LARGEST)))
        inputs = self._session.get_inputs()
        size = spec.obs_size
        known = inputs[0].shape if len(inputs) == 1 else []
        if len(known) != 2 or inputs[0].type not in TYPES or (isinstance(known[1], int) and known[1] != size):
            given = ", ".join(f"{one.name} {one.type}{one.shape}" for one in inputs)
            raise SpecError(f"'{self._reader.name}' takes {quoted(given)}: {env} needs float32 of shape (n, {size})")
        if isinstance(known[0], int) and known[0] != 1:
            raise SpecError(
                f"'{self._reader.name}' takes batches of {known[0]}: export it with a batch of any size, or of 1"
            )
        self._by_row = known[0] == 1
        self._input, self._type = inputs[0].name, TYPES[inputs[0].type]
        self._output = self._chosen(env)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        found = self._run(obs)[self._output]
        return found.argmax(axis=1) if self._is_score(found) else found

    def _chosen(self, env: str) -> int:
        """The output that has actions, by a trial call."""
        try:
            outputs = self._run(np.zeros((TRIAL, self._spec.obs_size), np.float32))
        except Exception as error:
            raise SpecError(f"'{self._reader.name}' cannot be run: {reason(error)}") from error
        for index, found in enumerate(outputs):
            if found.shape == (TRIAL, *self._spec.action.shape) or self._is_score(found):
                return index
        shapes = ", ".join(
            f"{one.name} {found.shape}" for one, found in zip(self._session.get_outputs(), outputs, strict=True)
        )
        needed = (TRIAL, *self._spec.action.shape)
        raise SpecError(
            f"'{self._reader.name}' returns {quoted(shapes)} for {TRIAL} observations: actions of {env} have the shape "
            f"{needed}"
        )

    def _is_score(self, found: np.ndarray) -> bool:
        return isinstance(self._spec.action, Discrete) and found.ndim == 2 and found.shape[1] == self._spec.action.n

    def _run(self, obs: np.ndarray) -> list[np.ndarray]:
        obs = np.ascontiguousarray(obs, self._type)
        if not self._by_row:
            return [np.asarray(found) for found in self._session.run(None, {self._input: obs})]
        rows = [self._session.run(None, {self._input: row[None]}) for row in obs]
        return [np.concatenate([np.atleast_1d(one) for one in column]) for column in zip(*rows, strict=True)]

    def opened(self, model: bytes) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        with self._reader.guarded():
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], enable_fallback=0)

    def _checked(self, data: bytes) -> bytes:
        """The model, written again from what was checked."""
        try:
            import onnx
            import onnxruntime  # noqa: F401
        except ImportError as error:
            raise missing_extra("onnx", f"'{self._reader.name}' needs onnx and onnxruntime") from error
        with self._reader.guarded():
            model = onnx.ModelProto()
            model.ParseFromString(data)
            self._check_graph(model, onnx)
            check_sizes(model, onnx, TRIAL)
            checked: bytes = model.SerializeToString()
        return checked

    def _check_graph(self, model: Any, onnx: Any) -> None:
        """Raise ValueError unless the model is a plain graph of known operations with its numbers inside."""
        graph = model.graph
        if not graph.node or len(graph.node) > MOST_NODES:
            raise ValueError(f"it has {len(graph.node)} operations, and 1 to {MOST_NODES} are read")
        if len(model.functions) or len(model.training_info) or len(graph.sparse_initializer):
            raise ValueError("it has functions, training information or sparse tensors")
        for node in graph.node:
            if node.domain not in DOMAINS or node.op_type not in OPERATIONS:
                name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
                raise ValueError(f"it has the operation {quoted(name, 60)}, which is not one of a plain network")
        for tensor in _tensors(graph, onnx):
            if tensor.data_location == onnx.TensorProto.EXTERNAL or len(tensor.external_data):
                raise ValueError(f"its tensor {quoted(tensor.name, 60)} is in another file, which is not read")


def _tensors(graph: Any, onnx: Any) -> Iterator[Any]:
    """All tensors of a graph. Raises ValueError for a graph inside the graph."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            kind = onnx.AttributeProto
            if attribute.type in (kind.GRAPH, kind.GRAPHS, kind.SPARSE_TENSOR, kind.SPARSE_TENSORS):
                raise ValueError(f"the operation {quoted(node.op_type, 60)} has a graph or a sparse tensor inside")
            if attribute.HasField("g") or len(attribute.graphs):
                raise ValueError(f"the operation {quoted(node.op_type, 60)} has a graph inside")
            yield attribute.t
            yield from attribute.tensors
