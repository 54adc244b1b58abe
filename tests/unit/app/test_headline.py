"""The figures on top of the dashboard."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit", reason="the package streamlit is not installed")
from onnxmem.app.headline import gain_of_plan

MIB = 2**20


@pytest.mark.parametrize(
    ("stock", "planned", "said"),
    [(84, 80, ("A plan saves", "4.0 MiB")), (82, 84, ("A plan costs", "2.0 MiB")), (82, None, ("A plan saves", "…"))],
)
def test_a_plan_that_takes_more_says_what_it_costs(stock: int, planned: int | None, said: tuple[str, str]) -> None:
    rows = [None if peak is None else {"peak_bytes": peak * MIB} for peak in (stock, planned)]
    assert gain_of_plan(*rows) == said
