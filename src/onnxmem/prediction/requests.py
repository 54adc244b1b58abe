"""A graph → what ONNX Runtime asks its allocator for, in the first run and in later ones.

The order of nodes, the tensors that share memory and when each ends are those of `schedule/`. Two habits of ONNX
Runtime come on top, and both can be switched off: a tensor takes the memory of one that has ended if their shapes are
known to be equal, which is then not freed in between (same-size reuse); and from the second run with the same shapes
on, all tensors but outputs lie in one block that is laid out after the first (the memory pattern).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from onnxmem._native import arena
from onnxmem.model.dtypes import dtype_bits
from onnxmem.model.graph import Graph, Node, Tensor
from onnxmem.schedule.orders import find_order
from onnxmem.schedule.storages import Rules, memory_of
from onnxmem.schedule.workload import lifetimes
from onnxmem.scratch.kernel import Scratch
from onnxmem.unknown import Unknown

_PATTERN_STEP = 256
_ROUNDS = 2  # of a loop's body: what the second takes, the others take again
_AT_THE_END = -1

Sizes = Callable[[Tensor, Node | None], int]
"""What a tensor takes; some kernels write more than the shape says."""
Scratches = Callable[[Node, Graph], Scratch]
"""What a node takes beside its outputs, while it runs."""


@dataclass(frozen=True, eq=False)
class Buffer:
    """One piece of memory: allocated once, freed once or handed to the caller."""

    name: str
    size: int
    kind: str
    """`activation`, `output`, `scratch`, `pattern`, or `reserved` for what is taken beside the arena."""


@dataclass(frozen=True)
class Event:
    """A buffer is allocated, or freed."""

    buffer: Buffer
    freed: bool = False


@dataclass(frozen=True)
class Requests:
    """The calls of one run, in order. Outputs are not freed: they are the caller's."""

    events: tuple[Event, ...]

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    @property
    def output_bytes(self) -> int:
        """What is handed to the caller."""
        return sum(event.buffer.size for event in self.events if event.buffer.kind == "output")

    @property
    def beside_bytes(self) -> int:
        """Outputs that a planned session does not put into pages its arena has done with: they are too small."""
        outputs = (event.buffer.size for event in self.events if event.buffer.kind == "output")
        return sum(size for size in outputs if size < arena.HANDED_FROM)

    @property
    def peak(self) -> int:
        """The most bytes that are allocated at once, without what lies beside the arena."""
        return _most(event for event in self.events if event.buffer.kind != "reserved")

    def peak_of(self, kind: str) -> int:
        """The same of one kind of buffer."""
        return _most(event for event in self.events if event.buffer.kind == kind)

    @property
    def inner_peak(self) -> int:
        """The same without outputs."""
        return _most(event for event in self.events if event.buffer.kind not in ("output", "reserved"))


def _most(events: Iterable[Event]) -> int:
    live = most = 0
    for event in events:
        live += -event.buffer.size if event.freed else event.buffer.size
        most = max(most, live)
    return most


@dataclass(frozen=True, kw_only=True)
class Runs:
    """What the first run asks for, and what every later one with the same shapes does."""

    first: Requests
    later: Requests


def runs_of(graph: Graph, *, reuse: bool, pattern: bool, size: Sizes, scratch: Scratches) -> Runs:
    """The calls that running a graph makes, every dimension of which has a number; unknown sizes are left out."""
    first = Requests(tuple(_Frame(graph, reuse, False, size, scratch).events()))
    if not pattern:
        return Runs(first=first, later=first)
    return Runs(first=first, later=Requests(tuple(_Frame(graph, reuse, True, size, scratch).events())))


@dataclass
class _Live:
    """A buffer while its graph is being walked, and the tensor that it held first."""

    buffer: Buffer
    tensor: Tensor
    upper: int


@dataclass
class _Frame:
    """One graph being run: the model, or the body of a node."""

    graph: Graph
    reuse: bool
    pattern: bool
    size: Sizes
    scratch: Scratches
    fed: bool = False
    """Whether its inputs are memory of its own, as those of a loop's body are."""
    uncounted: frozenset[str] = frozenset()
    _ended: list[_Live] = field(default_factory=list)

    def events(self) -> list[Event]:
        events = self._walk()
        if not self.pattern:
            return events
        block = Buffer("pattern", pattern_size(events), "pattern")
        outside = [event for event in events if event.buffer.kind != "activation"]
        return [Event(block), *outside, Event(block, freed=True)] if block.size else outside

    def _walk(self) -> list[Event]:
        graph = self.graph
        order, starting, holding = self._lay_out()
        events: list[Event] = []
        last_use: dict[Buffer, int] = {}
        ends: dict[int, list[Buffer]] = {}
        for step, position in enumerate(order):
            node = graph.nodes[position]
            beside = self.scratch(node, graph)
            held: list[Buffer | None] = []
            events += _scratch(node, beside.steps[: beside.before], held)
            started = starting.get(step, [])
            made: list[Event] = []
            for live in started:
                taken = self._taken_over(live)
                if taken is None:
                    made.append(Event(live.buffer))
                else:
                    live.buffer = taken
            # A loop copies what its last round handed on.
            late = node.is_loop
            events += [] if late else made
            events += _scratch(node, beside.steps[beside.before :], held)
            if beside.reserved:
                reserved = Buffer(f"{node.label} (scratch)", beside.reserved, "reserved")
                held.append(reserved)
                events.append(Event(reserved))
            events += self._inside(node, made if late else [])
            events += [Event(buffer, freed=True) for buffer in held if buffer is not None]
            for live in _ending(node, holding, step):
                self._ended.insert(0, live)
                # What nobody reads can be taken over, but nothing frees it before the run ends.
                unread = any(live is other for other in started)
                last_use[live.buffer] = _AT_THE_END if unread else len(events)
        for buffer, place in last_use.items():
            ends.setdefault(len(events) if place == _AT_THE_END else place, []).append(buffer)
        woven: list[Event] = []
        for place in range(len(events) + 1):
            woven += [Event(buffer, freed=True) for buffer in ends.get(place, ())]
            woven += events[place : place + 1]
        return woven

    def _lay_out(self) -> tuple[Sequence[int], dict[int, list[_Live]], dict[str, _Live]]:
        graph, rules = self.graph, Rules(inputs=self.fed)
        memory = memory_of(graph, rules, number=lambda size: int(str(size)), uncounted=self.uncounted)
        order = find_order("ort-default", graph, memory.workload, time_limit=1.0).order
        maker = {name: node for node in graph.nodes for name in node.outputs if name}
        place = {name: k for node in graph.nodes for k, name in enumerate(node.outputs)}
        outputs, inputs = set(graph.outputs), set(graph.inputs)
        starting: dict[int, list[_Live]] = {}
        holding: dict[str, _Live] = {}
        for row in lifetimes(memory.workload, order):
            tensors = [tensor for index in row.storages for tensor in memory.tensors[index]]
            first = tensors[0]
            kind = "output" if outputs & {tensor.name for tensor in tensors} else "activation"
            live = _Live(Buffer(first.name, self.size(first, maker.get(first.name)), kind), first, row.upper)
            holding.update((tensor.name, live) for tensor in tensors)
            # What a loop's body is fed was allocated by the loop, or by the round before, and is freed there.
            if first.name in inputs:
                live.upper = _AT_THE_END
            elif live.buffer.size:
                starting.setdefault(row.lower, []).append(live)
        for rows in starting.values():
            rows.sort(key=lambda live: place.get(live.tensor.name, 0))
        return order, starting, holding

    def _taken_over(self, live: _Live) -> Buffer | None:
        """The memory of a tensor that has ended, which this one takes; None if it gets its own."""
        shape, width = live.tensor.runtime_shape, dtype_bits(live.tensor.dtype)
        # Single numbers never take over anything, nor do tensors whose shape is not known when the session is made.
        if not self.reuse or live.buffer.kind != "activation" or not shape or None in shape or width is None:
            return None
        for position, other in enumerate(self._ended):
            if other.tensor.runtime_shape == shape and dtype_bits(other.tensor.dtype) == width:
                return self._ended.pop(position).buffer
        return None

    def _inside(self, node: Node, made: Sequence[Event]) -> list[Event]:
        """What the bodies of a node ask for while it runs, and the outputs that a loop makes at its end."""
        if not node.subgraphs:
            return []
        # The bodies of If and Scan write into memory that these have taken for them.
        loop = node.is_loop
        frames = [
            replace(
                self, graph=g, fed=loop, uncounted=frozenset() if loop else frozenset(g.outputs), _ended=[]
            ).events()
            for g in node.subgraphs
        ]
        if not loop:
            return max(frames, key=lambda events: Requests(tuple(events)).peak)
        return _rounds(frames[0], made)


def _scratch(node: Node, steps: Sequence[int], held: list[Buffer | None]) -> Iterator[Event]:
    """What a kernel takes and gives back; `held` is what it has taken so far, None for what it gave back."""
    for step in steps:
        if step > 0:
            buffer = Buffer(f"{node.label} (scratch)", step, "scratch")
            held.append(buffer)
            yield Event(buffer)
        elif (old := held[-step - 1]) is not None:
            held[-step - 1] = None
            yield Event(old, freed=True)


def _rounds(body: Sequence[Event], made: Sequence[Event]) -> list[Event]:
    """A loop's body a few times: what a round hands on is freed when the next has handed on its own; the last one keeps
    what it was handed until what it hands on has been copied into what the loop makes.
    """
    events: list[Event] = []
    given: list[Buffer] = []
    handed: list[Buffer] = []
    for _ in range(_ROUNDS):
        events += [Event(buffer, freed=True) for buffer in given]
        fresh: dict[Buffer, Buffer] = {}
        for event in body:
            buffer = fresh.setdefault(event.buffer, replace(event.buffer))
            events.append(Event(buffer, event.freed))
        given, handed = handed, [copy for original, copy in fresh.items() if original.kind == "output"]
    return [*events, *made, *(Event(buffer, freed=True) for buffer in (*handed, *given))]


def _ending(node: Node, holding: dict[str, _Live], step: int) -> Iterable[_Live]:
    found: dict[int, _Live] = {}
    for name in (*node.reads, *node.outputs):
        live = holding.get(name)
        if live and live.buffer.size and live.upper == step + 1 and live.buffer.kind == "activation":
            found.setdefault(id(live), live)
    return found.values()


def pattern_size(events: Iterable[Event]) -> int:
    """The size of the block in which all activations lie: each in the gap that fits best, in the order of the calls."""
    blocks: list[tuple[int, int, Buffer]] = []
    total = 0
    for event in events:
        if event.buffer.kind != "activation":
            continue
        if event.freed:
            blocks = [block for block in blocks if block[2] is not event.buffer]
            continue
        size = -(-event.buffer.size // _PATTERN_STEP) * _PATTERN_STEP
        gaps: list[tuple[int, int, int]] = []
        end = 0
        for place, (offset, length, _) in enumerate(blocks):
            if offset - end >= size:
                gaps.append((offset - end - size, place, end))
            end = max(end, offset + length)
        if total - end >= size:
            gaps.append((total - end - size, len(blocks), end))
        # Of gaps that fit equally well the first.
        _, place, offset = min(gaps, default=(0, len(blocks), end))
        total = max(total, offset + size)
        blocks.insert(place, (offset, size, event.buffer))
    return total


def as_saved(graph: Graph) -> Graph:
    """The graph as a file that ONNX Runtime wrote: nodes in the order in which it ran them, and numbered by it."""
    memory = memory_of(graph, Rules(), number=lambda size: int(str(size)))
    order = find_order("ort-default", graph, memory.workload, time_limit=1.0).order
    nodes = tuple(replace(graph.nodes[position], index=place) for place, position in enumerate(order))
    return replace(graph, nodes=nodes, numbering="file")


def unknown_tensors(graph: Graph) -> tuple[str, ...]:
    """The tensors whose sizes cannot be told: what they take is in no figure."""
    return tuple(tensor.name for tensor in graph.all_tensors() if isinstance(tensor.size, Unknown))
