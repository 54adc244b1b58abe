"""Tiny workloads that use every rule, and every order of them."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from onnxmem.schedule.workload import Storage, Workload, dependencies, obeys_glue


def all_orders(workload: Workload) -> Iterator[list[int]]:
    """Every order the workload allows, glue respected."""
    before = dependencies(workload)

    def extend(prefix: list[int]) -> Iterator[list[int]]:
        if len(prefix) == len(workload):
            yield list(prefix)
            return
        done = set(prefix)
        ready = [v for v in range(len(workload)) if v not in done and before[v] <= done]
        urgent = [v for v in ready if workload.glued[v] >= 0]
        for node in urgent or ready:
            prefix.append(node)
            yield from extend(prefix)
            prefix.pop()

    for order in extend([]):
        assert obeys_glue(workload, order)
        yield order


@st.composite
def workloads(draw: st.DrawFn, most: int = 8, sizes: int = 6) -> Workload:
    """Small workloads that use every rule: aliases, several outputs, pins, in-place pairs, glue and scratch."""
    count = draw(st.integers(0, most))
    predecessors = [draw(st.sets(st.integers(0, v - 1), max_size=3)) if v else set() for v in range(count)]
    storages = []
    size = st.integers(0, sizes)
    for node in range(count):
        after = [v for v in range(node + 1, count) if node in predecessors[v]]
        for part in range(draw(st.integers(0, 2))):
            readers = draw(st.sets(st.sampled_from(after))) if after else set()
            # A reader of an alias is a reader too: some successor of a reader.
            beyond = [v for v in range(count) if predecessors[v] & readers and v not in readers]
            readers |= draw(st.sets(st.sampled_from(beyond), max_size=1)) if beyond else set()
            pinned = draw(st.booleans()) and draw(st.booleans())
            storages.append(Storage(f"{node}.{part}", draw(size), node, tuple(sorted(readers)), pinned))
    for part in range(draw(st.integers(0, 2)) if count else 0):
        readers = draw(st.sets(st.integers(0, count - 1), max_size=3))
        storages.append(Storage(f"in.{part}", draw(size), -1, tuple(sorted(readers)), draw(st.booleans())))
    inplace = []
    for node in range(count):
        pairs = [
            (a, b)
            for a, source in enumerate(storages)
            for b, target in enumerate(storages)
            if node in source.consumers and target.producer == node
        ]
        inplace.append(tuple(draw(st.lists(st.sampled_from(pairs), unique=True, max_size=4))) if pairs else ())
    glued = tuple(
        draw(st.sampled_from([-1, -1, -1, max(predecessors[v], default=v)])) for v in range(count)
    )  # fmt: skip
    scratch = tuple(draw(st.sampled_from([0, 0, 0, 1, 4])) for _ in range(count))
    return Workload(
        tuple(tuple(sorted(before)) for before in predecessors), tuple(storages), tuple(inplace), glued, scratch
    )
