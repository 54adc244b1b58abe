"""A session with a budget keeps to it in a process of its own, which does not load what parses models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from onnxmem import zoo

PROGRAM = """
import json, resource, sys
import numpy as np
from onnxmem import InferenceSession

path, budget, rows = sys.argv[1:]
session = InferenceSession(path, budget=budget or None)
image = np.random.default_rng(0).standard_normal((int(rows), 3, 128, 128), np.float32)
open("/proc/self/clear_refs", "w").write("5")


def status(field):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(field))


before = status("VmRSS")
for _ in range(3):
    (outputs,) = session.run(None, {"image": image})
growth = status("VmHWM") - before
batches = [batch.document() for batch in session.memory.batches]
print(json.dumps([growth, outputs.tobytes().hex(), "onnx" in sys.modules, batches]))
"""


def test_a_process_grows_by_the_budget_and_not_by_the_batch(tmp_path: Path) -> None:
    path = tmp_path / "mobilenet.onnx"
    path.write_bytes(zoo.build("mobilenet").SerializeToString())
    found = {}
    for budget in ("", "6MiB"):
        command = [sys.executable, "-c", PROGRAM, str(path), budget, "16"]
        found[budget] = json.loads(subprocess.check_output(command, text=True))
    (whole, expected, _, none), (growth, outputs, parsed, batches) = found.values()
    assert outputs == expected and not parsed and not none
    assert batches[0]["rows"] == 16 and batches[0]["needed_bytes"] <= 6 * 2**20
    # Beside the plan: what recording takes, and pages that libraries touch for the first time.
    assert growth < 0.5 * whole and growth < 10 * 2**20
