"""What tracking says about this process, and that it is not about others."""

from __future__ import annotations

import json

import pytest

from onnxmem.measurement.probes import System
from onnxmem.releasing.demonstrate import Demonstration, Isolation
from onnxmem.releasing.live_outputs import LiveOutput, TensorKind
from onnxmem.releasing.release import Released
from onnxmem.releasing.track import Declared, SessionFacts, Tracking
from onnxmem.unknown import Unknown
from tests.unit.releasing.samples import MIB, ladder, reading

FACTS = SessionFacts(
    model="net.onnx", providers=("CPUExecutionProvider",), inputs={"x": Declared("tensor(float)", (1, "N", None))}
)


def released(**more: object) -> Released:
    figures = {"already": False, "trimmed": True, "held_by": (), "live_outputs": (), **more}
    return Released(before=reading(310), after=reading(13), **figures)  # type: ignore[arg-type]


def tracking(done: Released | None = None, *, known: bool = True) -> Tracking:
    return Tracking(
        file_bytes=100 * MIB,
        session=FACTS,
        before_load=reading(10) if known else None,
        released=done or released(),
        system_before=System(4096 * MIB, 3000 * MIB),
        # Another program has taken a GiB meanwhile.
        system_after=System(3000 * MIB, 4000 * MIB),
        seconds=0.25,
    )


@pytest.mark.parametrize("known", [True, False])
def test_tracking_comes_back_equal(known: bool) -> None:
    output = LiveOutput(where="kept[0]", size=12, kind=TensorKind("float32", (1, 3)))
    result = tracking(released(trimmed=Unknown("not glibc"), live_outputs=(output,)), known=known)
    assert Tracking.from_document(json.loads(json.dumps(result.document()))) == result


def test_demonstrations_come_back_equal() -> None:
    system = System(1, Unknown("this system does not tell"))
    isolation = Isolation(
        here_before=reading(10),
        here_after=reading(12),
        child=reading(200),
        system_before=system,
        system_full=system,
        system_after=system,
    )
    result = Demonstration(ladder=ladder(), isolation=isolation)
    assert Demonstration.from_document(json.loads(json.dumps(result.document()))) == result
    assert result.verdict == (
        "In one process 99.3% of the 290.0 MiB that the model brought came back; with a session in a process of its "
        "own, 99.0% of the 200.0 MiB of the child."
    )
    assert repr(result) == "<Demonstration of net.onnx: 99.3% back in one process, 99.0% by ending one>"


def test_other_programs_are_not_counted_as_ours() -> None:
    result = tracking()
    assert result.freed == 297 * MIB and result.returned_fraction == pytest.approx(0.99)
    assert result.verdict == "Released: 99.0% of the 300.0 MiB of anonymous memory that the model brought came back."
    lines = str(result).splitlines()
    assert "freed by this process: 297.0 MiB (2.97× the file's 100.0 MiB)" in lines[2]
    assert lines[3] == "anonymous memory system-wide, other programs included: 2.9 GiB → 3.9 GiB"
    assert not any("system" in key and "freed" in key for key in result.document())


def test_the_verdict_says_why_it_cannot_tell() -> None:
    assert repr(tracking()) == "<Tracking of net.onnx: 297.0 MiB freed, 99.0% of what the model brought is back>"
    assert repr(tracking(known=False)) == "<Tracking of net.onnx: 297.0 MiB freed>"
    assert "had been released before" in repr(tracking(released(already=True)))
    assert "before the tracking began" in tracking(known=False).verdict
    assert "held by 1 IOBinding" in tracking(released(held_by=("1 IOBinding",))).verdict
    assert "Nothing was released" in tracking(released(already=True)).verdict
