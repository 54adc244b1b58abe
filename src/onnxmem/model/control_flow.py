"""The shapes that If, Loop and Scan hand on: what their subgraphs make, as far as it is the same every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnx import GraphProto, NodeProto, TensorProto

from onnxmem.model.dims import Dim, Expr, symbol
from onnxmem.model.tensor_types import Partial, Scope, TensorType, either, partial_of

Branch = Callable[[GraphProto, Mapping[str, TensorType]], Scope]
"""Goes through a subgraph with these types of its inputs."""
Unknown = Callable[[str], Expr]
"""A new dimension that nothing is known of but why."""

_CHANGES = "it changes from one iteration to the next"


def infer_control_flow(
    node: NodeProto,
    graphs: Sequence[GraphProto],
    attributes: Mapping[str, Any],
    scope: Scope,
    branch: Branch,
    unknown: Unknown,
) -> tuple[list[Scope], list[Partial]]:
    """What is known inside of each subgraph of the node, and of its outputs."""
    if node.op_type == "If":
        return _if(graphs, branch)
    inner, found = (
        _loop(node, graphs[0], scope, branch, unknown)
        if node.op_type == "Loop"
        else _scan(node, graphs[0], attributes, scope, branch)
    )
    return [inner], found


def _if(graphs: Sequence[GraphProto], branch: Branch) -> tuple[list[Scope], list[Partial]]:
    branches = [branch(graph, {}) for graph in graphs]
    results = [
        [inner.type_of(value.name) for value in graph.output] for graph, inner in zip(graphs, branches, strict=True)
    ]
    return branches, [either(pair, "the branches of If differ") for pair in zip(*results, strict=False)]


def _loop(
    node: NodeProto, body: GraphProto, scope: Scope, branch: Branch, unknown: Unknown
) -> tuple[Scope, list[Partial]]:
    carried = [scope.type_of(name) for name in node.input[2:]]
    count = len(carried)
    inputs = {body.input[0].name: TensorType(TensorProto.INT64, ()), body.input[1].name: TensorType(9, ())}
    for value, kind in zip(body.input[2:], carried, strict=False):
        if kind is not None:
            inputs[value.name] = kind
    # A carried value that changes shape has no one shape: go through the body again without assuming one. Others may
    # follow from it, so until nothing changes; each time at least one dimension more is open.
    while True:
        inner = branch(body, inputs)
        outputs = [inner.type_of(value.name) for value in body.output[1:]]
        wider = {
            value.name: _widened(inputs[value.name], after, unknown)
            for value, after in zip(body.input[2:], outputs, strict=False)
            if value.name in inputs and after is not None
        }
        if all(kind is inputs[name] for name, kind in wider.items()):
            break
        inputs.update(wider)
    trips = scope.value_of(node.input[0]) if node.input and node.input[0] else None
    # A count is the number of iterations only if nothing can end the loop early.
    certain = trips is not None and len(node.input) > 1 and not node.input[1]
    length: Dim | None = trips.item(0) if certain and trips is not None else None
    reason = "the number of iterations is not known"
    # It may not run at all, and then hands on what it was given.
    found = [
        either([before, after], _CHANGES) if before is not None else partial_of(after)
        for before, after in zip(carried, outputs[:count], strict=False)
    ]
    found += [
        Partial(kind.elem_type, None if kind.shape is None else (length, *kind.shape), reason)
        if kind
        else Partial(0, None, reason)
        for kind in outputs[count:]
    ]
    return inner, found


def _scan(
    node: NodeProto, body: GraphProto, attributes: Mapping[str, Any], scope: Scope, branch: Branch
) -> tuple[Scope, list[Partial]]:
    scanned = attributes["num_scan_inputs"]
    states = len(node.input) - scanned
    axes = attributes.get("scan_input_axes") or [0] * scanned
    inputs, length = {}, None
    for position, (value, name) in enumerate(zip(body.input, node.input, strict=False)):
        kind = scope.type_of(name)
        if kind is not None and position >= states and kind.shape is not None:
            axis = axes[position - states] % len(kind.shape)
            length = kind.shape[axis]
            kind = TensorType(kind.elem_type, (*kind.shape[:axis], *kind.shape[axis + 1 :]))
        if kind is not None:
            inputs[value.name] = kind
    inner = branch(body, inputs)
    outputs = [inner.type_of(value.name) for value in body.output]
    out_axes = attributes.get("scan_output_axes") or [0] * (len(outputs) - states)
    found = [partial_of(kind) for kind in outputs[:states]]
    for kind, axis in zip(outputs[states:], out_axes, strict=False):
        if kind is None or kind.shape is None:
            found.append(Partial(kind.elem_type if kind else 0, None))
        else:
            at = axis % (len(kind.shape) + 1)
            found.append(Partial(kind.elem_type, (*kind.shape[:at], length, *kind.shape[at:])))
    return inner, found


def _widened(before: TensorType, after: TensorType, unknown: Unknown) -> TensorType:
    """`before` with every dimension open that `after` changes; `before` itself if there is none."""
    if before.shape is None or before.shape == after.shape:
        return before
    if after.shape is None or len(after.shape) != len(before.shape):
        return TensorType(before.elem_type, None, _CHANGES)
    pairs = list(zip(before.shape, after.shape, strict=True))
    if all(a == b or _is_open(a) for a, b in pairs):
        return before
    return TensorType(before.elem_type, tuple(a if a == b or _is_open(a) else unknown(_CHANGES) for a, b in pairs))


def _is_open(dim: Dim) -> bool:
    return isinstance(dim, Expr) and str(dim).startswith("?") and dim == symbol(str(dim))
