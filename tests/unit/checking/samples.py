"""Checks that were made, small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxmem.checking.case import Case
from onnxmem.checking.checked import Checked
from onnxmem.checking.checking import Checking
from onnxmem.measurement.scenario import Scenario
from tests.unit.history import samples

MIB = 2**20


def case(budget: int | None = 120 * MIB, **changes: Any) -> Case:
    """A model with a budget."""
    return Case(scenario=Scenario(Path("models/net.onnx")), budget=budget, **changes)


def checked(peak: int | None = 100 * MIB, budget: int | None = 120 * MIB, **changes: Any) -> Checked:
    """A model that took so much."""
    given: dict[str, Any] = {"case": case(budget), "key": samples.key(), "figures": samples.figures(peak), **changes}
    return Checked(**given)


def checking(*checks: Checked) -> Checking:
    """All of them."""
    return Checking(checks=checks, date="2026-11-15T10:00:00+00:00", command="onnxmem check")
