"""Bars in characters."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from onnxmem.report.charts.terminal_bars import terminal_bars


@pytest.mark.parametrize("width", [40, 60, 80])
def test_bars_have_one_scale_and_keep_to_the_width(width: int) -> None:
    rows = [("stock", 5.0, "5"), ("planned", 15.0, "15"), ("a mode with a very long name", 0.0, "none")]
    stock, planned, none = terminal_bars(rows, width)
    assert max(map(cell_len, (stock, planned, none))) <= width
    assert planned.count("█") // stock.count("█") == 3
    assert "█" not in none and none.endswith("none")
    assert stock.endswith(" 5") and planned.endswith(" 15")


def test_nothing_to_draw_is_no_error() -> None:
    assert terminal_bars([], 60) == []
    assert terminal_bars([("stock", 0, "none")], 60) == ["stock none"]
