"""Which kind of CPU this is, as far as kernels care."""

from __future__ import annotations

from pathlib import Path

from onnxmem.session.package import this_cpu


def test_features_of_a_cpu(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nflags\t\t: fpu avx2 aes fma avx512f\n")
    assert this_cpu(info).features == ("avx2", "avx512f", "fma")
    assert this_cpu(tmp_path / "none").features == ()
