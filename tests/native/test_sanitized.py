"""The native code under the compiler's sanitizers: memory, undefined behaviour, data races."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.native.build import HERE, CannotBuild, build

# Requests that no machine can meet are part of the tests: like any malloc, the sanitizer's shall return null. A program
# that upsets one aborts, and says which input it was.
SETTINGS = dict.fromkeys(
    ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"), "allocator_may_return_null=1:abort_on_error=1:handle_abort=0"
)


def run(target: str, sanitizer: str, *words: str, **settings: str) -> str | None:
    """What went wrong, or nothing."""
    try:
        built = build(target, sanitizer)
    except CannotBuild as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [built, *words], capture_output=True, text=True, timeout=3000, check=False, env=os.environ | SETTINGS | settings
    )
    return None if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize(
    ("target", "sanitizer", "inputs"),
    [
        ("placement", "address", 1500),
        ("placement", "thread", 300),
        ("ordering", "address", 3000),
        ("arena", "address", 1000),
        ("arena", "thread", 100),
    ],
)
def test_neither_a_check_nor_a_sanitizer_is_upset(target: str, sanitizer: str, inputs: int) -> None:
    """By tests, by kept and random inputs; but by answers that are made wrong on purpose. One build serves all."""
    if target == "arena":
        assert run(target, sanitizer, *(["threads-only"] if sanitizer == "thread" else [])) is None
    assert run(target, sanitizer, str(HERE / "corpus" / f"{target}.txt"), str(inputs), "1") is None
    if sanitizer == "address":
        found = run(target, sanitizer, os.devnull, "3000", "1", ONNXMEM_PLANTED="1")
        assert found is not None and "input: " in found
