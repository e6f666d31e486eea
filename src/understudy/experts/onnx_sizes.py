"""How much memory and work an ONNX model takes, from the shapes of its values, before it runs.

A file of a few bytes can add a column to a row, or double a tensor thirty times: both give gigabytes. onnx infers the
shape of every value for a batch of known size. A model whose shapes cannot be inferred, or that is too large, is
refused.
"""

import math
from typing import Any

MOST_NUMBERS, MOST_PRODUCTS = 50_000_000, 10_000_000_000
"""Numbers of all values together, and products of all matrix multiplications, for a batch of a few observations."""
MULTIPLIES = ("MatMul", "Gemm")


def check_sizes(model: Any, onnx: Any, rows: int) -> None:
    """Raise ValueError if the model takes too much memory or work for `rows` observations. The model is not changed."""
    shapes = _shapes(model, onnx, rows)
    numbers = products = 0
    for node in model.graph.node:
        for name in filter(None, node.output):
            if name not in shapes:
                raise ValueError(f"the shape of '{name}', a result of {node.op_type}, is not known before it runs")
            numbers += math.prod(shapes[name])
            if node.op_type in MULTIPLIES:
                products += math.prod(shapes[name]) * max(shapes.get(node.input[0], ()), default=1)
        if numbers > MOST_NUMBERS or products > MOST_PRODUCTS:
            raise ValueError(f"it computes more than {MOST_NUMBERS} numbers, or multiplies more than {MOST_PRODUCTS}")


def _shapes(model: Any, onnx: Any, rows: int) -> dict[str, tuple[int, ...]]:
    """The shapes of all values: those that the file declares about results do not count."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    del graph.value_info[:]
    for one in graph.output:
        one.type.tensor_type.ClearField("shape")
    for one in graph.input:
        for length in one.type.tensor_type.shape.dim:
            if not length.HasField("dim_value"):
                length.dim_value = rows
    inferred = onnx.shape_inference.infer_shapes(copy, strict_mode=True, data_prop=True).graph
    found = {one.name: tuple(one.dims) for one in inferred.initializer}
    for one in (*inferred.input, *inferred.value_info, *inferred.output):
        lengths = one.type.tensor_type.shape.dim
        known = one.type.tensor_type.HasField("shape") and all(length.HasField("dim_value") for length in lengths)
        if known and all(length.dim_value >= 0 for length in lengths):
            found[one.name] = tuple(length.dim_value for length in lengths)
    return found
