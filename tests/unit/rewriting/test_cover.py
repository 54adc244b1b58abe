"""The fewest nodes that keep below a level, against all choices there are."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from onnxmem.rewriting.candidates import Candidate
from onnxmem.rewriting.cover import Table, cover
from onnxmem.rewriting.stripes import Span

COUNT = 6


@st.composite
def candidate(draw: st.DrawFn) -> Candidate:
    first = draw(st.integers(0, COUNT - 1))
    last = draw(st.integers(first, COUNT - 1))
    peak = draw(st.integers(0, 9))
    sizes = {"handed": draw(st.integers(0, peak)), "joined": draw(st.integers(0, 9))}
    pieces = draw(st.integers(2, 3))
    return Candidate(Span(first, last, pieces), peak, **sizes, extra=draw(st.integers(0, 5)), nodes=10 * pieces)


def choices(found: list[Candidate], place: int) -> Iterator[tuple[Candidate, ...]]:
    """All that have no node in common, from this node on."""
    if place >= COUNT:
        yield ()
        return
    yield from choices(found, place + 1)
    for each in found:
        if each.span.first == place:
            yield from ((each, *others) for others in choices(found, each.span.last + 1))


def keeps_below(chosen: tuple[Candidate, ...], live: list[int], most: int) -> bool:
    inside = {place for each in chosen for place in range(each.span.first, each.span.last + 1)}
    if any(alive > most for place, alive in enumerate(live) if place not in inside):
        return False
    ends = {each.span.last + 1 for each in chosen}
    begins = {each.span.first for each in chosen}
    for each in chosen:
        handed = each.span.first in ends and each.handed <= most
        joined = each.span.last + 1 in begins or each.span.last + 1 == COUNT or each.joined <= most
        if not (handed or each.peak <= most) or not joined:
            return False
    return True


@given(
    st.lists(candidate(), max_size=6), st.lists(st.integers(0, 9), min_size=COUNT, max_size=COUNT), st.integers(0, 9)
)
def test_no_choice_has_fewer_nodes(found: list[Candidate], live: list[int], most: int) -> None:
    chosen = cover(Table(found), live, most, 8)
    good = [
        sum(each.nodes for each in choice)
        for choice in choices(found, 0)
        if keeps_below(choice, live, most)
        and sum(each.extra for each in choice) <= 8
        # A region where nothing is too high is not looked at.
        and all(max(live[each.span.first : each.span.last + 1]) > most for each in choice)
    ]
    # Of two with the same ends, the one with fewer nodes is taken, whatever it multiplies, which may then be too much.
    alike = len({each.span[:2] for each in found}) < len(found)
    assert (chosen is None) == (not good) or (alike and chosen is None)
    if chosen is not None:
        assert keeps_below(chosen, live, most)
        assert sum(each.extra for each in chosen) <= 8
        assert sum(each.nodes for each in chosen) >= min(good)


def test_of_two_with_the_same_ends_and_nodes_the_one_with_less_work_is_taken() -> None:
    costly, cheap = (Candidate(Span(0, 3, 2), 0, handed=0, joined=0, extra=extra, nodes=20) for extra in (5, 0))
    other = Candidate(Span(4, 5, 2), 0, handed=0, joined=0, extra=4, nodes=20)
    assert cover(Table([costly, cheap, other]), [0, 0, 0, 1, 0, 1], 0, 8) == (cheap, other)
