"""How a process ended, from what is left of it."""

from __future__ import annotations

import pytest

from onnxmem.measurement.verdict import judge


@pytest.mark.parametrize(
    ("code", "said", "oom", "kind", "message"),
    [
        (0, "a warning", False, "ok", ""),
        (-9, "", True, "out of memory", "the kernel killed it"),
        (-9, "", False, "killed", "SIGKILL from outside"),
        (-6, "terminate called after throwing\nwhat(): std::bad_alloc\n", False, "out of memory", "bad_alloc"),
        (-6, "glibc: corrupted list\n\n", False, "crashed", "SIGABRT: glibc: corrupted list"),
        (-11, "", True, "crashed", "SIGSEGV"),
        (-200, "", False, "crashed", "signal 200"),
        (7, "", False, "crashed", "code 7"),
    ],
)
def test_the_exit_tells(code: int, said: str, oom: bool, kind: str, message: str) -> None:
    verdict = judge("load", None, code, said, oom=oom, timeout=None)
    assert verdict.kind == kind and message in verdict.message
    assert verdict.ok is (kind == "ok")
    assert verdict.phase == (None if kind == "ok" else "load")


def test_what_the_process_said_comes_before_how_it_exited() -> None:
    error = {"kind": "failed", "type": "Fail", "message": "no such kernel"}
    assert str(judge("load", error, 3, "", oom=False, timeout=None)) == "failed in phase 'load': Fail: no such kernel"
    assert judge("load", error, -9, "", oom=False, timeout=2.0).kind == "timed out"
