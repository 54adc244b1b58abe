"""The examples, as a user runs them: workers of real servers share the weights, forked or spawned."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import onnx
import pytest

from examples import pool
from onnxmem import zoo
from onnxmem.measurement import smaps
from onnxmem.packing.pack import pack

ROOT = Path(__file__).parents[2]
MIB = 2**20


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving")
    onnx.save(zoo.build("matmul", layers=8, width=512), folder / "chain.onnx")
    return pack(folder / "chain.onnx", folder / "chain.pack").folder


def ask(port: int) -> dict[str, object] | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as response:
            found: dict[str, object] = json.load(response)
            return found
    except OSError:
        return None


@pytest.mark.parametrize(
    "command",
    [
        ["gunicorn", "--workers", "2", "--preload", "--bind", "127.0.0.1:{port}", "examples.serving:wsgi"],
        ["uvicorn", "--workers", "2", "--host", "127.0.0.1", "--port", "{port}", "examples.serving:asgi"],
    ],
    ids=["gunicorn forks", "uvicorn spawns"],
)
def test_workers_of_a_server_share_the_weights(package: Path, command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [sys.executable, "-m", *(part.format(port=port) for part in command)]
    server = subprocess.Popen(
        arguments,
        cwd=ROOT,
        env={**os.environ, "PACKAGE": str(package)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        answers: dict[object, dict[str, object]] = {}
        deadline = time.monotonic() + 40
        while len(answers) < 2 and time.monotonic() < deadline:
            found = ask(port)
            if found:
                answers[found["pid"]] = found
            else:
                time.sleep(0.1)
        assert len(answers) == 2
        assert {answer["mode"] for answer in answers.values()} == {"planned"}
        assert len({answer["sum"] for answer in answers.values()}) == 1
        resident = 0
        for pid in answers:
            kinds = smaps.classify(package.iterdir(), int(str(pid)))
            assert isinstance(kinds, tuple)
            resident += next(kind.pss for kind in kinds if kind.name == "model files")
        # 8 MiB of weights: once for both workers.
        assert 7 * MIB < resident < 10 * MIB
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_of_python(package: Path, method: str) -> None:
    # In a process of its own: this one has made sessions, and must not be forked.
    code = f"from examples import pool; print(*pool.main({str(package)!r}, {method!r}))"
    script = f"{code}\n" if method == "fork" else f"if __name__ == '__main__':\n    {code}\n"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=600
    )
    assert len(run.stdout.split(") (")) == 2
    assert pool.main.__doc__
