"""A graph in a chosen order → when each buffer begins and ends, subgraphs included.

Steps are nodes. A node with subgraphs (If, Loop, Scan) is as many steps as its subgraphs have, plus one for itself;
everything alive around it is alive during all of them. Both branches of an If are laid out one after the other, since
only one of them runs; the body of a Loop or Scan is laid out once, with what it carries from one round to the next
counted twice, as it comes in and as it goes out. What a Loop hands out of it is made after its last round: in its own
step, to which what that round was fed and has made stays, since it is a copy of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnxmem.errors import ModelError
from onnxmem.model.comparing import evaluate
from onnxmem.model.dims import Dim, symbols_of, total
from onnxmem.model.graph import Graph, Node, Tensor
from onnxmem.schedule.orders import find_order
from onnxmem.schedule.search import OrderResult
from onnxmem.schedule.storages import Rules, memory_of
from onnxmem.schedule.workload import lifetimes
from onnxmem.unknown import Unknown


@dataclass(frozen=True)
class Step:
    """One node, at its place in the order."""

    label: str
    op_type: str


@dataclass(frozen=True, kw_only=True)
class Span:
    """A buffer of `size` bytes, alive from step `lower` up to, not including, `upper`; it holds these tensors."""

    id: str
    tensors: tuple[Tensor, ...]
    lower: int
    upper: int
    size: Dim
    kind: str
    """`activation`, `output` or `input`; `stripe` or `block` for one that is there only because the graph is tiled."""
    producer: str | None
    """The label of the node that writes it first; None for what is there from the start."""
    consumers: tuple[str, ...]
    """The labels of the nodes that read it, in the order in which they run."""

    @property
    def bytes(self) -> int:
        """Its size where all dimensions have numbers."""
        if not isinstance(self.size, int):
            raise ModelError(f"the size of '{self.id}' depends on {', '.join(sorted(self.size.symbols))}")
        return self.size


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """All buffers of a graph run in one order. What has no known size is in `unknown`, not among the spans."""

    order: str
    steps: tuple[Step, ...]
    spans: tuple[Span, ...]
    unknown: tuple[Tensor, ...]
    rules: Rules
    search: OrderResult
    """The order of the main graph's nodes, and what is proven about it at the sample dimensions."""

    @property
    def symbols(self) -> frozenset[str]:
        """The free dimensions that sizes depend on."""
        return frozenset().union(*(symbols_of(span.size) for span in self.spans))

    @property
    def total(self) -> Dim:
        """All buffers together, as if nothing were ever reused."""
        return total(span.size for span in self.spans)

    def live(self) -> list[Dim]:
        """The bytes alive at each step; where nothing runs, those that are there all the same."""
        length = max([len(self.steps), *(span.upper for span in self.spans)])
        changes: list[list[Dim]] = [[] for _ in range(length + 1)]
        for span in self.spans:
            changes[span.lower].append(span.size)
            changes[span.upper].append(-span.size)
        sums: list[Dim] = []
        for change in changes[:-1]:
            sums.append(total([*sums[-1:], *change]))
        return sums


@dataclass
class _Layout:
    """A timeline under construction."""

    order: str
    rules: Rules
    sample: Mapping[str, int]
    time_limit: float
    effort: float | None
    seed: int
    alignment: int
    steps: list[Step] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    unknown: list[Tensor] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)


def lay_out(
    graph: Graph,
    order: str = "file",
    rules: Rules | None = None,
    *,
    sample: Mapping[str, int] | None = None,
    time_limit: float = 5.0,
    effort: float | None = None,
    seed: int = 0,
    alignment: int = 1,
    found: OrderResult | None = None,
) -> Timeline:
    """Run `graph` on paper, in the order of that name.

    Sizes may be symbolic. Orders that look at sizes see them at the dimensions in `sample` (1 where it is silent), and
    as what they take in a plan with this `alignment`: what is proven about an order is proven of those.
    `best` searches with that `effort`, for `time_limit` seconds at most. `found` is the order of the main graph if it
    was chosen elsewhere.
    """
    layout = _Layout(order, rules or Rules(), sample or {}, time_limit, effort, seed, alignment)
    search = found or _choose_order(graph, layout, layout.rules, frozenset())
    _lay_out(graph, layout, "", layout.rules, frozenset(), search.order)
    return Timeline(
        order=order,
        steps=tuple(layout.steps),
        spans=tuple(layout.spans),
        unknown=tuple(layout.unknown),
        rules=layout.rules,
        search=search,
    )


def _lay_out(
    graph: Graph,
    layout: _Layout,
    prefix: str,
    rules: Rules,
    uncounted: frozenset[str],
    chosen: Sequence[int],
    *,
    copied: bool = False,
) -> None:
    """The nodes one after the other; what stays to the end stays for another step if it is `copied` in that."""
    # For lifetimes all that counts is which sizes are certainly equal: number the expressions, not their values.
    numbers: dict[Dim, int] = {}
    memory = memory_of(graph, rules, number=lambda size: numbers.setdefault(size, len(numbers)), uncounted=uncounted)
    place = {position: k for k, position in enumerate(chosen)}
    labels = {position: prefix + node.label for position, node in enumerate(graph.nodes)}
    first_step = []
    for position in chosen:
        node = graph.nodes[position]
        first_step.append(len(layout.steps))
        for k, subgraph in enumerate(node.subgraphs):
            inside = _inside(subgraph, node, layout)
            order = _choose_order(subgraph, layout, *inside).order
            inner = f"{prefix}{node.label}/{k}:"
            _lay_out(subgraph, layout, inner, *inside, order, copied=node.is_loop)
        layout.steps.append(Step(labels[position], node.op_type))
    first_step.append(len(layout.steps))
    end = len(layout.steps) + copied

    layout.unknown.extend(
        t
        for t in graph.tensors.values()
        if isinstance(t.size, Unknown) and (rules.inputs or t.name not in graph.inputs)
    )
    outputs, fed = set(graph.outputs), set(graph.inputs)
    for row in lifetimes(memory.workload, chosen):
        tensors = tuple(tensor for index in row.storages for tensor in memory.tensors[index])
        owner = tensors[0]
        names = {tensor.name for tensor in tensors}
        kind = "input" if owner.name in fed else "output" if names & outputs else "activation"
        if isinstance(owner.size, Unknown):
            continue
        span_id = _unique(prefix + owner.name, layout.ids)
        storages = memory.workload.storages
        producer = storages[row.storages[0]].producer
        late = producer >= 0 and owner.name in _copies(graph.nodes[producer])
        lower = first_step[row.lower + 1] - 1 if late else first_step[row.lower]
        upper = end if storages[row.storages[-1]].stays else first_step[row.upper]
        readers = {node for index in row.storages for node in storages[index].consumers}
        layout.spans.append(
            Span(
                id=span_id,
                tensors=tensors,
                lower=lower,
                upper=max(upper, lower + 1),
                size=owner.size,
                kind=kind,
                producer=labels.get(producer),
                consumers=tuple(labels[node] for node in sorted(readers, key=place.__getitem__)),
            )
        )


def _inside(graph: Graph, node: Node, layout: _Layout) -> tuple[Rules, frozenset[str]]:
    """How a subgraph's own inputs and outputs count."""
    # An If's branches write straight into its outputs. A loop's body has its own, and its own inputs.
    loop = node.op_type != "If"
    return replace(layout.rules, inputs=loop), frozenset() if loop else frozenset(graph.outputs)


def _choose_order(graph: Graph, layout: _Layout, rules: Rules, uncounted: frozenset[str]) -> OrderResult:
    """The order of the graph's nodes, chosen for sizes at the sample dimensions."""
    sample = layout.sample

    def at_sample(size: Dim) -> int:
        # A dimension can be negative at sizes too small for the model; any number will do for those.
        number = max(0, evaluate(size, {name: sample.get(name, 1) for name in symbols_of(size)}))
        return -(-number // layout.alignment) * layout.alignment

    def beside(node: Node) -> int:
        found = [_choose_order(g, layout, *_inside(g, node, layout)) for g in node.subgraphs]
        most = max((each.peak for each in found), default=0)
        if not node.is_loop:
            return most
        # Its outputs count as if they were there all the time; these are not while the body runs.
        made = (graph.tensors[name].size for name in _copies(node) if name in graph.tensors and name not in uncounted)
        later = sum(at_sample(size) for size in made if not isinstance(size, Unknown))
        return max(most - later, _carried(node, layout, at_sample))

    workload = memory_of(graph, rules, number=at_sample, scratch=beside, uncounted=uncounted).workload
    return find_order(
        layout.order, graph, workload, time_limit=layout.time_limit, effort=layout.effort, seed=layout.seed
    )


def _copies(node: Node) -> Sequence[str]:
    """The outputs of a Loop that are copies of what its last round has made; those that collect rounds are not."""
    # The body of a Loop is fed the number of the round and whether to go on, and then what is carried.
    return node.outputs[: len(node.subgraphs[0].inputs) - 2] if node.is_loop else ()


def _carried(loop: Node, layout: _Layout, number: Callable[[Dim], int]) -> int:
    """What the last round of a Loop was fed and has made."""
    (body,) = loop.subgraphs
    rules, uncounted = _inside(body, loop, layout)
    storages = memory_of(body, rules, number=number, uncounted=uncounted).workload.storages
    return sum(storage.size for storage in storages if storage.stays)


def _unique(name: str, taken: set[str]) -> str:
    """`name`, or with a number where a subgraph uses it again."""
    candidate, count = name, 2
    while candidate in taken:
        candidate, count = f"{name}#{count}", count + 1
    taken.add(candidate)
    return candidate
