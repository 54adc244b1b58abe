"""The native functions once more, as slow and plain as possible: what the fast ones are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations

from hypothesis import strategies as st

from onnxmem.placement.problem import Buffer, Problem


def overlap(a: Buffer, b: Buffer) -> bool:
    return a.lower < b.upper and b.lower < a.upper


def place_in_order(problem: Problem, order: Iterable[int], *, best_fit: bool) -> list[int]:
    """Every gap between those placed before is a candidate, and so is the place above them all."""
    offsets = [0] * len(problem)
    placed: list[int] = []
    for index in order:
        buffer, size = problem[index], int(problem.footprints[index])
        if not size:
            continue
        taken = sorted(
            (offsets[i], offsets[i] + int(problem.footprints[i])) for i in placed if overlap(problem[i], buffer)
        )
        gaps = []
        free_from = 0
        for start, end in taken:
            if start - free_from >= size:
                gaps.append((start - free_from, free_from))
            free_from = max(free_from, end)
        offsets[index] = (min(gaps)[1] if best_fit else gaps[0][1]) if gaps else free_from
        placed.append(index)
    return offsets


def smallest_peak(problem: Problem) -> int:
    """First fit in every order: one of them is by rising offset of an optimal plan, and loses nothing to it."""
    peaks = []
    for order in permutations(range(len(problem))):
        offsets = place_in_order(problem, order, best_fit=False)
        peaks.append(max((o + s for o, s in zip(offsets, problem.footprints.tolist(), strict=True)), default=0))
    return min(peaks)


def maximal_live_sets(problem: Problem) -> set[frozenset[int]]:
    """The sets of buffers alive together that lie in no other such set."""
    alive = {
        frozenset(i for i, b in enumerate(problem) if b.size and b.lower <= start.lower < b.upper) for start in problem
    }
    return {one for one in alive if one and not any(one < other for other in alive)}


def connected_parts(problem: Problem) -> set[frozenset[int]]:
    """Buffers that overlap, directly or through others."""
    rest = {i for i, b in enumerate(problem) if b.size}
    parts = set()
    while rest:
        part = {rest.pop()}
        while more := {i for i in rest if any(overlap(problem[i], problem[j]) for j in part)}:
            part |= more
            rest -= more
        parts.add(frozenset(part))
    return parts


@st.composite
def problems(draw: st.DrawFn, *, most: int = 12, largest: int = 30) -> Problem:
    """Small problems: few steps and few sizes, so that buffers meet and sums coincide."""
    rows: Sequence[tuple[int, int, int]] = draw(
        st.lists(st.tuples(st.integers(-3, 10), st.integers(1, 8), st.integers(0, largest)), max_size=most)
    )
    buffers = [Buffer(str(i), lower, lower + steps, size) for i, (lower, steps, size) in enumerate(rows)]
    return Problem.of(buffers, alignment=draw(st.sampled_from([1, 1, 4, 7])))
