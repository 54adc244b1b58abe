"""What will a model take on a GPU, in each mode, before it runs there?

The graph is the one that ONNX Runtime would run on the device, kernels say what they take (`asked.py`), and its arena
is followed on paper, as on the CPU. What every process takes there, the driver's context and the libraries' own memory,
is measured once per environment, and kept.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from onnxmem.deadline import Deadline
from onnxmem.documents import Record, stored
from onnxmem.environment import read_environment
from onnxmem.errors import OnnxmemError, RuntimeUnsupported
from onnxmem.files import write_text
from onnxmem.folders import cache_folder, private_cache, temporary_folder
from onnxmem.measurement.device import DEVICE_MODES, Gpu
from onnxmem.measurement.measure import measure
from onnxmem.measurement.protocol import LOAD, STEADY_RUNS
from onnxmem.model.graph import Graph, Node, Tensor
from onnxmem.model.model import Model
from onnxmem.placement.strategies import solve
from onnxmem.prediction.arena import Arena
from onnxmem.prediction.asked import Asked, ask_kernels, known_by
from onnxmem.prediction.calibration import tiny_model
from onnxmem.prediction.prediction import Part
from onnxmem.prediction.requests import Buffer, Event, Requests, runs_of
from onnxmem.progress import OnProgress, Progress
from onnxmem.scratch.kernel import NOTHING, Scratch
from onnxmem.session.planned.trace import DEVICE_ALIGNMENT, OUTLIVES, Trace
from onnxmem.unknown import Unknown

_STEADY = 3
"""Later runs until the arena has its final size."""
_ORDERS = 9
"""In so many of all orders of the weights."""
_PAGE = 2 << 20
"""What a device's memory is handed out in."""
_TINY = 1 << 20
"""The arena that the tiny model leaves on it."""
_PARTS = ("context", "libraries", "weights", "inputs", "activations", "scratch", "pattern", "arena slack")
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Base(Record):
    """What every process takes on a device, in bytes."""

    device: str
    context: int
    """The driver's context and ONNX Runtime's kernels, once a session is there."""
    libraries: int
    """What cuBLAS and cuDNN take when they are first used."""


@dataclass(frozen=True, kw_only=True)
class DeviceForecast(Record):
    """What a process will take on a device in one mode, in bytes; the parts add up to what it has after its runs."""

    mode: str
    loaded: int = stored("loaded_bytes")
    """Before the first run: the context and the weights."""
    run_growth: int = stored("run_growth_bytes")
    """What runs add, the libraries' own memory included."""
    least: int = stored("least_steady_bytes")
    """What it has after its runs, at least …"""
    most: int = stored("most_steady_bytes")
    """… and at most: ONNX Runtime loads weights in an order that is another one in each process."""
    parts: tuple[Part, ...]

    @property
    def steady(self) -> int:
        """What it has after its runs, which is the most it ever has."""
        return self.loaded + self.run_growth

    def derived(self) -> Mapping[str, Any]:
        """What it has after its runs."""
        return {"steady_bytes": self.steady}


@dataclass(frozen=True, kw_only=True)
class OnDevice(Record):
    """What a model will take on a device."""

    base: Base
    modes: tuple[DeviceForecast, ...]
    bound: int = stored("bound_bytes")
    """The most that is alive at once in a run, kernels' scratch included: no plan takes less."""
    not_asked: tuple[str, ...] = ()
    """Nodes whose kernels gave no answer, with the reason: what they take beside their outputs is in no figure."""


def forecast_on_device(
    model: Model,
    graph: Graph,
    level: str,
    device: int,
    deadline: Deadline,
    on_progress: OnProgress | None = None,
) -> OnDevice:
    """What the model takes on this device at the sizes of the graph."""
    hear = on_progress or (lambda _: None)

    def step(done: int, of: int) -> None:
        hear(Progress("asking the device's kernels", done, of))

    if not graph.on_cuda:
        raise RuntimeUnsupported("the graph as in the file is not what ONNX Runtime runs")
    base = read_base(device)
    asked = ask_kernels(graph, model.optimized(level, {}, device), device, deadline, step)
    found = follow(graph, asked)
    modes = []
    for mode in DEVICE_MODES:
        possible = [found.planned()] if mode == "planned" else found.in_arena(stock=mode == "stock")
        loaded, grown, parts = possible[len(possible) // 2]
        sizes = {"context": base.context, "libraries": base.libraries, **parts}
        always = base.context + base.libraries
        modes.append(
            DeviceForecast(
                mode=mode,
                loaded=base.context + loaded,
                run_growth=base.libraries + grown,
                least=always + sum(possible[0][:2]),
                most=always + sum(possible[-1][:2]),
                parts=tuple(Part(name=name, bytes=sizes[name]) for name in _PARTS if sizes.get(name, 0) > 0),
            )
        )
    reasons = {name: answer.reason for name, answer in asked.items() if isinstance(answer, Unknown)}
    return OnDevice(
        base=base,
        modes=tuple(modes),
        bound=found.trace.bound(),
        not_asked=tuple(f"{name}: {reason}" for name, reason in reasons.items()),
    )


class Taken(NamedTuple):
    """What is taken on a device by loading and by runs, in bytes, and the parts of both."""

    loaded: int
    grown: int
    parts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Followed:
    """What loading and running a graph asks for on a device."""

    weights: tuple[int, ...]
    inputs: tuple[Buffer, ...]
    """Copies of what the caller feeds, which live through a run."""
    first: Requests
    """The first run, without pattern and reuse …"""
    later: Requests
    """… and any later one …"""
    stock: tuple[Requests, Requests]
    """… and both as ONNX Runtime comes."""

    def in_arena(self, *, stock: bool) -> list[Taken]:
        """What is taken with ONNX Runtime's arena: for several orders of the weights, from the least to the most."""
        chance, orders = random.Random(0), [list(self.weights)]
        for _ in range(_ORDERS - 1):
            orders.append(chance.sample(self.weights, len(self.weights)))
        return sorted((self._in_arena(order, stock=stock) for order in orders), key=lambda taken: sum(taken[:2]))

    def _in_arena(self, weights: Sequence[int], *, stock: bool) -> Taken:
        first, later = self.stock if stock else (self.first, self.later)
        arena = Arena()
        for size in weights:
            arena.allocate(size)
        loaded = _pages(arena)
        for run in (first, *[later] * _STEADY):
            at = {id(buffer): arena.allocate(buffer.size) for buffer in self.inputs}
            for event in run:
                key = id(event.buffer)
                if event.freed:
                    arena.free(at.pop(key))
                else:
                    at[key] = arena.allocate(event.buffer.size)
            for left in at.values():
                arena.free(left)
        grown = _pages(arena) - loaded
        pattern = later.peak_of("pattern")
        parts = self._parts(grown, {"pattern": pattern} if stock else {})
        parts["weights"] = loaded
        return Taken(loaded, grown, parts)

    def planned(self) -> Taken:
        """The same of a planned session: weights one behind the other, and an arena of the plan's size."""
        loaded = _rounded(sum(-(-size // DEVICE_ALIGNMENT) * DEVICE_ALIGNMENT for size in self.weights))
        # The first run is recorded outside of the arena, and what it took goes back before there is one.
        arena = _rounded(max(self._plan(), self._trace(self.first).bound()))
        return Taken(loaded, arena, {"weights": loaded, **self._parts(arena, {})})

    @property
    def trace(self) -> Trace:
        """A later run as calls of the allocator."""
        return self._trace(self.later)

    def _plan(self) -> int:
        return solve(self.trace.problem(), "best", time_limit=5.0, effort=1.0, seed=0).peak

    def _trace(self, run: Requests) -> Trace:
        import numpy as np  # noqa: PLC0415

        rows: dict[int, int] = {}
        sizes: list[int] = []
        lowers: list[int] = []
        uppers: list[int] = []
        events = [*(Event(buffer) for buffer in self.inputs), *run]
        left = [event.buffer for event in events if not event.freed]
        ended = {id(event.buffer) for event in events if event.freed}
        # Outputs are copied to the host, and then freed like everything else.
        events += [Event(buffer, freed=True) for buffer in left if id(buffer) not in ended]
        for at, event in enumerate(events):
            key = id(event.buffer)
            if event.freed:
                uppers[rows[key]] = at
            else:
                rows[key] = len(sizes)
                sizes.append(event.buffer.size)
                lowers.append(at)
                uppers.append(OUTLIVES)
        columns = (np.array(column, np.int64) for column in (sizes, lowers, uppers))
        return Trace(*columns, alignment=DEVICE_ALIGNMENT)

    def _parts(self, arena: int, more: Mapping[str, int]) -> dict[str, int]:
        """What the arena's growth is made of, as far as it reaches."""
        activations = self.later.peak_of("activation") + self.later.output_bytes
        sizes = {
            "inputs": sum(buffer.size for buffer in self.inputs),
            "activations": activations,
            "scratch": max(0, self.later.peak - activations),
            **more,
        }
        room = arena
        for name, wanted in sizes.items():
            sizes[name] = min(wanted, room)
            room -= sizes[name]
        return {**sizes, "arena slack": room}


def follow(graph: Graph, asked: Mapping[str, Asked | Unknown]) -> Followed:
    """What a session of this graph asks for on the device, if its kernels take what they say."""
    on_host = {name for inner in graph.walk() for node in inner.nodes if node.on_host for name in node.outputs}

    def size(tensor: Tensor, _: Node | None) -> int:
        return 0 if isinstance(tensor.size, Unknown) or tensor.name in on_host else int(str(tensor.size))

    def scratch(which: str) -> Callable[[Node, Graph], Scratch]:
        def take(node: Node, _: Graph) -> Scratch:
            answer = asked.get(known_by(node))
            return getattr(answer, which) if isinstance(answer, Asked) else NOTHING

        return take

    def runs(which: str, on: bool) -> Any:
        return runs_of(graph, reuse=on, pattern=on, size=size, scratch=scratch(which))

    inputs = ((name, graph.tensors[name]) for name in graph.inputs if name in graph.tensors)
    return Followed(
        weights=tuple(weight.size or 0 for weight in graph.all_weights()),
        inputs=tuple(Buffer(name, size(tensor, None), "input") for name, tensor in inputs),
        first=runs("first", False).first,
        later=runs("later", False).later,
        stock=(runs("first", True).first, runs("later", True).later),
    )


def _pages(arena: Arena) -> int:
    return sum(_rounded(size) for _, size, _ in arena.regions)


def _rounded(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def read_base(device: int) -> Base:
    """What every process takes on this device: from the cache, or measured now, which takes some seconds."""
    name = Gpu(device).name
    facts = json.dumps([_FORMAT, name, read_environment().document()], sort_keys=True)
    path = cache_folder() / f"device-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError, OnnxmemError):
        private_cache()  # or somebody else may have put it there
        return Base.from_document(json.loads(path.read_text()))
    with temporary_folder() as folder:
        model = folder / "tiny.onnx"
        model.write_bytes(tiny_model())
        measured = measure(model, runs=2, threads=1, nodes=False, device=f"cuda:{device}")
    phases = {phase.name: phase for phase in measured.phases}
    loaded, after = (phases[name].device if name in phases else None for name in (LOAD, STEADY_RUNS))
    if not measured.verdict.ok or not isinstance(loaded, int) or not isinstance(after, int):
        raise RuntimeUnsupported(f"what a process takes on the device could not be measured: {measured.verdict}")
    found = Base(device=name, context=max(0, loaded - _rounded(_TINY)), libraries=max(0, after - loaded))
    with suppress(OSError, OnnxmemError):  # a home that cannot be written to costs some seconds each time, no more
        private_cache()
        write_text(path, json.dumps(found.document()))
    return found
