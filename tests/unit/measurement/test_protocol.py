"""Messages between the parent and the measured process come back as what they were."""

from __future__ import annotations

import pytest

from onnxmem.documents import decode, encode
from onnxmem.measurement import protocol
from onnxmem.measurement.protocol import (
    Begin,
    End,
    Failed,
    Message,
    Outputs,
    Planned,
    Ran,
    Released,
    Saved,
    Task,
)

PLANNED = Planned("planned", None, 64, 64, 32, 1, 4, 0, 0, ("a", "b"))


@pytest.mark.parametrize(
    "message",
    [
        Begin("load"),
        End("load", 0.25),
        Failed("load", 0.5, protocol.FAILED, "Fail", "no kernel\nhere", ""),
        Ran(1e-3),
        Outputs(("a", "b"), {"y": (1, 2)}, 8),
        Saved((("y", "/tmp/y.npy"), ("names", None))),
        PLANNED,
        Released(False, "no arena", ("a list",), True),
    ],
)
def test_a_message_is_one_line_and_comes_back(message: Message) -> None:
    line = protocol.encode(message)
    assert b"\n" not in line
    again = protocol.decode(line)
    assert again == message and type(again) is type(message)


def test_a_task_comes_back() -> None:
    task = Task("m.onnx", (("x", "x.npy"),), mode="tuned", options={"enable_mem_pattern": False}, threads=2)
    ordered = task._replace(rlimits={"RLIMIT_CORE": 0}, spawned=1.5)
    again = protocol.decode(protocol.encode(ordered))
    assert again == ordered and (again.options, again.runs) == ({"enable_mem_pattern": False}, 1)


def test_they_are_frozen_and_matched_by_their_fields() -> None:
    with pytest.raises(AttributeError):
        PLANNED.reason = "changed"  # type: ignore[misc]
    match End("load", 2.0):
        case End(phase, seconds):
            assert (phase, seconds) == ("load", 2.0)
    assert Task("m", [])._replace(runs=3).runs == 3
    with pytest.raises(KeyError):
        Begin()  # type: ignore[call-arg]


def test_in_documents_they_are_records() -> None:
    assert encode(PLANNED)["runs_replayed"] == 4
    assert decode(Planned, encode(PLANNED)) == PLANNED
