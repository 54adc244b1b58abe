"""Random graphs over every rule for shared places: stock against planned, bit for bit, with the debug guards on.

    python -m benchmarks.shared_places               10,000 graphs
    python -m benchmarks.shared_places 200 --seed 7

Elementwise operators with broadcasting, activations in all their variants, chains and diamonds, norms, the same tensor
twice, tensors that are read again later, outputs that others read, views in between, operators that ONNX Runtime itself
puts into their input, branches and loops, and some that must not share; 1 to 4 threads, all optimizations or none. Each
graph runs on two sets of inputs, each one twice; they are of one shape, or of two, of which one may be empty.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as raised

from onnxmem import InferenceSession
from onnxmem.schedule import inplace
from onnxmem.session.planned import sharing, source

Choose = Callable[[int], int]
"""A number from 0 up to, not including, the one that is given."""

BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "PRelu", "Mod")
LOGICAL = ("And", "Or", "Xor")
UNARY = (
    "Abs", "Neg", "Ceil", "Floor", "Round", "Sqrt", "Reciprocal", "Exp", "Log", "Erf", "Sign", "Sin", "Cos", "Tan",
    "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Gelu",
)  # fmt: skip
_CONTRIB = "com.microsoft"
VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Gelu", {"approximate": "tanh"}),
    ("QuickGelu", {"alpha": 1.0, "domain": _CONTRIB}),
    ("QuickGelu", {"alpha": 1.702, "domain": _CONTRIB}),
    ("FastGelu", {"domain": _CONTRIB}),
)
"""Activations with more than one routine: which of them runs, an attribute decides."""
IN_PLACE = tuple(op for domain, op in inplace._ON_CPU.in_place if not domain)
VIEWS = tuple(op for domain, op in sorted(inplace._ON_CPU.aliases) if not domain)
NORMS = ("LayerNormalization", "BatchNormalization", "InstanceNormalization")
NEVER = ("MatMul", "MaxPool", "Conv", "Transpose", "CumSum")


class Graph(NamedTuple):
    """A model, inputs for two runs, and how to run it."""

    model: bytes
    feeds: tuple[dict[str, npt.NDArray[Any]], ...]
    threads: int
    level: ort.GraphOptimizationLevel
    decides: bool
    """Its data decide what runs: then a run may ask for something else than the one before."""


class Found(NamedTuple):
    """What became of a graph."""

    same: bool
    shared_places: int
    repeated: int
    refused: bool = False
    """By ONNX Runtime itself."""


class _Builder:
    """A graph under construction: full-sized tensors, and masks of the same shape."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        side = (4, 9, 16, 33, 64)[choose(5)]
        self.shape = (1 + choose(2), (3, 8, 16)[choose(3)], side, side)
        self.control = not choose(4)  # little shares a place behind a branch or a loop
        # How many rows the two sets of inputs have.
        self.rows = (self.shape[0],) * 2 if choose(3) else (self.shape[0], choose(4))
        self.decides = False
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.masks: list[str] = []
        self.full = ["x", "y"]

    def pick(self, names: list[str] | tuple[str, ...]) -> str:
        # Mostly what was made last: chains are what shares.
        last = len(names) - 1
        return names[last] if self.choose(3) else names[self.choose(len(names))]

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{name}", **attributes))
        return name

    def constant(self, shape: tuple[int, ...], dtype: Any = np.float32) -> str:
        count = int(np.prod(shape))
        values = (np.arange(count) * 37 % 101 / 60 + 0.3).astype(dtype).reshape(shape)
        self.constants.append(numpy_helper.from_array(values, f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def step(self) -> None:
        kind = self.choose(14 if self.control else 12)
        if kind < 5:
            self.full.append(self.binary())
        elif kind < 7:
            self.full.append(self.unary(self.pick(self.full)))
        elif kind == 7:
            self.full.append(self.in_place(IN_PLACE[self.choose(len(IN_PLACE))]))
        elif kind == 8:
            self.full.append(self.norm(NORMS[self.choose(len(NORMS))]))
        elif kind == 9:
            self.full.append(self.never(NEVER[self.choose(len(NEVER))]))
        elif kind == 10:
            self.logic()
        elif kind == 11:
            self.view(VIEWS[self.choose(len(VIEWS))])
        else:
            self.full.append(self.branch() if kind == 12 else self.loop())

    def unary(self, source: str) -> str:
        number = self.choose(len(UNARY) + len(VARIANTS))
        op, attributes = VARIANTS[number - len(UNARY)] if number >= len(UNARY) else (UNARY[number], {})
        return self.add(op, [source], **attributes)

    def binary(self) -> str:
        op = BINARY[self.choose(len(BINARY))]
        attributes = {"fmod": 1} if op == "Mod" else {}
        one = self.pick(self.full)
        batch, channels, height, width = self.shape
        shapes: list[tuple[int, ...]] = [(), (1,), (width,), (channels, 1, 1), (1, channels, 1, width)]
        if self.rows[0] == self.rows[1]:
            shapes.append((batch, 1, height, 1))
        kind = self.choose(3)
        if kind == 0:
            other = self.pick(self.full)
        else:
            other = one if kind == 1 and not self.choose(4) else self.constant(shapes[self.choose(len(shapes))])
        swapped = other not in self.full and op != "PRelu" and self.choose(2)
        return self.add(op, [other, one] if swapped else [one, other], **attributes)

    def norm(self, op: str) -> str:
        _, channels, _, width = self.shape
        source = self.pick(self.full)
        if op == "LayerNormalization":
            return self.add(op, [source, self.constant((width,)), self.constant((width,))], axis=-1)
        vectors = 4 if op == "BatchNormalization" else 2
        return self.add(op, [source, *(self.constant((channels,)) for _ in range(vectors))])

    def never(self, op: str) -> str:
        _, channels, height, width = self.shape
        source = self.pick(self.full)
        if op == "MatMul":
            return self.add(op, [source, self.constant((width, height))])
        if op == "MaxPool":
            return self.add(op, [source], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        if op == "Conv":
            return self.add(op, [source, self.constant((channels, channels, 1, 1))])
        if op == "CumSum":
            self.constants.append(numpy_helper.from_array(np.array(2), f"c{len(self.constants)}"))
            return self.add(op, [source, self.constants[-1].name])
        return self.add(op, [source], perm=[0, 1, 3, 2])

    def logic(self) -> None:
        if not self.masks or not self.choose(3):
            self.masks.append(self.add("Greater", [self.pick(self.full), self.pick(self.full)]))
        elif self.choose(2):
            self.masks.append(
                self.add("Not", [self.pick(self.masks)])
                if self.choose(2)
                else self.add(LOGICAL[self.choose(3)], [self.pick(self.masks), self.pick(self.masks)])
            )
        else:
            self.full.append(self.add("Where", [self.pick(self.masks), self.pick(self.full), self.pick(self.full)]))

    def numbers(self, *values: int) -> str:
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def in_place(self, op: str) -> str:
        """An operator that ONNX Runtime itself may put into its input."""
        source = self.pick(self.full)
        if op == "Cast":
            whole = self.add(op, [source], to=TensorProto.INT32)
            return self.add(op, [whole], to=TensorProto.FLOAT)
        if op == "ScatterElements":
            indices = self.add("Cast", [self.add("Greater", [source, self.constant(())])], to=TensorProto.INT64)
            return self.add(op, [source, indices, self.pick(self.full)], axis=3)
        return self.add(op, [source])

    def view(self, op: str) -> None:
        """The same in another shape, and back."""
        _, *inner = self.shape
        source = self.pick(self.full)
        if op == "Identity":
            self.full.append(self.add(op, [source]))
            return
        if op in ("Squeeze", "Unsqueeze"):
            seen = self.add("Unsqueeze", [source, self.numbers(1)])
        elif op == "Flatten":
            seen = self.add(op, [source])
        else:
            seen = self.add("Reshape", [source, self.numbers(0, int(np.prod(inner)))])
        if self.choose(2):
            seen = self.unary(seen)
        back = ["Squeeze", self.numbers(1)] if op in ("Squeeze", "Unsqueeze") else ["Reshape", self.numbers(0, *inner)]
        self.full.append(self.add(back[0], [seen, back[1]]))

    def branch(self) -> str:
        """One of two, by what is in a tensor; both read what is around them."""
        self.decides = True
        source, other = self.pick(self.full), self.pick(self.full)
        largest = self.add("ReduceMax", [source], keepdims=0)
        condition = self.add("Greater", [largest, self.constant(())])
        graphs = []
        for name, op in (("then", UNARY[self.choose(len(UNARY))]), ("else", "Add")):
            made = f"{name}{len(self.nodes)}"
            inputs = [source] if op != "Add" else [source, other]
            nodes = [helper.make_node(op, inputs, [f"{made}_a"]), helper.make_node("Relu", [f"{made}_a"], [made])]
            graphs.append(helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(made)]))
        return self.add("If", [condition], then_branch=graphs[0], else_branch=graphs[1])

    def loop(self) -> str:
        """A few turns over a tensor, with what is around it."""
        count, go, source = len(self.nodes), f"c{len(self.constants)}", self.pick(self.full)
        self.constants.append(numpy_helper.from_array(np.array(True), go))
        turns, around = self.numbers(1 + self.choose(3)), self.pick(self.full)
        names = [f"{name}{count}" for name in ("turn", "before", "state", "after", "next")]
        kinds: tuple[Any, ...] = ((TensorProto.INT64, []), (TensorProto.BOOL, []), (TensorProto.FLOAT, None))
        body = helper.make_graph(
            [
                helper.make_node("Identity", [names[1]], [names[3]]),
                helper.make_node("Mul", [names[2], around], [f"{names[4]}_a"]),
                helper.make_node(UNARY[self.choose(len(UNARY))], [f"{names[4]}_a"], [names[4]]),
            ],
            "turn",
            [helper.make_tensor_value_info(name, *type_) for name, type_ in zip(names, kinds, strict=False)],
            [helper.make_tensor_value_info(names[3], *kinds[1]), helper.make_tensor_value_info(names[4], *kinds[2])],
        )
        return self.add("Loop", [turns, go, source], body=body)


def build(choose: Choose) -> Graph:
    """A graph, made of as many choices as it takes."""
    builder = _Builder(choose)
    for _ in range(3 + choose(14)):
        builder.step()
    made = [name for name in builder.full if name not in ("x", "y")] or [builder.add("Abs", ["x"])]
    outputs = dict.fromkeys([made[-1], *(name for name in made if not choose(6))])
    declared = builder.shape if builder.rows[0] == builder.rows[1] else ("n", *builder.shape[1:])
    graph = helper.make_graph(
        builder.nodes,
        "random",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, declared) for name in ("x", "y")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, declared) for name in outputs],
        builder.constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(_CONTRIB, 1)], ir_version=9
    )
    numbers = np.random.default_rng(choose(1000))
    feeds = tuple(
        {name: numbers.uniform(0.1, 1.9, (rows, *builder.shape[1:])).astype(np.float32) for name in ("x", "y")}
        for rows in builder.rows
    )
    levels = ort.GraphOptimizationLevel
    level = (levels.ORT_ENABLE_ALL, levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_EXTENDED)[choose(3)]
    return Graph(model.SerializeToString(), feeds, 1 + choose(4), level, builder.decides)


def compare(graph: Graph, *, debug: bool) -> Found:
    """Run a graph as stock and as planned; a warning of the debug mode counts as a difference."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.graph_optimization_level = graph.threads, graph.level
    options.log_severity_level = 4
    try:
        stock = ort.InferenceSession(graph.model, options, ["CPUExecutionProvider"])
        wanted = [[array.tobytes() for array in stock.run(None, feeds)] for feeds in graph.feeds]
    except (raised.Fail, raised.InvalidArgument, raised.InvalidGraph, raised.NotImplemented, raised.RuntimeException):
        return Found(True, 0, 0, refused=True)
    planned = InferenceSession(graph.model, options, ["CPUExecutionProvider"], debug=debug, plan_seconds=0)
    same = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            for feeds, bits in zip(graph.feeds, wanted, strict=True):
                for _ in range(2):
                    same &= [array.tobytes() for array in planned.run(None, feeds)] == bits
        except RuntimeWarning:
            same = False
    memory = planned.memory
    same &= not memory.overruns and (graph.decides or not memory.runs_deviated)
    return Found(same, memory.shared_places, memory.runs_repeated)


def share_everything() -> None:
    """From now on every pair of tensors that may share a place is tried, however small."""
    sharing.WORTHWHILE, source._PART = 1, 1e9


def campaign(count: int, first: int) -> Counter[str]:
    """So many graphs; what became of them."""
    share_everything()
    counts: Counter[str] = Counter()
    started = told = time.monotonic()
    for seed in range(first, first + count):
        found = compare(build(random.Random(seed).randrange), debug=bool(seed % 2))
        counts["graphs"] += 1
        counts["that ONNX Runtime does not run"] += found.refused
        counts["with shared places"] += bool(found.shared_places)
        counts["shared places"] += found.shared_places
        counts["runs done again"] += found.repeated
        if not found.same:
            counts["different"] += 1
            print(f"seed {seed}: different", flush=True)
        if time.monotonic() > told + 30:
            told = time.monotonic()
            print(f"{counts['graphs']} graphs, {told - started:.0f} s", file=sys.stderr, flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_places", description=__doc__.splitlines()[0])
    parser.add_argument("graphs", nargs="?", type=int, default=10_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    arguments = parser.parse_args()
    counts = campaign(arguments.graphs, arguments.seed)
    for name, number in counts.items():
        print(f"{name:<32}{number}")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
