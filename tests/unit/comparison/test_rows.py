"""Who wins: only what the samples decide, and by how much."""

import pytest

from benchmarks.winners import NOISES, Noise, agreement, by_intervals, by_ranges
from onnxmem.comparison.result import Figure
from onnxmem.comparison.rows import SAME, UNDECIDED, WINNER, decide


def test_a_clear_winner_and_its_ratio() -> None:
    found = decide({"a": Figure((300.0, 301, 302)), "b": Figure((100.0, 101, 102))}, 0.02)
    assert found.verdict == WINNER and found.best == ("b",)
    assert found.ratio is not None and 2.9 < found.ratio < 3.0
    low, high = found.intervals["a"]
    assert low < found.ratio < high


def test_the_same_and_undecided_are_two_things() -> None:
    close = {"a": Figure((100.0, 100.5, 101.0)), "b": Figure((101.0, 101.5, 101.0))}
    assert decide(close, 0.1).verdict == SAME
    wild = {"a": Figure((100.0, 120, 140)), "b": Figure((150.0, 110, 180))}
    assert decide(wild, 0.1).verdict == UNDECIDED and decide(wild, 0.1).best == ("a", "b")
    assert decide(wild, 0.1).ratio is None
    # One sample of each tells nothing about the next.
    assert decide({"a": Figure((100.0,)), "b": Figure((200.0,))}, 0.1).verdict == UNDECIDED
    # A few KiB are how the kernel counts.
    assert decide({"a": Figure((0.0, 0, 100)), "b": Figure((200.0, 0, 300))}, 0.1, least=4096).verdict == SAME


def test_what_slows_a_whole_round_does_not_hide_the_winner() -> None:
    rounds = (1.0, 3.0, 1.1, 2.5, 1.0)
    paired = {"a": Figure(tuple(10 * slow for slow in rounds)), "b": Figure(tuple(14 * slow for slow in rounds))}
    assert decide(paired, 0.1).best == ("a",)


def test_what_is_known_exactly_needs_no_repetition() -> None:
    sizes = {"a": Figure((1000,)), "b": Figure((1010,)), "c": Figure((1100,))}
    found = decide(sizes, 0.02, exact=True)
    assert found.verdict == SAME and found.best == ("a", "b") and found.ratio == 1.1


def test_two_that_tie_beat_the_third() -> None:
    found = decide({"a": Figure((10.0, 10.1)), "b": Figure((10.1, 10.2)), "c": Figure((50.0, 50.5))}, 0.02)
    assert found.best == ("a", "b") and found.verdict == SAME and found.ratio is not None and found.ratio > 4.9


def test_one_alone_has_beaten_nobody() -> None:
    assert decide({"a": Figure((1.0,))}, 0.02).verdict is None


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.__name__)
@pytest.mark.parametrize("scale", [0.02, 0.1])
def test_comparing_again_does_not_contradict(noise: Noise, scale: float) -> None:
    ranges, intervals = (agreement(rule, noise, scale, pairs=60) for rule in (by_ranges, by_intervals))
    assert intervals.contradict <= 0.01
    assert intervals.contradict + intervals.named_once < ranges.contradict
    assert intervals.undecided < 0.75
