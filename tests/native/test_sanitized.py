"""The native code under the compiler's sanitizers: memory, undefined behaviour, data races."""

from __future__ import annotations

import subprocess

import pytest

from tests.native.build import SANITIZERS, CannotBuild, build


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_random_problems_upset_no_sanitizer(sanitizer: str) -> None:
    try:
        program = build("placement", sanitizer)
    except CannotBuild as error:
        pytest.skip(str(error))
    run = subprocess.run([program, "2", "1"], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
