"""Plans from one process to the next: what a later start takes, and what becomes of a cache that cannot be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.session.planned.test_sharing import CHAIN

ROOT = Path(__file__).parents[2]
TENSOR = 8 * 2**20
CODE = """if True:
    import hashlib, json, sys
    import numpy as np
    from onnxmem import InferenceSession
    session = InferenceSession(sys.argv[1])
    x = np.linspace(0.1, 1.9, 2**21, dtype=np.float32).reshape(1, 8, -1, 64)
    def status(field):
        return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(field))
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    (y,) = session.run(None, {"x": x})
    grown = status("VmHWM") - before
    memory = session.memory
    said = {"grown": grown, "output": hashlib.sha256(y).hexdigest(), "shared": memory.shared_places}
    print(json.dumps({**said, "kept": memory.shapes_kept, "recorded": memory.runs_recorded}))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "chain.onnx"
    path.write_bytes(CHAIN)
    return path


def begin(model: Path, cache: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "ONNXMEM_KEEP_PLANS": "1"}
    command = [sys.executable, "-c", CODE, str(model)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )


def said(started: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = started.communicate(timeout=120)
    assert (started.returncode, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_later_start_takes_less_from_its_first_run_on(model: Path, tmp_path: Path) -> None:
    both = [begin(model, tmp_path) for _ in range(2)]  # and write the same files
    first, other = map(said, both)
    assert (first["kept"], first["recorded"], other["output"]) == (0, 1, first["output"])
    later = said(begin(model, tmp_path))
    assert (later["kept"], later["recorded"], later["shared"], later["output"]) == (1, 0, 3, first["output"])
    # Three tensors are alive at once, of which two share a place; the output lies beside them.
    assert later["grown"] < first["grown"] - TENSOR * 3 // 4


def test_a_cache_that_cannot_be_written_to_is_not_missed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "onnxmem").write_text("a file where a folder should be")
    found = said(begin(model, tmp_path))
    assert (found["kept"], found["recorded"]) == (0, 1)
