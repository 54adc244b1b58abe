"""JUnit XML that any reader takes, and annotations that GitHub reads as one line, whatever models are called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onnxmem.checking.annotations import to_annotations
from onnxmem.checking.junit import to_junit
from onnxmem.measurement.scenario import Scenario
from tests.unit.checking.samples import MIB, case, checked, checking
from tests.unit.history.samples import key

HOSTILE = 'a<b>&"c\x00\x1b\ud800,d:e%0A\nf.onnx'


def test_junit_counts_and_names() -> None:
    result = checking(checked(), checked(150 * MIB), checked(None, failure="it died", hint="try again"))
    root = ElementTree.fromstring(to_junit(result).encode())
    (suite,) = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3", "failures": "1", "errors": "1", "skipped": "0",
    }  # fmt: skip
    good, over, lost = suite
    assert good.get("classname") == "onnxmem.net.onnx" and good.get("name") == "stock, x 1×3×8×8"
    assert good.find("failure") is None and good.find("error") is None
    failure, error = over.find("failure"), lost.find("error")
    assert failure is not None and "takes 30.0 MiB more" in str(failure.get("message"))
    assert error is not None and "hint: try again" in str(error.text)
    properties = {each.get("name"): each.get("value") for each in good.iter("property")}
    assert properties == {"bytes": str(100 * MIB), "budget_bytes": str(120 * MIB), "figure": "peak"}


def test_any_name_is_only_a_name() -> None:
    hostile = checked(150 * MIB, key=key(model=HOSTILE))
    root = ElementTree.fromstring(to_junit(checking(hostile)).encode())
    assert next(root.iter("testcase")).get("classname") == 'onnxmem.a<b>&"c���,d:e%0A\nf.onnx'
    (line,) = to_annotations(checking(hostile))
    assert "\n" not in line and line.count("::") == 2
    head, _, text = line.removeprefix("::").partition("::")
    assert head.startswith("error file=models/net.onnx,title=") and head.count(",") == 1
    assert "%2Cd%3Ae%250A%0Af.onnx" in head and "takes 30.0 MiB more" in text


def test_paths_are_seen_from_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    inside = replace(case(), scenario=Scenario(tmp_path / "models" / "net.onnx"))
    (line,) = to_annotations(checking(checked(150 * MIB, case=inside)))
    assert line.startswith("::error file=models/net.onnx,")
    outside = replace(case(), scenario=Scenario(Path("/elsewhere/net.onnx")))
    (line,) = to_annotations(checking(checked(150 * MIB, case=outside)))
    assert line.startswith("::error file=/elsewhere/net.onnx,")
    assert to_annotations(checking(checked())) == []
