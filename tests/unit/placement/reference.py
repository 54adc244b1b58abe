"""The native functions once more, as slow and plain as possible: what the fast ones are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
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


def matchings(problem: Problem, pairs: Sequence[tuple[int, int]] | None = None) -> Iterator[list[tuple[int, int]]]:
    """All sets of pairs that a plan can use together: nowhere three at once."""
    pairs = [(b, a) for b, a in problem.shares.tolist()] if pairs is None else pairs
    if not pairs:
        yield []
        return
    (before, after), *others = pairs
    for used in matchings(problem, others):
        yield used
        with_it = [*used, (before, after)]
        befores, afters = [b for b, _ in with_it], [a for _, a in with_it]
        once = len(set(befores)) == len(befores) and len(set(afters)) == len(afters)
        follows = dict(with_it)
        if once and not any(b in follows and overlap(problem[a], problem[follows[b]]) for a, b in with_it):
            yield with_it


def smallest_shared_peak(problem: Problem) -> int:
    """For every set of pairs, every order of its chains, each as low as all its buffers find room at one offset."""
    return min(_smallest_peak_with(problem, used) for used in matchings(problem))


def _smallest_peak_with(problem: Problem, used: list[tuple[int, int]]) -> int:
    follows = dict(used)
    chains = [[i] for i in range(len(problem)) if i not in follows.values() and problem[i].size]
    for chain in chains:
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
    sizes: list[int] = problem.footprints.tolist()
    smallest = sum(sizes)
    for order in permutations(chains):
        placed: list[tuple[int, int]] = []
        for chain in order:
            # It can only rest on the ground, or on top of one that is there.
            for offset in sorted({0, *(o + sizes[i] for i, o in placed)}):
                if not any(
                    overlap(problem[i], problem[j]) and o < offset + sizes[j] and offset < o + sizes[i]
                    for i, o in placed
                    for j in chain
                ):
                    break
            placed += [(i, offset) for i in chain]
        smallest = min(smallest, max((o + sizes[i] for i, o in placed), default=0))
    return smallest


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


@st.composite
def sharing_problems(draw: st.DrawFn, *, most: int = 12, largest: int = 30) -> Problem:
    """Small problems in which some of the pairs that could share may."""
    problem = draw(problems(most=most, largest=largest))
    possible = [
        (b, a)
        for a, after in enumerate(problem)
        for b, before in enumerate(problem)
        if after.size <= before.size and before.lower < after.lower < before.upper <= after.upper
    ]
    return replace(problem, shares=np.array([pair for pair in possible if draw(st.booleans())], np.int64))
