"""What ONNX Runtime would run: its optimized graph, obtained from ONNX Runtime without running inference.

The optimizer needs the graph and the small constants it folds; it does not need the large weights, only that they are
constants of a certain shape. So it is given a *skeleton*: the model with every large float weight replaced by a slice
of one sparse file of zeros. A model of many GiB is then optimized in milliseconds, with none of its weights read,
mapped or written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from onnxmem.errors import ModelError, RuntimeUnsupported
from onnxmem.folders import temporary_folder
from onnxmem.model.dtypes import tensor_bytes
from onnxmem.model.external import make_external, read_external
from onnxmem.model.graph import backwards_from, leaves_of
from onnxmem.model.load import node_reads, subgraphs_of
from onnxmem.model.ort_format import ort_reader
from onnxmem.model.weights import constant_value, is_constant
from onnxmem.model.wire import without_weights

LEVELS = ("disabled", "basic", "extended", "layout", "all")

# Below this, constants may be scalars or vectors that fusions look at; above, only their shape matters.
_LARGEST_KEPT = 16 * 1024
# Integer tables may be indices whose values decide shapes; they are kept up to here.
_LARGEST_KEPT_INTEGERS = 4 * 1024 * 1024
# The ORT format stores weights inside a flatbuffer, which ends at 2 GiB.
_ORT_FORMAT_LIMIT = 2**31 - 2**24
_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
_ZEROS = "zeros.bin"
_REORDERING = "ReorderOutput"
_MARK = "onnxmem.mark"
_HOST_PROVIDER = "CPUExecutionProvider"
ON_HOST = "onnxmem: on the host"
# ONNX Runtime infers no shapes for functions over older operator sets, and refuses them.
_FIRST_WITH_FUNCTIONS = 9


def optimize(
    model: ModelProto, folder: Path, level: str, fixed: Mapping[str, tuple[int, ...]], device: int | None = None
) -> ModelProto:
    """The graph ONNX Runtime makes of `model` at `level`, its nodes in ONNX Runtime's default order.

    `fixed` are input shapes to optimize for, as if they were in the model; without them its free dimensions stay free.
    It is the graph for a CUDA `device`, if one is given; then nodes that stay on the host have `ON_HOST` in their
    documentation.
    """
    with temporary_folder() as temporary:
        source, target = temporary / "skeleton.onnx", temporary / "optimized.onnx"
        # A mark is for graphs that ONNX Runtime does not change. Others it would make another graph of: with a local
        # function in a model, operators that are functions become their bodies before the optimizer, and not after it.
        for marked in (False, True):
            write_skeleton(model, folder, source, fixed, marked=marked)
            on_host = _run_optimizer(source, target, level, device=device)
            # What is left out here is never asked for again; the file will be gone.
            optimized = onnx.load_model_from_string(without_weights(target, _LARGEST_KEPT_INTEGERS + 1))
            if _what_runs(optimized) != _what_runs(model):
                break
    for node in optimized.graph.node:
        if (node.name, node.op_type) in on_host:
            node.doc_string = ON_HOST
        if _made_in_any_order(node):
            node.name = ""  # it ends in a number that is another one each time
    return optimized


def _what_runs(model: ModelProto) -> set[tuple[str, ...]]:
    """The nodes, without constants, in no order."""
    return {(n.op_type, n.domain, *n.input, *n.output) for n in model.graph.node if not is_constant(n)}


def sort_by_chance(optimized: ModelProto) -> bool:
    """Put the nodes in the order of the numbers that `node_numbers` would give; False if it takes those to tell.

    ONNX Runtime goes backwards from a node to its inputs, and from those to theirs. Which of two inputs comes first is
    up to chance where `_made_in_any_order` is true of both. Mostly each of them ends a chain of nodes with one input
    and one reader, all the chains begin at the same node, and they stand in the file one after another.
    """
    nodes, before = optimized.graph.node, _inputs(optimized)
    readers: list[list[int]] = [[] for _ in nodes]
    for reader, inputs in enumerate(before):
        for node in inputs:
            readers[node].append(reader)

    def visited_before(node: int, reader: int) -> bool:
        # From x to both y and x + y: whatever is made in any order is made last, so x comes before an older y.
        return any(nodes[reader].domain == "" and [other] == readers[reader] for other in readers[node])

    order = list(range(len(nodes)))
    for reader, choice in enumerate([*before, leaves_of(before)]):
        by_chance = [v for v in choice if _made_in_any_order(nodes[v]) and not visited_before(v, reader)]
        chains = [_chain_to(node, before) for node in sorted(by_chance, key=lambda v: _label(nodes[v]), reverse=True)]
        shared = set(chains[0]).intersection(*chains[1:]) if chains else set()
        own = [[node for node in each if node not in shared] for each in chains]
        if sum(map(bool, own)) < 2:
            continue  # one after another in any case
        found = list(chain.from_iterable(own))
        first = min(found)
        together = sorted(found) == list(range(first, first + len(found)))
        if not shared or not together or any(len(readers[node]) != 1 for node in found):
            return False
        order[first : first + len(found)] = found
    _sort(optimized, order)
    return True


def _chain_to(node: int, before: Sequence[Collection[int]]) -> list[int]:
    """The nodes that lead to this one as long as each has a single input, and the node itself."""
    found = [node]
    while len(before[found[-1]]) == 1:
        found += before[found[-1]]
    return found[::-1]


def sort_by_numbers(optimized: ModelProto, numbers: Mapping[str, int]) -> None:
    """Put the nodes in ONNX Runtime's default order for these numbers.

    It wrote them in that order, but for numbers of its own: see `node_numbers`.
    """
    number = [numbers.get(_label(node), -1) for node in optimized.graph.node]
    before = [sorted(inputs, key=lambda v: -number[v]) for inputs in _inputs(optimized)]
    _sort(optimized, backwards_from(sorted(leaves_of(before), key=lambda v: -number[v]), before))


def _sort(model: ModelProto, order: Sequence[int]) -> None:
    nodes = list(model.graph.node)
    if list(order) != list(range(len(nodes))):
        del model.graph.node[:]
        model.graph.node.extend(nodes[position] for position in order)


def _inputs(model: ModelProto) -> list[set[int]]:
    """For each node, the nodes that make what it reads."""
    made = {name: position for position, node in enumerate(model.graph.node) for name in node.output if name}
    return [{made[name] for name in node_reads(node) if name in made} for node in model.graph.node]


def _label(node: NodeProto) -> str:
    """What a node is known by: its first output."""
    return next(filter(None, node.output), "")


def _made_in_any_order(node: NodeProto) -> bool:
    # Where convolutions work on blocks of channels, what turns their outputs back is made in the order of addresses.
    return node.op_type == _REORDERING


def node_numbers(model: ModelProto, folder: Path, level: str, fixed: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """ONNX Runtime's number for each node of the optimized graph, by the node's first output.

    Its orders break ties by these numbers, which only the ORT format keeps. Some nodes have theirs by chance; here they
    get them in the order of their names, so that the numbers are the same each time, and such as could have been.
    """
    total = sum(tensor_bytes(tensor.data_type, tensor.dims) or 0 for tensor in model.graph.initializer)
    if total > _ORT_FORMAT_LIMIT:
        raise RuntimeUnsupported(
            "ONNX Runtime's node numbers cannot be had for a model with 2 GiB of weights or more",
            hint="choose another order, for example ort-default",
        )
    session = ort_reader("InferenceSession")
    with temporary_folder() as temporary:
        source, target = temporary / "skeleton.onnx", temporary / "optimized.ort"
        write_skeleton(model, folder, source, fixed)
        _run_optimizer(source, target, level, ort_format=True)
        with target.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            graph = session.GetRootAsInferenceSession(content, 0).Model().Graph()
            nodes = [graph.Nodes(position) for position in range(graph.NodesLength())]
            numbers = {_first_output(node): int(node.Index()) for node in nodes}
            by_chance = sorted(_first_output(node) for node in nodes if (node.OpType() or b"").decode() == _REORDERING)
    return numbers | dict(zip(by_chance, sorted(numbers[name] for name in by_chance), strict=True))


def _first_output(node: Any) -> str:
    outputs = (node.Outputs(position).decode() for position in range(node.OutputsLength()))
    return next(filter(None, outputs), "")


def _run_optimizer(
    source: Path, target: Path, level: str, *, ort_format: bool = False, device: int | None = None
) -> set[tuple[str, str]]:
    """Write the optimized graph; the names and operators of nodes that a session on `device` leaves to the host."""
    import onnxruntime as ort  # noqa: PLC0415

    levels = ort.GraphOptimizationLevel
    # ORT_ENABLE_LAYOUT came with 1.24; before, "all" was the level that changed layouts.
    chosen = {
        "disabled": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "layout": getattr(levels, "ORT_ENABLE_LAYOUT", levels.ORT_ENABLE_ALL),
        "all": levels.ORT_ENABLE_ALL,
    }[level]
    options = ort.SessionOptions()
    options.graph_optimization_level = chosen
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # Neither the arena nor packed weights are of any use to a session that never runs.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.add_session_config_entry("session.disable_prepacking", "1")
    if device is not None:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if ort_format:
        options.add_session_config_entry("session.save_model_format", "ORT")
    try:
        session = ort.InferenceSession(str(source), options, providers=_providers(device))
        return set() if device is None else _on_host(session)
    except Exception as error:  # onnxruntime raises a dozen classes of its own
        # A kernel that is missing is noticed only after the optimized graph has been written.
        if not target.exists() or not target.stat().st_size:
            message = " ".join(str(error).split()).removeprefix("[ONNXRuntimeError] : ")
            raise ModelError(
                f"ONNX Runtime cannot load the model: {message[:300]}",
                hint="--view raw looks at the file alone, without ONNX Runtime",
            ) from error
    return set()


def _providers(device: int | None) -> list[Any]:
    cuda = [] if device is None else [("CUDAExecutionProvider", {"device_id": device})]
    return [*cuda, _HOST_PROVIDER]


def _on_host(session: Any) -> set[tuple[str, str]]:
    parts = (part for part in session.get_provider_graph_assignment_info() if part.ep_name == _HOST_PROVIDER)
    return {(node.name, node.op_type) for part in parts for node in part.get_nodes()}


def write_skeleton(
    model: ModelProto, folder: Path, path: Path, fixed: Mapping[str, tuple[int, ...]], *, marked: bool = False
) -> None:
    """Write `model` with its large weights as zeros, and with `fixed` input shapes in it.

    With `marked`, ONNX Runtime will always write down what it knows of shapes.
    """
    skeleton, largest = ModelProto(), 0
    skeleton.CopyFrom(_without_tensors(model))
    stored = list(model.graph.initializer)
    # ONNX Runtime turns Constant nodes into initializers before anything else; doing it here lets large ones shrink.
    for node in model.graph.node:
        value = constant_value(node) if is_constant(node) else None
        if isinstance(value, TensorProto):
            named = TensorProto()
            named.CopyFrom(value)
            named.name = node.output[0]
            stored.append(named)
        else:
            kept = skeleton.graph.node.add()
            kept.CopyFrom(node)
            largest = max(largest, _shrink_inside(kept, folder))
    for tensor in stored:
        largest = max(largest, _shrink(skeleton.graph.initializer.add(), tensor, folder))
    # ONNX Runtime saves the shapes it inferred only of tensors that are listed; an empty entry is enough.
    listed = {v.name for v in (*skeleton.graph.value_info, *skeleton.graph.output, *skeleton.graph.input)}
    made = (name for node in skeleton.graph.node for name in node.output if name)
    skeleton.graph.value_info.extend(ValueInfoProto(name=name) for name in made if name not in listed)
    for value in skeleton.graph.input:
        for dim, number in zip(value.type.tensor_type.shape.dim, fixed.get(value.name, ()), strict=False):
            dim.dim_value = number
    if marked:
        _mark(skeleton)
    path.write_bytes(skeleton.SerializeToString())
    with path.with_name(_ZEROS).open("wb") as zeros:
        try:
            zeros.truncate(largest)
        except (OSError, OverflowError) as error:
            raise ModelError(f"a weight of {largest:,} bytes cannot be") from error


def _mark(skeleton: ModelProto) -> None:
    """Add something that ONNX Runtime is sure to remove: a graph it did not change it writes back as it was given.

    A call of a local function is replaced by the function's body at every level; this body is a constant nobody reads.
    """
    opset = next((entry.version for entry in skeleton.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset < _FIRST_WITH_FUNCTIONS:
        return
    body = helper.make_node("Constant", [], ["mark"], value=helper.make_tensor("", TensorProto.INT64, [], [0]))
    skeleton.functions.append(
        helper.make_function(_MARK, "Mark", [], ["mark"], [body], [helper.make_opsetid("", opset)])
    )
    skeleton.opset_import.append(helper.make_opsetid(_MARK, 1))
    skeleton.graph.node.append(helper.make_node("Mark", [], [_MARK], domain=_MARK))


def _shrink(target: TensorProto, tensor: TensorProto, folder: Path) -> int:
    """Make `target` what `tensor` is to the optimizer; the bytes of zeros it needs, if it became zeros."""
    size = tensor_bytes(tensor.data_type, tensor.dims) or 0
    if size > (_LARGEST_KEPT if tensor.data_type in _FLOATS else _LARGEST_KEPT_INTEGERS):
        target.CopyFrom(_zeros(tensor, size))
        return size
    if target is not tensor:
        target.CopyFrom(tensor)
    if tensor.data_location == TensorProto.EXTERNAL:
        _embed(target, folder, size)
    return 0


def _embed(tensor: TensorProto, folder: Path, size: int) -> None:
    content = read_external(tensor, folder, size)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT
    tensor.raw_data = content


def _shrink_inside(node: NodeProto, folder: Path) -> int:
    """The same for what a node's subgraphs store. Attributes stay as they are: ONNX Runtime wants their values."""
    largest = 0
    for graph in subgraphs_of(node):
        for tensor in graph.initializer:
            largest = max(largest, _shrink(tensor, tensor, folder))
        for inner in graph.node:
            largest = max(largest, _shrink_inside(inner, folder))
    for attribute in node.attribute:
        if attribute.t.data_location == TensorProto.EXTERNAL:
            _embed(attribute.t, folder, tensor_bytes(attribute.t.data_type, attribute.t.dims) or 0)
    return largest


def _without_tensors(model: ModelProto) -> ModelProto:
    """A copy of everything but the main graph's nodes and initializers, which are the bulk of a model."""
    shell = ModelProto()
    for name in ("ir_version", "producer_name", "domain", "model_version"):
        if not isinstance(value := getattr(model, name), bytes):  # what is not UTF-8 cannot be written again
            setattr(shell, name, value)
    shell.opset_import.extend(model.opset_import)
    shell.metadata_props.extend(model.metadata_props)
    graph = model.graph
    shell.graph.name = graph.name
    shell.graph.input.extend(graph.input)
    shell.graph.output.extend(graph.output)
    shell.graph.value_info.extend(graph.value_info)
    shell.graph.sparse_initializer.extend(graph.sparse_initializer)
    shell.graph.quantization_annotation.extend(graph.quantization_annotation)
    return shell


def _zeros(tensor: TensorProto, size: int) -> TensorProto:
    stand_in = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    make_external(stand_in, _ZEROS, 0, size)
    return stand_in
