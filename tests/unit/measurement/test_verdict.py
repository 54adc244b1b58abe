"""How a process ended, from what is left of it."""

from __future__ import annotations

import pytest

from onnxmem.measurement.protocol import OUT_OF_MEMORY, Failed
from onnxmem.measurement.verdict import judge


@pytest.mark.parametrize(
    ("code", "output", "oom", "kind", "message"),
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
def test_the_exit_tells(code: int, output: str, oom: bool, kind: str, message: str) -> None:
    verdict = judge("load", None, code, output, oom=oom)
    assert verdict.kind == kind and message in verdict.message
    assert verdict.ok is (kind == "ok")
    assert verdict.phase == (None if kind == "ok" else "load")


def test_what_the_process_said_comes_before_how_it_exited() -> None:
    failure = Failed("load", 0.1, "failed", "Fail", "no such kernel", "")
    assert str(judge("load", failure, 3, "", limit=2**20)) == "failed in phase 'load': Fail: no such kernel"
    late = judge("load", failure, -9, "", timeout=2.0)
    assert (late.kind, late.hint) == ("timed out", "--time-limit SECONDS allows more")


def test_a_lack_of_memory_names_the_limit() -> None:
    failure = Failed("load", 0.1, "out of memory", "MemoryError", "bad_alloc", "")
    for verdict in (
        judge("load", failure, 3, "", limit=64 * 2**20),
        judge("load", None, -9, "", oom=True, limit=2**26),
    ):
        assert verdict.limit == 2**26
        assert str(verdict).startswith("out of memory in phase 'load' with a limit of 64.0 MiB: ")
    assert judge("load", None, -11, "", limit=2**26).limit is None


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        ("6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Add node. Name:'sum' Status Message: "
         "/onnxruntime_src/onnxruntime/core/providers/cpu/math/element_wise_ops.h:540 void "
         "onnxruntime::BroadcastIterator::Init(ptrdiff_t, ptrdiff_t) axis == 1 was false. Attempting to broadcast",
         "Add 'sum': axis == 1 was false. Attempting to broadcast"),
        ("1 : FAIL : Non-zero status code returned while running If node. Name:'' Status Message: Non-zero status code "
         "returned while running LSTM node. Name:'rnn' Status Message: Input initial_h must have shape {1,1,128}.",
         "LSTM 'rnn': Input initial_h must have shape {1,1,128}."),
        ("1 : FAIL : Non-zero status code returned while running Concat node. Name:'c' Status Message: "
         "concatbase.h:133 PrepareForComputeImpl Non concat axis dimensions must match", "Concat 'c': Non concat axis "
         "dimensions must match"),
        ("2 : INVALID_ARGUMENT : Got invalid dimensions for input: x", "Got invalid dimensions for input: x"),
    ],
)  # fmt: skip
def test_what_onnx_runtime_says_of_a_node_is_said_in_fewer_words(said: str, plain: str) -> None:
    assert judge("first run", Failed("x", 0.0, "failed", "Fail", said, ""), 0, "").message == plain


def test_an_error_without_a_message_ends_with_its_name() -> None:
    failure = Failed(phase="import", seconds=0.1, kind=OUT_OF_MEMORY, error="MemoryError", message="", hint="")
    assert str(judge("import", failure, 3, "", limit=1)).endswith("limit of 1 B: MemoryError")
