"""An answer says by how much, what takes it, and what would help; and comes back from JSON."""

from __future__ import annotations

import json

import pytest

from onnxmem.checking.checked import Baseline, Remedy
from onnxmem.checking.checking import Checking
from onnxmem.errors import UsageError
from tests.unit.checking.samples import MIB, case, checked, checking

BEFORE = Baseline(size=80 * MIB, allowed=84 * MIB, origin="old.json", date="2026-11-01T00:00:00", commit="c" * 40)


def test_within() -> None:
    good = checked()
    assert (good.verdict, good.fits, good.excess) == ("ok", True, -20 * MIB)
    assert good.sentence == "net.onnx in mode stock is within its budget: its peak RSS is 100.0 MiB of 120.0 MiB."


def test_to_the_byte() -> None:
    assert checked(120 * MIB).verdict == "ok"
    assert checked(120 * MIB + 1).verdict == "exceeded"


def test_exceeded_says_by_how_much_by_what_and_what_would_help() -> None:
    parts = {"heap": 10 * MIB, "arena": 70 * MIB, "weights": 40 * MIB, "libraries": 30 * MIB}
    remedies = (Remedy(mode="tuned", size=125 * MIB, fits=False), Remedy(mode="planned", size=110 * MIB, fits=True))
    over = checked(150 * MIB, parts=parts, remedies=remedies)
    assert over.verdict == "exceeded" and over.brief.endswith("over its budget by 30.0 MiB")
    assert over.sentence == (
        "net.onnx in mode stock takes 30.0 MiB more than its budget: its peak RSS is 150.0 MiB, and 120.0 MiB are "
        "allowed. Its largest parts: arena 70.0 MiB, weights 40.0 MiB, libraries 30.0 MiB. "
        "It fits in mode planned, in which it takes 110.0 MiB."
    )
    hopeless = checked(150 * MIB, remedies=remedies[:1])
    assert "does not fit in mode tuned either, in which it takes 125.0 MiB" in hopeless.sentence


def test_grown_says_since_when() -> None:
    grown = checked(baseline=BEFORE)
    assert grown.verdict == "grown" and grown.fits
    assert "It has grown by 20.0 MiB or 25.0% from 80.0 MiB (2026-11-01, commit cccccccccc)" in grown.sentence
    assert checked(84 * MIB, baseline=BEFORE).verdict == "ok"
    only = checked(budget=None, baseline=BEFORE)
    assert only.verdict == "grown" and only.fits is None
    assert checked(200 * MIB, baseline=BEFORE).verdict == "exceeded", "the budget is the harder promise"


def test_results_come_back_and_count() -> None:
    both = checking(checked(), checked(150 * MIB, baseline=BEFORE))
    assert (both.exit_code, both.fits, both.ok) == (1, False, False)
    lost = checking(checked(150 * MIB), checked(None, failure="it died", hint="try again"))
    assert (lost.exit_code, lost.fits) == (3, False)
    assert checking(checked()).exit_code == 0
    for result in (both, lost):
        assert Checking.from_document(json.loads(json.dumps(result.document()))) == result
    assert checking(checked()).document()["budget_bytes"] == 120 * MIB
    assert [entry.passed for entry in both.entries()] == [True, False] and not lost.entries()[1:]


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"figure": "weight"}, "no figure"), ({"by": "guess"}, "no check by"), ({"repeat": 0}, "at least 1")],
)
def test_cases_that_cannot_be(changes: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        case(**changes)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="leaves nothing"):
        case(0)
