"""Limits that a control group enforces: where a system hands out groups of cgroup v2 with memory, as to a service."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import onnxmem
from onnxmem import zoo
from onnxmem.measurement import probes
from onnxmem.measurement.limit import RLIMIT, Limit
from onnxmem.unknown import Unknown

MIB = 2**20

with Limit(2**30) as attempt:
    pytestmark = pytest.mark.skipif(attempt.by == RLIMIT, reason="no control group of cgroup v2 can be made here")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "matmul.onnx"
    onnx.save(zoo.build("matmul", layers=2, width=512), path)
    return path


def groups() -> set[str]:
    own = probes.cgroup_folder()
    assert not isinstance(own, Unknown)
    return {path.name for path in own.parent.iterdir() if path.is_dir()}


def test_a_group_limits_the_child_tells_its_peak_and_is_removed(model: Path) -> None:
    before = groups()
    result = onnxmem.measure(model, runs=2, memory_limit=512 * MIB, nodes=False)
    assert result.verdict.ok and result.trial.limited_by == "cgroup memory.max"
    peaks = [phase.cgroup_peak for phase in result.phases if phase.name != "exit"]  # when nobody is there to be asked
    assert all(isinstance(peak, int) and 0 < peak < 512 * MIB for peak in peaks), peaks
    assert groups() == before


def test_what_needs_more_is_ended_by_the_kernel_and_that_is_said(model: Path) -> None:
    before = groups()
    result = onnxmem.measure(model, runs=2, memory_limit=120 * MIB, dims={"batch": 65536}, nodes=False)
    assert result.verdict.kind == "out of memory" and result.verdict.limit == 120 * MIB
    assert result.trial.limited_by == "cgroup memory.max"
    assert groups() == before
