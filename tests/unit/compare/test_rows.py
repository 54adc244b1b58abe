"""Who wins: only outside the noise, and by how much."""

from onnxmem.compare.advice import container_size
from onnxmem.compare.figure import Figure
from onnxmem.compare.rows import decide

MIB = 2**20


def test_a_clear_winner_and_its_ratio() -> None:
    best, ratio = decide({"a": Figure((300.0, 301, 302)), "b": Figure((100.0, 101, 102))}, 0.02)
    assert best == ("b",) and ratio is not None and 2.9 < ratio < 3.0


def test_nobody_wins_within_the_noise() -> None:
    assert decide({"a": Figure((100.0, 120, 140)), "b": Figure((110.0, 125, 150))}, 0.02) == (("a", "b"), None)
    # They do not overlap, but nobody would care.
    assert decide({"a": Figure((100.0,)), "b": Figure((101.0,))}, 0.02)[1] is None
    # Two samples each show too little of their spread.
    assert decide({"a": Figure((100.0, 120.0)), "b": Figure((130.0, 150.0))}, 0.02)[1] is None
    five = {"a": Figure((100.0, 105, 110, 115, 120)), "b": Figure((130.0, 135, 140, 145, 150))}
    assert decide(five, 0.02)[0] == ("a",)
    # A few KiB are how the kernel counts.
    assert decide({"a": Figure((100.0,)), "b": Figure((200.0,))}, 0.02, least=4096)[1] is None


def test_two_that_tie_beat_the_third() -> None:
    best, ratio = decide({"a": Figure((10.0,)), "b": Figure((10.1,)), "c": Figure((50.0,))}, 0.02)
    assert best == ("a", "b") and ratio == 5


def test_one_alone_has_beaten_nobody() -> None:
    assert decide({"a": Figure((1.0,))}, 0.02) == ((), None)


def test_containers_come_in_usual_sizes() -> None:
    assert container_size(100 * MIB) == 256 * MIB
    assert container_size(100 * MIB, 0.0) == 128 * MIB
    assert container_size(700 * MIB) == 1280 * MIB
    assert container_size(3000 * MIB) == 5120 * MIB
