"""The order search under the address and undefined-behaviour sanitizers, on random graphs with a brute-force check."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "src" / "onnxmem" / "_native"
FLAGS = ["-std=c++20", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{NATIVE}"]


def test_random_graphs_under_sanitizers(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    probe = tmp_path / "probe.cpp"
    probe.write_text("int main() { return 0; }\n")
    if subprocess.run([compiler, *FLAGS, probe, "-o", tmp_path / "probe"], check=False, capture_output=True).returncode:
        pytest.skip("the compiler has no sanitizers")
    sources = [HERE / "ordering_fuzz.cpp", *sorted(NATIVE.glob("ordering_*.cpp"))]
    compilers = [
        subprocess.Popen([compiler, *FLAGS, "-c", source, "-o", tmp_path / f"{source.stem}.o"]) for source in sources
    ]
    assert [process.wait() for process in compilers] == [0] * len(sources)
    objects = [tmp_path / f"{source.stem}.o" for source in sources]
    subprocess.run([compiler, *FLAGS, *objects, "-o", tmp_path / "fuzz"], check=True)
    result = subprocess.run([tmp_path / "fuzz", "1500", "1"], check=False, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
