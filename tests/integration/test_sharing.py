"""Shared places in processes: what a fork and a kill leave, and what packages bring along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from onnxmem import InferenceSession
from onnxmem.packing.pack import pack
from onnxmem.session.planned import sharing, source
from tests.unit.session.planned.test_sharing import BYTES, CHAIN, FEEDS, bits, stock


def test_a_fork_before_the_first_run_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "WORTHWHILE", 1)
    monkeypatch.setattr(source, "_PART", 1e9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(CHAIN, options)
    child = os.fork()
    if not child:
        same = bits(session, FEEDS) == bits(session, FEEDS)
        os._exit(0 if same and session.memory.shared_places else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [bits(session, FEEDS) for _ in range(2)] == [stock(CHAIN, FEEDS)] * 2
    assert session.memory.shared_places


def test_a_killed_process_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(CHAIN)
    (tmp_path / "tmp").mkdir()
    script = (
        "import sys, time, onnxmem\n"
        "session = onnxmem.InferenceSession(sys.argv[1])\n"
        "print('made', flush=True)\n"
        "time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "model.onnx")]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path / "tmp")})
    assert child.stdout is not None and child.stdout.readline() == b"made\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    # ONNX Runtime has a file of its own there.
    assert not list((tmp_path / "tmp").glob("onnxmem*"))


def test_the_first_run_of_a_package_shares(tmp_path: Path) -> None:
    # Large enough to be worth it.
    feeds = {"x": np.concatenate([FEEDS["x"]] * 4)}
    (tmp_path / "model.onnx").write_bytes(CHAIN)
    np.savez(tmp_path / "feeds.npz", x=feeds["x"])
    folder = pack(
        tmp_path / "model.onnx", tmp_path / "package", inputs=tmp_path / "feeds.npz", plans=[{"x": feeds["x"].shape}]
    ).folder
    session = InferenceSession(folder)
    assert [bits(session, feeds) for _ in range(2)] == [stock(CHAIN, feeds)] * 2
    memory = session.memory
    assert (memory.plan_bytes, memory.runs_recorded) == (8 * BYTES, 0)
    assert memory.shared_places >= 2
    apart = InferenceSession(folder, sharing=False)
    assert bits(apart, feeds) == stock(CHAIN, feeds)
    assert (apart.memory.plan_bytes, apart.memory.shared_places, apart.memory.runs_recorded) == (12 * BYTES, 0, 0)
    # Another order of nodes: what the package says of its buffers does not hold.
    order = getattr(onnxruntime, "ExecutionOrder", None)
    if order is not None:
        options = onnxruntime.SessionOptions()
        options.execution_order = order.PRIORITY_BASED
        other = InferenceSession(folder, options)
        assert bits(other, feeds) == stock(CHAIN, feeds)
        assert other.memory.shared_places == 0
