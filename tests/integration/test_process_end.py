"""However a process with planned sessions ends, it ends with exit code 0 and without a word on stderr.

Not here, because stock sessions do not survive it either: a daemon thread inside `run` while the interpreter ends
(aborts), and a forked child that ends by `sys.exit` instead of `os._exit` (hangs).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

START = """
import gc, importlib, multiprocessing, os, sys, threading, warnings
# Importing ONNX Runtime starts a thread: from 3.12 on Python warns of every fork after that, with stock sessions, too.
warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
import numpy as np, onnxruntime as ort
from onnxmem import InferenceSession
from tests import small_models as models
X = {"x": np.ones((300, 200), np.float32)}
def make():
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return InferenceSession(models.tower(), options, ["CPUExecutionProvider"], mode="planned")
def use(session, times=3):
    return [session.run(None, X) for _ in range(times)][-1]
def job(_=None):
    return float(use(make())[1])
"""

ENDS = {
    "alive": "s = make(); kept = use(s)",
    "deleted": "s = make(); use(s); del s; gc.collect()",
    "outputs_only": "s = make(); kept = use(s); del s; gc.collect()",
    "cycle": "s = make(); s.me = s; use(s); del s",
    "several": "all = [make() for _ in range(3)]; [use(s) for s in all]",
    "in_a_thread": "t = threading.Thread(target=job); t.start(); t.join()",
    "trim_timer_waiting": "s = make(); s.arena.trim_after = 60; use(s)",
    "sys_exit": "s = make(); use(s); sys.exit(0)",
    "forked": """
s = make(); expected = use(s)
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        assert all(np.array_equal(a, b) for a, b in zip(use(s), expected)); assert job() == expected[1]; os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
use(s)
""",
    "forked_while_running": """
s = make(); use(s); stop = threading.Event()
def work():
    while not stop.is_set(): use(s)
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        use(s); use(make()); os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
stop.set(); [t.join() for t in threads]
""",
    "pool_of_forks": """
s = make(); use(s)
with multiprocessing.get_context("fork").Pool(2) as pool: assert len(set(pool.map(job, range(4)))) == 1
""",
    "reloaded": """
use(make())
import onnxmem.session.planned.bridge, onnxmem.session.session, onnxmem.session.planned.improve, onnxmem._native.arena
old = make(); use(old)
for module in ("planned.bridge", "planned.improve", "planned.planner", "session"):
    importlib.reload(sys.modules["onnxmem.session." + module])
from onnxmem.session.session import InferenceSession
use(make()); use(old)
""",
    "imported_anew": """
old = make(); use(old)
for name in [n for n in sys.modules if n.startswith("onnxmem")]: del sys.modules[name]
from onnxmem import InferenceSession
use(make()); use(old)
""",
}


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments, "-c", START + code] if code else [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)


@pytest.mark.parametrize("end", ENDS)
def test_it_ends_well(end: str) -> None:
    ended = run(ENDS[end])
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_end_waits_for_a_timer_that_trims() -> None:
    """It would come back from native code into an interpreter that is gone, and abort the process."""
    code = """
from onnxmem import Arena
import time
s = make(); use(s); trims = threading.Event()
def trim(arena): trims.set(); time.sleep(0.5); print("trimmed")
Arena.trim = trim
s.arena.trim_after = 0.01; use(s)
assert trims.wait(60)
"""
    ended = run(code)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "trimmed\n", "")


def test_it_ends_well_in_spawned_processes(tmp_path: Path) -> None:
    program = tmp_path / "spawning.py"
    main = """
if __name__ == "__main__":
    s = make(); use(s)
    with multiprocessing.get_context("spawn").Pool(2) as pool: assert len(set(pool.map(job, range(4)))) == 1
"""
    program.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + START + main)
    ended = run("", str(program))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_onnxruntime_that_loads_no_libraries_is_not_planned_and_says_so_once() -> None:
    code = """
del ort.register_execution_provider_library
make(); use(make()); print(make().memory.reason)
"""
    ended = run(code)
    assert ended.returncode == 0
    assert "cannot load libraries of execution providers" in ended.stdout
    assert ended.stderr.count("RuntimeWarning: this session is not planned, it runs as stock: ") == 1
