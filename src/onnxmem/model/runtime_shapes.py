"""Which shapes does ONNX Runtime know before a run? It shares memory between tensors only where it is sure of them.

The graph it saves tells this of the tensors that the model had. Those that its optimizer added, such as the blocked
tensors between convolutions, it leaves out: for them, what its own inference can see is followed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnxmem.model.graph import Graph, Node, Tensor

RuntimeShape = tuple[int | str | None, ...]

# Convolution and pooling carry the batch over as it is, by name too; sizes in space only where they are numbers.
_SPATIAL = frozenset(
    {"Conv", "FusedConv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "ConvTranspose", "Upsample"}
)
_CARRYING = frozenset({"ReorderInput", "ReorderOutput", "Relu", "Sigmoid", "Clip", "BatchNormalization", "QuickGelu"})


def with_runtime_shapes(graph: Graph, declared: Mapping[str, RuntimeShape]) -> Graph:
    """The graph with what ONNX Runtime knows of every shape; `declared` are those of the model's inputs.

    Of a graph inside a node, they are those of its own inputs, and of all that is known around it.
    """
    shapes: dict[str, RuntimeShape] = {**declared, **{weight.name: weight.shape for weight in graph.weights}}
    tensors, nodes = dict(graph.tensors), list(graph.nodes)
    for position, node in enumerate(nodes):
        if node.subgraphs:
            inner = tuple(with_runtime_shapes(each, {**shapes, **_inputs(each)}) for each in node.subgraphs)
            nodes[position] = replace(node, subgraphs=inner)
        for name in filter(None, node.outputs):
            tensor = tensors[name]
            if tensor.runtime_shape is None:
                inputs = [shapes.get(n) for n in node.inputs if n]
                tensor = tensors[name] = replace(tensor, runtime_shape=_inferred(node, inputs, tensor))
            if tensor.runtime_shape is not None:
                shapes[name] = tensor.runtime_shape
    return replace(graph, tensors=tensors, nodes=tuple(nodes))


def _inputs(graph: Graph) -> dict[str, RuntimeShape]:
    shapes = {name: graph.tensors[name].runtime_shape for name in graph.inputs if name in graph.tensors}
    return {name: shape for name, shape in shapes.items() if shape is not None}


def _inferred(node: Node, inputs: list[RuntimeShape | None], tensor: Tensor) -> RuntimeShape | None:
    shape = tensor.shape
    if shape is None or not all(isinstance(dim, int) for dim in shape) or not inputs or inputs[0] is None:
        return None
    numbers = tuple(int(str(dim)) for dim in shape)
    if all(known is not None and all(isinstance(dim, int) for dim in known) for known in inputs):
        return numbers
    data = inputs[0]
    if len(data) != len(numbers):
        return None
    if node.op_type in _CARRYING:
        return tuple(number if isinstance(dim, int) else dim for dim, number in zip(data, numbers, strict=True))
    if node.op_type in _SPATIAL:
        fixed = all(isinstance(dim, int) for dim in data[2:]) or node.op_type.startswith("Global")
        return (data[0], numbers[1], *(numbers[2:] if fixed else (None,) * (len(numbers) - 2)))
    return None
