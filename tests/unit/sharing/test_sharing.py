"""Sharing without processes: what follows from the figures of workers, and that a saved result comes back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmem.measurement.feeds import ArrayType, Dims, Fed
from onnxmem.report.build import make_report
from onnxmem.sharing.sharing import Cold, Group, Latency, Sharing, Worker
from onnxmem.unknown import Unknown

MIB = 2**20
WEIGHTS = 100 * MIB
NO = Unknown("it was not asked for")


def worker(pss: int = 50, *, files: int = 0, latency: float = 0.01, outputs: str = "ab", **more: Any) -> Worker:
    """A process with so many MiB."""
    figures = {
        "uss": pss * MIB // 2,
        "anon": pss * MIB // 3,
        "load_peak": pss * MIB,
        "load_peak_anon": MIB,
        "loaded_anon": MIB,
        "load_seconds": 0.2,
        "first_run": 0.03,
        **more,
    }
    return Worker(
        pss=pss * MIB, model_pss=files * MIB, latencies=(latency, latency * 3, latency), outputs=outputs, **figures
    )


def group(mode: str, *workers: Worker) -> Group:
    return Group(mode=mode, count=len(workers), rounds=(workers,), cold=Cold(load_seconds=NO, first_run=0.5))


def sharing(*groups: Group, ratio: float | None = 1.0) -> Sharing:
    modes = dict.fromkeys(group.mode for group in groups)
    return Sharing(
        model="m.onnx",
        file_bytes=WEIGHTS,
        weights_bytes=WEIGHTS,
        threads=None,
        runs=5,
        fed=Fed(inputs={"x": ArrayType("float32", (1, 3))}, dims=Dims({}, {"N": 1}), generated={"x": "floats"}),
        groups=groups,
        latencies=tuple(Latency(mode=mode, seconds=(0.01, 0.02), of_baseline=ratio) for mode in modes),
    )


STOCK = (group("stock", worker(160)), group("stock", worker(160), worker(160)))
PACKED = (group("prepacked", worker(140, files=100)), group("prepacked", *[worker(90, files=50)] * 2))
MAPPED = group("mapped", *[worker(80, files=50, outputs="cd")] * 2)

sizes = st.one_of(st.integers(0, 2**40), st.builds(Unknown, st.text(min_size=1)))
seconds = st.floats(0, 1e6)
workers = st.builds(
    Worker,
    **dict.fromkeys(("pss", "uss", "anon", "model_pss", "load_peak", "load_peak_anon", "loaded_anon"), sizes),
    load_seconds=seconds,
    first_run=seconds,
    latencies=st.lists(seconds, max_size=3).map(tuple),
    outputs=st.text(),
)


@given(st.lists(workers, min_size=1, max_size=3), st.sampled_from(["stock", "ort", "planned", "mapped"]))
def test_what_is_saved_comes_back_equal(members: list[Worker], mode: str) -> None:
    failed = Group(
        mode="mapped", count=2, cold=Cold(load_seconds=0.5, first_run=NO), failures=("worker 1 of 2: killed",)
    )
    result = sharing(group(mode, *members), failed, ratio=None)
    document = json.loads(json.dumps(result.document(), allow_nan=False))
    assert Sharing.from_document(document) == result
    assert document["schema"] == "onnxmem.share/1" and document["command"] and document["date"]


def test_rows_of_several_workers_have_the_latency_of_these_workers() -> None:
    one, two = group("stock", worker(latency=0.01)), group("stock", worker(latency=0.03), worker(latency=0.05))
    assert [each.latency for each in sharing(one, two).modes] == [0.01, pytest.approx(0.05)]


def test_page_and_terminal_recommend_the_mode_that_the_document_does() -> None:
    result = sharing(*STOCK, *PACKED, MAPPED)
    first, second = result.recommendations
    assert first.mode == "prepacked" and "140.0 MiB (43.8%) less than stock" in first.text
    assert second.mode == "mapped" and "Its outputs differ from those of stock" in second.text
    section = make_report([result]).sections[0]
    assert "prepacked" in section.summary and section.actions[0].text.startswith(first.text)


def test_equal_outputs_are_never_said_to_differ() -> None:
    equal = group("mapped", *[worker(70, files=50)] * 2)
    result = sharing(*STOCK, *PACKED, equal)
    (only,) = result.recommendations
    assert only.mode == "mapped" and "less than stock, with the same outputs" in only.text
    assert "differ" not in f"{only.text} {only.trade_off}"
    assert not any("differ" in note for note in make_report([result]).sections[0].notes)


def test_as_little_with_outputs_that_are_always_equal_is_better() -> None:
    near = group("mapped", *[worker(89, files=50)] * 2)
    assert [each.mode for each in sharing(*STOCK, *PACKED, near).recommendations] == ["prepacked"]


def test_the_baseline_of_an_ort_file_is_ort() -> None:
    result = sharing(group("ort", worker(160)), group("ort-mapped", worker(120, files=100)))
    assert result.document()["baseline"] == "ort" and result.modes[1].of_baseline == 0.75
    (first,) = result.recommendations
    assert "less than ort, with the same outputs" in first.text
    page = json.dumps([str(part) for part in make_report([result]).sections])
    assert "of ort" in page and "stock" not in page


def test_nothing_that_was_measured_is_below_the_floor() -> None:
    planned = group("planned", *[worker(65, files=50)] * 2)
    result = sharing(*STOCK, *PACKED, planned)
    assert result.floor(2) == 130 * MIB
    assert all(isinstance(each.of_floor, float) and each.of_floor >= 1 for each in result.modes)
    assert isinstance(sharing(*STOCK).floor(2), Unknown)


def test_a_package_with_plans_is_not_said_to_be_recorded() -> None:
    planned = replace(PACKED[1], mode="planned")
    (only,) = sharing(planned).recommendations
    assert "shapes without a saved plan" in only.trade_off


def test_who_fails_is_recommended_to_nobody() -> None:
    failed = replace(PACKED[1], failures=("worker 1 of 2: killed",))
    assert not sharing(failed).recommendations
    assert [each.mode for each in sharing(STOCK[1], failed).recommendations] == ["stock"]
