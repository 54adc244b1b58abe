"""All operators that can be computed in parts, each with its rule."""

from __future__ import annotations

from collections.abc import Mapping

from onnxmem.model.blocks import BLOCKED_DOMAIN
from onnxmem.rewriting import elementwise, layout, windows
from onnxmem.rewriting.local import Local, Rule
from onnxmem.rewriting.static import StaticGraph, StaticNode

_OWN = "com.microsoft"
RULES: Mapping[tuple[str, str], Rule] = {
    **{("", name): elementwise.unary for name in elementwise.UNARY},
    **{(_OWN, name): elementwise.unary for name in ("Gelu", "QuickGelu")},
    **{("", name): elementwise.broadcasting for name in elementwise.BROADCASTING},
    ("", "BatchNormalization"): elementwise.batch_normalization,
    ("", "LRN"): elementwise.local_response,
    ("", "Conv"): windows.conv,
    (_OWN, "FusedConv"): windows.conv,
    (BLOCKED_DOMAIN, "Conv"): windows.conv,
    **{(domain, name): windows.pool for domain in ("", BLOCKED_DOMAIN) for name in ("MaxPool", "AveragePool")},
    ("", "Resize"): windows.resize,
    ("", "Upsample"): windows.resize,
    (BLOCKED_DOMAIN, "Upsample"): windows.resize,
    ("", "ConvTranspose"): windows.conv_transpose,
    ("", "DepthToSpace"): windows.depth_to_space,
    ("", "SpaceToDepth"): windows.space_to_depth,
    ("", "Concat"): layout.concat,
    ("", "Split"): layout.split,
    ("", "Slice"): layout.slicing,
    ("", "Pad"): layout.padding,
    ("", "Transpose"): layout.transpose,
    (BLOCKED_DOMAIN, "ReorderInput"): layout.reorder_input,
    (BLOCKED_DOMAIN, "ReorderOutput"): layout.reorder_output,
    **{("", name): layout.reshape for name in ("Reshape", "Squeeze", "Unsqueeze", "Flatten")},
}


# Kernels of other types add up in other ways; that they only move elements is true of any type.
_PROVEN = ("float32", "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def local(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """How the node's outputs can be computed in parts along this axis; None if that is not proven to be exact."""
    rule = RULES.get((node.domain, node.op_type))
    if rule is None or node.captured or not node.inputs or not node.inputs[0]:
        return None
    outputs = [graph.tensors.get(name) for name in node.outputs if name]
    lengths = {tensor.shape[axis] if tensor and axis < len(tensor.shape) else 0 for tensor in outputs}
    if len(lengths) != 1 or min(lengths) < 2:
        return None
    types = {tensor.dtype for name in node.inputs[:1] if (tensor := graph.tensors.get(name))}
    types |= {tensor.dtype for tensor in outputs if tensor}
    if rule.__module__ != layout.__name__ and not types.issubset(_PROVEN):
        return None
    found = rule(node, graph, axis)
    if found is None or any(
        w and name not in graph.tensors for w, name in zip(found.windows, node.inputs, strict=True)
    ):
        return None
    return found
