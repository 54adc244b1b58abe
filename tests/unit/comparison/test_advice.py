"""What follows from the numbers, each with what it saves."""

from __future__ import annotations

from pathlib import Path

from onnxmem.comparison.advice import ESTIMATED, MEASURED, Advice, WhatIf, advise, container_size, order_command
from onnxmem.comparison.result import CandidateResult, Figure
from tests.unit.comparison.samples import MIB, candidate, comparison


def advice(*candidates: CandidateResult, what_ifs: tuple[WhatIf, ...] = ()) -> tuple[Advice, ...]:
    result = comparison(*candidates)
    return advise(result.candidates, result.parity, result.rows, result.fits, what_ifs)


A, B = candidate("a", 200, 200, 200), candidate("b", 300, 300, 300)


def test_what_to_provide_comes_first_then_changes_by_what_they_save() -> None:
    what_ifs = (WhatIf("mode", "Load it tuned", 50 * MIB, MEASURED), WhatIf("order", "Reorder", 90 * MIB, ESTIMATED))
    found = advice(A, B, what_ifs=what_ifs)
    assert [each.topic for each in found] == ["container", "workers", "candidate", "order", "batch", "mode", "little"]
    assert found[0].figures["container_bytes"] == 384 * MIB and found[0].figures["headroom"] == 0.5
    assert found[1].figures["workers_per_gib"] == 1024 / 200
    for each in found[2:-1]:
        assert each.saving and each.basis in (MEASURED, ESTIMATED)
    assert "measured once" in found[5].text and "(estimated)" in found[4].text
    # Loading does not set the peak here, so that external data would save nothing: it is said, not left open.
    assert found[-1].figures == {"external data": 0}
    assert found[-1].text == "Not worth doing for a (each saves under 3% of the peak): external data 0 B."


def test_external_data_where_loading_sets_the_peak() -> None:
    found = advice(candidate("a", 200, batch=1, load_peak=Figure((200 * MIB,)), total_rss=Figure((10 * MIB,))))
    assert [each.topic for each in found] == ["container", "workers", "external data"]
    assert found[-1].saving == 90 * MIB and found[-1].basis == ESTIMATED


def test_nobody_to_advise_on() -> None:
    assert advice() == ()


def test_no_advice_on_a_row_that_is_undecided() -> None:
    wild = candidate("b", 150, 330, 290)
    assert next(row for row in comparison(A, wild).rows if row.metric == "peak memory").verdict == "undecided"
    assert not [each for each in advice(A, wild) if each.topic == "candidate"]
    decided = [each for each in advice(A, B) if each.topic == "candidate"]
    assert [each.text for each in decided] == ["Run a instead of b: 100.0 MiB (33.3%) less at the peak."]


def test_small_differences_are_no_times_one() -> None:
    found = advice(A, candidate("b", 228, 228, 228))
    assert any("28.0 MiB (12.3%) less" in each.text for each in found)
    assert not any("times" in each.text for each in found)


def test_the_peak_in_advice_is_the_peak_of_the_row() -> None:
    spread = candidate("a", 200, 210, 290)
    (row,) = (row for row in comparison(spread, B).rows if row.metric == "peak memory")
    container, workers = advice(spread, B)[:2]
    assert container.figures["peak_rss_bytes"] == row.values["a"] == 210 * MIB
    assert "210.0 MiB" in container.text and "210.0 MiB" in workers.text
    # What was seen at most has to fit, too, even if nobody asked for headroom.
    tight = comparison(candidate("a", 200, 210, 600), B)
    (first, *_) = advise(tight.candidates, tight.parity, tight.rows, (), (), headroom=0)
    assert first.figures["container_bytes"] == 640 * MIB


def test_containers_come_in_usual_sizes() -> None:
    assert container_size(100 * MIB) == 256 * MIB
    assert container_size(100 * MIB, 0.0) == 128 * MIB
    assert container_size(700 * MIB) == 1280 * MIB
    assert container_size(3000 * MIB) == 5120 * MIB


def test_the_command_of_an_order_can_be_typed() -> None:
    command = order_command(Path("my nets/a.onnx"), {"x": (1, 3, 8, 8), "ids": (1, 7)})
    assert command == "onnxmem pack 'my nets/a.onnx' --shape x=1x3x8x8 --shape ids=1x7 --order best -o package"
