"""The native code under the compiler's sanitizers: memory, undefined behaviour, data races."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.native.build import CannotBuild, build

# Requests that no machine can meet are part of the tests: like any malloc, the sanitizer's shall return null.
SETTINGS = dict.fromkeys(("ASAN_OPTIONS", "TSAN_OPTIONS"), "allocator_may_return_null=1")


@pytest.mark.parametrize(
    ("module", "sanitizer", "arguments"),
    [
        ("placement", "address", ["2", "1"]),
        ("placement", "thread", ["2", "1"]),
        ("ordering", "address", ["1500", "1"]),
        ("arena", "address", []),
        ("arena", "thread", ["threads-only"]),
    ],
)
def test_the_native_tests_upset_no_sanitizer(module: str, sanitizer: str, arguments: list[str]) -> None:
    try:
        program = build(module, sanitizer)
    except CannotBuild as error:
        pytest.skip(str(error))
    run = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=3000, check=False, env=os.environ | SETTINGS
    )
    assert run.returncode == 0, run.stdout + run.stderr
