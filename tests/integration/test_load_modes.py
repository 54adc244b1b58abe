"""What is known about loading (weights in the heap, mapped, packed, saved packed) holds for the installed runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks.load_modes import LOAD_MODES, measure_mode, model_files, row
from onnxmem import pack, zoo

MIB = 2**20
WEIGHTS = 16 * MIB
LITTLE = 5 * MIB


@pytest.fixture(scope="module")
def rows() -> Iterator[dict[str, dict[str, Any]]]:
    """Every row of the benchmark, for a model of 16 MiB."""
    with model_files(layers=4, width=1024) as folder:
        yield {mode.name: row(measure_mode(mode, folder, batch=2, runs=1)) for mode in LOAD_MODES}


def grown(row: dict[str, Any], column: str) -> int:
    return int(row[column]) - int(row["before"])


def test_what_each_way_of_loading_takes(rows: dict[str, dict[str, Any]]) -> None:
    before = rows["inline"]["anonymous"] - grown(rows["inline"], "loaded")
    assert grown(rows["inline"], "loaded") > WEIGHTS
    assert grown(rows["external"], "loaded") == pytest.approx(WEIGHTS + 8 * MIB, abs=8 * MIB)  # packed copies only
    for name in ("external, no prepacking", ".ort mapped, no prepacking"):
        assert rows[name]["anonymous"] - before < LITTLE + 8 * MIB, name
        assert rows[name]["file"] > WEIGHTS, name
    assert grown(rows["external, saved packed"], "loaded") < grown(rows["external"], "loaded")
    assert grown(rows[".ort"], "peak") > 2 * WEIGHTS
    assert grown(rows[".ort mapped"], "loaded") > 2 * WEIGHTS  # the map and the packed copies


def test_everything_is_given_back_when_asked(rows: dict[str, dict[str, Any]]) -> None:
    for name, figures in rows.items():
        assert figures["anonymous_kept"] < 3 * MIB, name
        if "mapped" in name or name in ("external, no prepacking", "external, saved packed"):
            assert figures["file_freed"] > WEIGHTS - MIB, name


def test_packed_or_not_the_outputs_are_reproducible(rows: dict[str, dict[str, Any]]) -> None:
    for packs in (True, False):
        assert len({rows[mode.name]["outputs_sha256"] for mode in LOAD_MODES if mode.packs is packs}) == 1


@pytest.mark.parametrize("beside", ["alone", "another"])
def test_packed_weights_that_cannot_be_mapped_are_refused(tmp_path: Path, beside: str) -> None:
    """ONNX Runtime would read them into memory that is not aligned as its kernels expect, and a run would crash. That
    another session has mapped them does not help."""
    model, folder = tmp_path / "m.onnx", tmp_path / "p"
    onnx.save(zoo.build("matmul", layers=4, width=512), model)  # 1 MiB in each layer
    pack(model, folder, mode="prepacked")
    code = """
import resource, sys
import numpy as np, onnxmem, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1  # a thread that cannot have what the C library keeps for it ends the process
another = onnxmem.InferenceSession(sys.argv[1], options)
name = another.get_inputs()[0].name
if sys.argv[3] == "alone":
    del another
np.empty(16 << 20, np.uint8)  # from now on the C library keeps smaller pieces that are freed
kept = [np.empty(1 << 20, np.uint8) for _ in range(12)]
del kept
held = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (held + int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    session = onnxmem.InferenceSession(sys.argv[1], options)
except Exception as error:
    print(isinstance(error, MemoryError), error)
else:
    print(session.run(None, {name: np.ones((3, 512), np.float32)})[0].shape)
"""
    said = ""
    for room in range(MIB, 64 * MIB, MIB):
        command = [sys.executable, "-c", code, str(folder), str(room), beside]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (room, done.stderr)
        said += done.stdout
        if "(3, " in done.stdout:
            break  # there is room for everything
    assert "True there is no memory to map" in said
    assert "(3, 512)" in said
