"""Explaining what was saved: with its model, without it, and what is no measurement."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import helper

import onnxmem
from onnxmem.errors import ModelError, UsageError
from onnxmem.explaining.explain import explain, with_findings
from onnxmem.explaining.explained import Explained
from onnxmem.explaining.explanation import Explanation
from onnxmem.report.build import make_report
from onnxmem.report.render.to_terminal import render_terminal
from tests.unit.explaining.samples import MIB, measurement, runtime, value
from tests.unit.report import samples


def _model(path: Path) -> Path:
    """It holds 16 MiB while it runs."""
    nodes = [helper.make_node("Exp", ["x"], ["h"]), helper.make_node("ReduceMean", ["h"], ["y"])]
    graph = helper.make_graph(nodes, "sample", [value("x", 1, 8)], [value("y", 1, 1)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_saved_measurement_is_explained_and_comes_back_equal(tmp_path: Path) -> None:
    model = _model(tmp_path / "m.onnx")
    found = measurement(model=model, file=model.stat().st_size)
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(found.document()))
    explained = onnxmem.explain(saved)
    again = replace(onnxmem.explain(str(saved)), date=explained.date)  # a second may have passed
    assert explained == again and explained.parts == explain(found).parts
    assert sum(part.bytes for part in explained.parts) == explained.peak == 156 * MIB
    assert explained.notes == () and explained.part("session") > 0
    assert Explanation.from_document(json.loads(json.dumps(explained.document()))) == explained
    assert repr(explained).startswith("<Explanation of m.onnx, mode stock: peak 156.0 MiB, ") and "\n" not in repr(
        explained
    )


def test_without_its_model_the_parts_are_coarser_and_that_is_said(tmp_path: Path) -> None:
    gone = explain(measurement(runtime=runtime(used=20 * MIB)))
    assert gone.part("session") == 0 and gone.part("activations") == 20 * MIB
    assert gone.notes == ("The parts are coarser than they could be: the model is not at 'gone.onnx' any more.",)
    changed = explain(measurement(model=_model(tmp_path / "m.onnx"), file=7))
    assert "and not 7 as when it was measured" in changed.notes[0]


def test_what_failed_has_no_peak_to_explain() -> None:
    with pytest.raises(ModelError, match="no peak to explain: out of memory: no memory"):
        explain(measurement(verdict="out of memory"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a JSON file"),
        ("[]", "is no measurement"),
        ('{"schema": "onnxmem.plan/1"}', "this is not a document of 'onnxmem.measure/1'"),
        ('{"schema": "onnxmem.measure/1"}', "it has no"),
        (json.dumps({**measurement().document(), "trials": []}), "a measurement has at least one trial"),
        (None, "cannot read"),
    ],
)
def test_what_is_no_measurement_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "saved.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=message):
        explain(path)


def test_a_measurement_cannot_be_made_in_another_mode_afterwards(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mode cannot be changed any more"):
        explain(tmp_path / "saved.json", mode="tuned")


def test_measurements_carry_what_to_do_next(tmp_path: Path) -> None:
    model = _model(tmp_path / "m.onnx")
    document = with_findings(measurement(model=model, file=model.stat().st_size).document())
    assert [finding["rule"] for finding in document["findings"]] == ["heap_retention"]
    (section,) = make_report([document]).sections
    assert section.actions[0].text == "Run it tuned: it trims the heap (heap kept after loading)"
    failed = measurement(verdict="failed", phases={}).document()
    assert with_findings(failed) == failed


def test_a_comparison_shows_what_was_found_beside_what_it_measured() -> None:
    found = [
        {"what": what, "advice": what, "saving_bytes": MIB, "when": "", "command": f"onnxmem {command}"}
        for what, command in (("pattern", "measure m.onnx --mode planned"), ("weights", "pack m.onnx -o package"))
    ]
    stock, planned = samples.measure(), samples.measure("planned", run=10 * MIB)
    first = make_report([{**stock, "findings": found}, planned]).sections[0]
    assert [action.text for action in first.actions] == ["Run it planned", "weights (weights)"]


@pytest.mark.parametrize(("limit", "why"), [("_QUICK_NODES", "more than 1 nodes"), ("_QUICK_BYTES", "larger than 1 B")])
def test_large_models_are_not_looked_into_after_a_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, why: str
) -> None:
    model = _model(tmp_path / "m.onnx")
    found = measurement(model=model, file=model.stat().st_size)
    assert Explained.of(found, quick=True).note == ""
    monkeypatch.setattr(f"onnxmem.explaining.explained.{limit}", 1)
    assert why in Explained.of(found, quick=True).note
    assert Explained.of(found).note == ""
    assert with_findings(found.document())["findings"]


@pytest.mark.parametrize("width", [60, 80])
def test_it_fits_a_terminal(width: int) -> None:
    report = make_report([explain(measurement(runtime=runtime(used=20 * MIB), outputs=30 * MIB))])
    lines = render_terminal(report, width=width, colour=False).splitlines()
    assert all(len(line) <= width for line in lines)
    assert lines[2].startswith("Peak memory: 156.0 MiB; the largest parts are ")
    assert report.sections[0].actions[0].saving.endswith("MiB once it is loaded")
    parts = report.sections[0].charts[0].document["bars"][0]["parts"]
    assert sum(part["bytes"] for part in parts) == 156 * MIB
