"""What a planned session does to the process it is in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
        assert session.memory.runs_replayed == 1
        print(*(set(sys.modules) - before))
    """
    # What is imported in it would be memory that the run takes, and time.
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout == "\n"
