"""Which kind of CPU this is, as far as kernels care."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxmem.errors import ModelError
from onnxmem.session.package import Manifest, this_cpu


def test_features_of_a_cpu(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nflags\t\t: fpu avx2 aes fma avx512f\n")
    assert this_cpu(info).features == ("avx2", "avx512f", "fma")
    assert this_cpu(tmp_path / "none").features == ()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema":' * 100_000])
def test_a_manifest_that_is_nested_too_deeply_is_damaged(text: str) -> None:
    with pytest.raises(ModelError, match="is damaged"):
        Manifest.parse(text, Path("manifest.json"))
