"""Timelines that are compared by eye: each phase begins at the same place in all of them."""

from __future__ import annotations

from typing import Any

from onnxmem.report.charts.timeline import LENGTH, aligned


def measured(*seconds: float) -> dict[str, Any]:
    """Phases that took so long, with a sample in the middle of each."""
    phases, timeline, at = [], [], 0.0
    for name, length in zip(("import", "load", "steady runs"), seconds, strict=False):
        phases.append({"name": name, "began_seconds": at, "seconds": length})
        timeline.append({"seconds": at + length / 2, "rss_bytes": 1, "file_bytes": 0})
        at += length
    return {"phases": phases, "timeline": timeline}


def test_phases_begin_together_and_samples_move_with_them() -> None:
    slow, quick = aligned([measured(2.0, 6.0, 1.0), measured(1.0, 2.0, 4.0)])
    for document in (slow, quick):
        assert [phase["began_seconds"] for phase in document["phases"]] == [0.0, 2.0, 8.0]
        assert document[LENGTH] == 12.0
    assert [sample["seconds"] for sample in slow["timeline"]] == [1.0, 5.0, 8.5]
    assert [sample["seconds"] for sample in quick["timeline"]] == [0.5, 3.0, 10.0]


def test_one_that_ended_early_lies_beside_the_others() -> None:
    whole, broken = aligned([measured(1.0, 1.0, 1.0), measured(1.0, 5.0)])
    assert [phase["began_seconds"] for phase in whole["phases"]] == [0.0, 1.0, 6.0]
    assert [phase["name"] for phase in broken["phases"]] == ["import", "load"] and broken[LENGTH] == 7.0
