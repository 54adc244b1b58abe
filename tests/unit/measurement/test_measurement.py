"""Small promises: timelines keep their peaks, scenarios refuse nonsense, environments tell their differences."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest

import onnxmem
from onnxmem.environment import read_environment
from onnxmem.errors import UsageError
from onnxmem.measurement.measurement import thinned
from onnxmem.measurement.probes import Sample
from onnxmem.measurement.scenario import Scenario


def test_a_thinned_timeline_keeps_its_peak() -> None:
    samples = [Sample(k / 100, 10_000 if k == 4567 else 1000 + k % 7, 0) for k in range(10_001)]
    few = thinned(samples, 500)
    assert len(few) <= 500
    assert max(few, key=lambda s: s.rss) == samples[4567]
    assert [s.at for s in few] == sorted(s.at for s in few)
    assert thinned(samples[:3], 500) == tuple(samples[:3])


@pytest.mark.parametrize(
    "wrong", [{"runs": 0}, {"threads": 0}, {"threads": 9999}, {"time_limit": -1.0}, {"time_limit": float("nan")}]
)
def test_scenarios_refuse_nonsense(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must be"):
        Scenario("m.onnx", **wrong)  # type: ignore[arg-type]


def test_environments_tell_their_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    here = read_environment("1.31.1")
    assert here.differences(read_environment("1.31.1")) == ()
    assert here.differences(replace(here, onnxruntime="1.24.0")) == ("onnxruntime",)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    assert here.differences(read_environment("1.31.1")) == ("variables",)


def test_importing_a_submodule_does_not_hide_the_function() -> None:
    importlib.import_module("onnxmem.measurement.probes")
    importlib.import_module("onnxmem.estimation.estimate")
    assert callable(onnxmem.measure) and callable(onnxmem.estimate)
