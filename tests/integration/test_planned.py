"""What a planned session does to the process it is in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnxmem import zoo

ROOT = Path(__file__).parents[2]
# The allocator's bridge and the planner: of the process's own memory, and with the pages of our libraries.
OWN, WEIGHT = 2 * 2**20, 5 * 2**19


def test_the_first_run_imports_nothing() -> None:
    code = """if True:
        import sys
        import numpy as np
        from onnxmem import InferenceSession
        from tests import small_models as models
        session, feeds = InferenceSession(models.tower()), {"x": np.ones((20, 50), np.float32)}
        before = set(sys.modules)
        session.run(None, feeds)
        session.run(None, feeds)
        after = set(sys.modules)
        assert session.memory.runs_replayed == 1
        print(*(after - before))
    """
    # What is imported in it would be memory that the run takes, and time.
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout == "\n"


@pytest.mark.parametrize("name", ["mobilenet", "lstm"])
def test_a_planned_session_is_hardly_larger_than_a_stock_one(tmp_path: Path, name: str) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(zoo.build(name).SerializeToString())
    code = """if True:
        import ctypes, sys
        import onnxruntime
        if sys.argv[1] == "planned":
            from onnxmem import InferenceSession
        else:
            from onnxruntime import InferenceSession
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = InferenceSession(sys.argv[2], options, ["CPUExecutionProvider"])
        ctypes.CDLL(None).malloc_trim(0)
        ours, anonymous, total = False, 0, 0
        for line in open("/proc/self/smaps"):
            field, *words = line.split()
            if not field.endswith(":"):
                ours = "/onnxmem/" in line
            anonymous += int(words[0]) if field == "Anonymous:" else 0
            total += int(words[0]) if field == ("Rss:" if ours else "Anonymous:") else 0
        print(anonymous, total)
    """
    # What is the process's own, and its pages of our libraries: how many pages of others are mapped around one that is
    # touched depends on what lies in the page cache. Bytecode as an installed package has it: compiling would count.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment["ONNXMEM_KEEP_PLANS"] = "1"

    def taken(mode: str) -> tuple[int, int]:
        command = [sys.executable, "-c", code, mode, str(model)]
        # The first of them compiles.
        said = [subprocess.check_output(command, text=True, cwd=ROOT, env=environment) for _ in range(3)]
        anonymous, total = zip(*(map(int, each.split()) for each in said[1:]), strict=True)
        return min(anonymous) * 1024, min(total) * 1024

    planned, stock = taken("planned"), taken("stock")
    assert planned[0] <= stock[0] + OWN
    assert planned[1] <= stock[1] + WEIGHT
