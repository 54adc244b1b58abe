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


def local(node: StaticNode, graph: StaticGraph, axis: int) -> Local | None:
    """How the node's outputs can be computed in parts along this axis; None if that is not proven to be exact."""
    rule = RULES.get((node.domain, node.op_type))
    if rule is None or node.captured or not node.outputs or not node.inputs or not node.inputs[0]:
        return None
    lengths = {
        shape[axis] if axis < len(shape) else 0 for shape in map(graph.shape, filter(None, node.outputs)) if shape
    }
    if len(lengths) != 1 or min(lengths) < 2:
        return None
    return rule(node, graph, axis)
