"""What ONNX Runtime does with the heap while it loads a model, step by step, as seen by listening to its allocator.

1. The file is parsed: every weight in it becomes a block of the heap.
2. Each is copied into a tensor, and the parsed one freed.
3. The optimizer makes new weights (folded, fused, reordered for blocked convolutions), each by way of three copies;
   those they replace are freed only when it is done.
4. Kernels pack their weights: a new block each, and the old one is freed.

What lies beside the model in files of its own is mapped instead: only packed weights then take memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from math import log, prod

from onnx import GraphProto

from onnxmem.model.graph import Graph, Node
from onnxmem.model.load import subgraphs_of
from onnxmem.model.model import Model
from onnxmem.model.weights import Weight, is_constant, read_weights
from onnxmem.prediction.calibration import FAULT_AROUND
from onnxmem.prediction.heap import Heap

INLINE = ("stock", "tuned", "planned")
"""The modes that load a model's own file."""
_STREAM = 4 << 20  # the block in which ONNX Runtime reads a file
_SMALLEST_TENSOR = 128
"""Smaller weights stay where they were parsed."""

# The blocks by way of which a new weight is made, and which of them are aligned; the last one stays.
_CONVERTED = (True, False, False, True)
_FOLDED = (True,)
_NESTED_COPIES = 2
"""A node keeps the subgraphs that it was given, beside the graphs that are made from them."""

# Beside the weights: what a session takes, what each node and weight of the graph that is run adds to it, and what is
# left of nodes that the optimizer removed. Measured; a release of ONNX Runtime changes them by little.
_SESSION = 850 << 10
_PER_NODE = 1600
_PER_WEIGHT = 10_600
_PER_REMOVED_NODE = 6 << 10

_PACKED = {
    **dict.fromkeys(("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulInteger", "MatMulIntegerToFloat"), (1,)),
    **dict.fromkeys(("DynamicQuantizeMatMul", "ConvTranspose", "Attention", "QAttention", "MatMulNBits"), (1,)),
    **dict.fromkeys(("LSTM", "GRU", "DynamicQuantizeLSTM"), (1, 2)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul"), (3,)),
}
"""Operators whose kernels pack weights, and which of their inputs those are."""
_PACKED_COLUMNS = 16


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What the weights of a model are, and become."""

    parsed: tuple[Weight, ...]
    """In the file."""
    nested: tuple[Weight, ...]
    """Those of them that are in subgraphs."""
    optimized: tuple[tuple[Weight, ...], ...]
    """After each level of the optimizer; the last are those that are run."""
    packed: Mapping[str, int]
    """Those that kernels pack, and the bytes of the packed form."""
    nodes: int
    nodes_parsed: int
    _heaps: dict[str, tuple[Heap, int]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, model: Model, graph: Graph, level: str) -> Weights:
        """Of a model and the graph that is run, which was optimized at that level."""
        # The optimizer cleans up between fusions, which come first, and changes of layout, which come last.
        parsed, top = model.weights(), {weight.name for weight in read_weights(model.proto.graph)}
        steps = ("basic", level) if graph.view != "raw" and level not in ("disabled", "basic") else ()
        return cls(
            parsed=parsed,
            nested=tuple(weight for weight in parsed if weight.name not in top),
            optimized=tuple(model.weights(step) for step in steps) or (tuple(graph.all_weights()),),
            packed=packed_weights(graph),
            nodes=sum(len(inner.nodes) for inner in graph.walk()),
            nodes_parsed=_count(model.proto.graph),
        )

    @property
    def run(self) -> tuple[Weight, ...]:
        """Those of the graph that is run."""
        return self.optimized[-1]

    @property
    def bytes(self) -> int:
        """All that the graph that is run reads, not packed."""
        return _total(self.run)

    @property
    def structures(self) -> int:
        """What the session takes beside its weights."""
        return _SESSION + _PER_NODE * self.nodes + _PER_WEIGHT * len(self.run)

    @property
    def leftovers(self) -> int:
        """What stays in the heap of nodes that were optimized away."""
        return _PER_REMOVED_NODE * max(0, self.nodes_parsed - self.nodes)


def loaded(weights: Weights, mode: str, file_bytes: int) -> tuple[Heap, int]:
    """The heap when a session has been made, and the most that was resident meanwhile; the same at every size."""
    way = "inline" if mode in INLINE else mode
    if way not in weights._heaps:
        heap = Heap()
        most = load_external(weights, heap, mode) if way == mode else load_inline(weights, heap, file_bytes)
        weights._heaps[way] = heap, max(heap.peak, most)
    heap, most = weights._heaps[way]
    return deepcopy(heap), most


def load_inline(weights: Weights, heap: Heap, file_bytes: int) -> int:
    """Load a model whose weights are in its file; the most that is resident meanwhile."""
    stream = heap.allocate(min(_STREAM, file_bytes))
    parsed = {weight.name: heap.allocate(weight.size or 0) for weight in weights.parsed}
    heap.free(stream)
    heap.allocate(weights.structures + weights.leftovers)
    tensors: dict[str, int] = {}
    for weight in weights.parsed:
        if (weight.size or 0) >= _SMALLEST_TENSOR:
            tensors[weight.name] = heap.allocate(weight.size or 0, aligned=True)
            heap.free(parsed.pop(weight.name))
    for weight in weights.nested:
        for _ in range(_NESTED_COPIES):
            heap.allocate(weight.size or 0)
    before = weights.parsed
    for after in weights.optimized:
        _optimize(before, after, tensors, heap)
        before = after
    for name, size in weights.packed.items():
        heap.allocate(size, aligned=True)
        if name in tensors:
            heap.free(tensors.pop(name))
    return heap.peak


def _optimize(before: Sequence[Weight], after: Sequence[Weight], tensors: dict[str, int], heap: Heap) -> None:
    """One level: new weights by way of copies, then the end of those that nobody reads any more."""
    sizes = {weight.name: (weight.shape, weight.size) for weight in before}
    kept = {weight.name for weight in after if sizes.get(weight.name) == (weight.shape, weight.size)}
    replaced = {weight.size for weight in before if weight.name not in kept}
    made: dict[str, int] = {}
    for weight in after:
        if weight.name not in kept and (weight.size or 0) >= _SMALLEST_TENSOR:
            # What is computed from nothing but constants is written once; what replaces a weight is converted.
            aligned = _CONVERTED if weight.size in replaced else _FOLDED
            copies = [heap.allocate(weight.size or 0, aligned=each) for each in aligned]
            for copy in copies[:-1]:
                heap.free(copy)
            made[weight.name] = copies[-1]
    for name in [name for name in tensors if name not in kept]:
        heap.free(tensors.pop(name))
    tensors.update(made)


def load_external(weights: Weights, heap: Heap, mode: str) -> int:
    """Load a model whose weights are mapped; the most that is resident meanwhile, pages of the file included.

    While a kernel packs a weight, its pages are there beside the packed copy. That stays (`external`), or is dropped
    for one that was saved (`prepacked`); `mapped` packs nothing.
    """
    heap.allocate(weights.structures)
    most = heap.resident
    sizes = {weight.name: weight.size or 0 for weight in weights.run}
    for name, size in weights.packed.items() if mode != "mapped" else ():
        packed = heap.allocate(size, aligned=True)
        most = max(most, heap.resident + sizes[name])
        if mode == "prepacked":
            heap.free(packed)
    return most


def mapped_bytes(weights: Weights, graph: Graph, mode: str, around: int = FAULT_AROUND) -> int:
    """The pages of weight files that runs read; a touch of one maps up to `around`."""
    rows = _rows_read(graph)
    packed = {} if mode == "mapped" else weights.packed
    sizes = {weight.name: weight.size or 0 for weight in weights.run if weight.name not in packed}
    unpacked = sum(_windows(size, rows[name], around) if name in rows else size for name, size in sizes.items())
    return unpacked + (sum(packed.values()) if mode == "prepacked" else 0)


def _rows_read(graph: Graph) -> dict[str, int]:
    """The weights of which runs read single rows, as of an embedding table, and how many rows."""
    known, rows, whole = {weight.name for weight in graph.weights}, dict[str, int](), set[str]()
    for node in graph.nodes:
        gathers = node.op_type == "Gather" and node.attributes.get("axis", 0) == 0
        for position, name in enumerate(node.inputs):
            if name in known and not (gathers and position == 0):
                whole.add(name)
        indices = graph.tensors.get(node.inputs[1]) if gathers else None
        if indices is not None and node.inputs[0] in known and indices.shape is not None:
            count = prod(dim for dim in indices.shape if isinstance(dim, int))
            rows[node.inputs[0]] = rows.get(node.inputs[0], 0) + count
    return {name: count for name, count in rows.items() if name not in whole}


def _windows(size: int, rows: int, around: int) -> int:
    """What so many rows anywhere in a mapped weight bring in: a touch maps the pages around it, too.

    How many depends on how the file was written or read: pieces of all sizes up to the largest, so the mean counts.
    """
    window = round((around - FAULT_AROUND) / log(around / FAULT_AROUND)) if around > FAULT_AROUND else FAULT_AROUND
    windows = max(1, size // window)
    return min(size, round(windows * (1 - (1 - 1 / windows) ** rows)) * window)


def packed_weights(graph: Graph) -> dict[str, int]:
    """The weights that kernels pack, with the size of the packed form."""
    found: dict[str, int] = {}
    for inner in graph.walk():
        known = {weight.name: weight for weight in inner.weights}
        for node in inner.nodes:
            for position in _PACKED.get(node.op_type, ()):
                weight = known.get(node.inputs[position]) if position < len(node.inputs) else None
                if weight is not None and weight.size and len(weight.shape) >= 2:
                    found[weight.name] = _packed_size(node, weight)
    return found


def packed_in_arena(graph: Graph) -> tuple[int, ...]:
    """The sizes of those whose kernels take memory for them from the arena, which runs then find partly used."""
    known = {weight.name: weight.size or 0 for weight in graph.weights}
    nodes = (node for node in graph.nodes if node.op_type == "ConvTranspose" and len(node.inputs) > 1)
    return tuple(size for node in nodes if (size := known.get(node.inputs[1], 0)))


def _packed_size(node: Node, weight: Weight) -> int:
    """Matrices are packed in strips of 16 columns, the last one filled up."""
    assert weight.size is not None
    transposed = node.attributes.get("transB", 0) or node.op_type in ("LSTM", "GRU")
    columns = weight.shape[-2] if transposed else weight.shape[-1]
    return weight.size * (-(-columns // _PACKED_COLUMNS) * _PACKED_COLUMNS) // max(columns, 1)


def _count(graph: GraphProto) -> int:
    """The nodes of a graph and of every graph in it, constants not included."""
    inner = sum(_count(g) for node in graph.node for g in subgraphs_of(node))
    return inner + sum(not is_constant(node) for node in graph.node)


def _total(weights: Iterable[Weight]) -> int:
    return sum(weight.size or 0 for weight in weights)
