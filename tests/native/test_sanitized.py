"""The native code under the compiler's sanitizers: memory, undefined behaviour, data races."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native.build import HERE, TARGETS, CannotBuild, build, build_target

# Requests that no machine can meet are part of the tests: like any malloc, the sanitizer's shall return null. A program
# that upsets one aborts, and says which input it was.
SETTINGS = dict.fromkeys(
    ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"), "allocator_may_return_null=1:abort_on_error=1:handle_abort=0"
)


def run(program: Callable[[str, str], Path], name: str, sanitizer: str, *words: str, **settings: str) -> str | None:
    """What went wrong, or nothing."""
    try:
        built = program(name, sanitizer)
    except CannotBuild as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [built, *words], capture_output=True, text=True, timeout=3000, check=False, env=os.environ | SETTINGS | settings
    )
    return None if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize(("sanitizer", "words"), [("address", []), ("thread", ["threads-only"])])
def test_the_allocator_upsets_no_sanitizer(sanitizer: str, words: list[str]) -> None:
    assert run(build, "arena", sanitizer, *words) is None


@pytest.mark.parametrize(
    ("target", "sanitizer", "inputs"),
    [
        ("placement", "address", 2000),
        ("placement", "thread", 500),
        ("ordering", "address", 3000),
        ("arena", "address", 2000),
        ("arena", "thread", 200),
    ],
)
def test_kept_and_random_inputs_upset_neither_a_check_nor_a_sanitizer(target: str, sanitizer: str, inputs: int) -> None:
    kept = HERE / "corpus" / f"{target}.txt"
    assert run(build_target, target, sanitizer, str(kept), str(inputs), "1") is None


@pytest.mark.parametrize("target", TARGETS)
def test_a_planted_defect_is_found(target: str) -> None:
    found = run(build_target, target, "address", os.devnull, "3000", "1", ONNXMEM_PLANTED="1")
    assert found is not None and "input: " in found
