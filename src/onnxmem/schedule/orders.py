"""Orders in which a graph's nodes can run, each a topological order of node positions."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from onnxmem.errors import UsageError
from onnxmem.model.graph import Graph, backwards_from, leaves_of
from onnxmem.schedule.search import OrderResult, best_order
from onnxmem.schedule.storages import predecessors
from onnxmem.schedule.workload import Workload, peak

Order = list[int]

_FIRST = ("Shape", "Size")


def file_order(graph: Graph, _: Workload) -> Order:
    """As the nodes stand in the file; a file that is not sorted is sorted with as little change as possible."""
    return _kahn(graph, key=lambda position: (position,))


def ort_default(graph: Graph, workload: Workload) -> Order:
    """ONNX Runtime's default: depth-first backwards from the last leaf, among inputs the highest node number first."""
    if graph.numbering == "saved":
        return file_order(graph, workload)
    numbers = [node.index for node in graph.nodes]
    before = [sorted(inputs, key=lambda v: -numbers[v]) for inputs in predecessors(graph)]
    return backwards_from(sorted(leaves_of(before), key=lambda v: -numbers[v]), before)


def ort_priority(graph: Graph, _: Workload) -> Order:
    """ONNX Runtime's priority-based order: whatever is ready, Shape and Size first, then the lowest node number."""
    return _kahn(graph, key=lambda position: (graph.nodes[position].op_type not in _FIRST, graph.nodes[position].index))


def depth_first(graph: Graph, _: Workload) -> Order:
    """Nothing before it is needed: backwards from the first output, each input made completely before the next."""
    before = predecessors(graph)
    return backwards_from(leaves_of(before), before)


def breadth_first(graph: Graph, _: Workload) -> Order:
    """All that is ready, then all that became ready by it, and so on."""
    before = predecessors(graph)
    followers, waiting = _followers(before), [len(inputs) for inputs in before]
    queue = deque(v for v in range(len(before)) if not waiting[v])
    order: Order = []
    while queue:
        node = queue.popleft()
        order.append(node)
        for follower in followers[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                queue.append(follower)
    return order


def greedy(graph: Graph, workload: Workload) -> Order:
    """Whatever leaves the fewest bytes alive after it, among the nodes that are ready."""
    before = predecessors(graph)
    followers, waiting = _followers(before), [len(inputs) for inputs in before]
    written = [0] * len(before)
    readers_left = [len(storage.consumers) for storage in workload.storages]
    reads: list[list[int]] = [[] for _ in before]
    for index, storage in enumerate(workload.storages):
        if storage.producer >= 0 and (storage.consumers or storage.pinned):
            written[storage.producer] += storage.size
        for consumer in storage.consumers:
            reads[consumer].append(index)

    def growth(node: int) -> int:
        freed = (
            workload.storages[index].size
            for index in reads[node]
            if readers_left[index] == 1 and not workload.storages[index].pinned
        )
        return written[node] - sum(freed)

    # A node's growth only falls while it waits, when it becomes the last reader of something: lazy updates suffice.
    heap = [(growth(v), v) for v in range(len(before)) if not waiting[v]]
    heapq.heapify(heap)
    done, order = [False] * len(before), Order()
    while heap:
        _, node = heapq.heappop(heap)
        if done[node]:
            continue
        done[node] = True
        order.append(node)
        for index in reads[node]:
            readers_left[index] -= 1
            if readers_left[index] == 1:
                last = next(c for c in workload.storages[index].consumers if not done[c])
                if not waiting[last]:
                    heapq.heappush(heap, (growth(last), last))
        for follower in followers[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(heap, (growth(follower), follower))
    return order


SIMPLE_ORDERS: dict[str, Callable[[Graph, Workload], Order]] = {
    "file": file_order,
    "ort-default": ort_default,
    "ort-priority": ort_priority,
    "depth-first": depth_first,
    "breadth-first": breadth_first,
    "greedy": greedy,
}


ORDERS = (*SIMPLE_ORDERS, "best")


def check_order_name(name: str) -> None:
    """Raise UsageError unless there is an order of that name."""
    if name not in ORDERS:
        raise UsageError(f"there is no order '{name}'", hint=f"known: {', '.join(ORDERS)}")


def find_order(
    name: str, graph: Graph, workload: Workload, *, time_limit: float, effort: float | None = None, seed: int = 0
) -> OrderResult:
    """The order of that name, its peak, and what is proven about it.

    Only `best` searches. It starts from all the others and is never worse, as far as ONNX Runtime can be made to run
    them; the others are what they are, and nothing is proven about them.
    """
    check_order_name(name)
    if name == "best":
        starts = [simple(graph, workload) for simple in SIMPLE_ORDERS.values()]
        return best_order(workload, time_limit=time_limit, effort=effort, seed=seed, start_orders=starts)
    started = time.perf_counter()
    order = SIMPLE_ORDERS[name](graph, workload)
    return OrderResult(order, peak(workload, order), False, 0, time.perf_counter() - started)


def _followers(before: Sequence[Iterable[int]]) -> list[list[int]]:
    followers: list[list[int]] = [[] for _ in before]
    for node, inputs in enumerate(before):
        for predecessor in inputs:
            followers[predecessor].append(node)
    return followers


def _kahn(graph: Graph, key: Callable[[int], tuple[object, ...]]) -> Order:
    """Among the nodes that are ready, always the one with the smallest key."""
    before = predecessors(graph)
    followers, waiting = _followers(before), [len(inputs) for inputs in before]
    heap = [(key(v), v) for v in range(len(before)) if not waiting[v]]
    heapq.heapify(heap)
    order: Order = []
    while heap:
        _, node = heapq.heappop(heap)
        order.append(node)
        for follower in followers[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(heap, (key(follower), follower))
    return order
