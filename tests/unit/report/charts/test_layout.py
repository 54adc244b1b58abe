from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmem.placement.plan import Plan
from onnxmem.report.charts.layout import CELL, Boxes, Frame, Profile, clumps, label, spread
from onnxmem.report.names import CHARACTER, DIGIT, LINE


@given(st.text(max_size=60), st.floats(0, 400), st.floats(0, 400))
def test_a_label_never_leaves_its_rectangle(name: str, width: float, height: float) -> None:
    found = label(name, "12.5 MiB", width, height)
    if found:
        along, across = (height, width) if found.upright else (width, height)
        assert max(map(len, found.lines)) * (CHARACTER if found.named else DIGIT) <= along
        assert len(found.lines) * LINE <= across
        assert found.lines[-1].endswith("12.5 MiB")


def test_a_label_says_as_much_as_fits() -> None:
    name = "/encoder/layer.0/MatMul_output_0"
    assert label(name, "1.0 MiB", 400, 20).lines == ("/encoder/layer.0/MatMul · 1.0 MiB",)  # type: ignore[union-attr]
    assert label("/a/MatMul", "1.0 MiB", 70, 40).lines == ("/a/MatMul", "1.0 MiB")  # type: ignore[union-attr]
    assert label(name, "1.0 MiB", 70, 40).lines == ("…/MatMul", "1.0 MiB")  # type: ignore[union-attr]
    assert label(name, "1.0 MiB", 50, 14).lines == ("1.0 MiB",)  # type: ignore[union-attr]
    assert label(name, "1.0 MiB", 14, 200).upright  # type: ignore[union-attr]
    assert label(name, "1.0 MiB", 30, 11) is None


@given(st.lists(st.floats(0, 400), max_size=5))
def test_spread_keeps_order_gap_and_limit(positions: list[float]) -> None:
    placed = spread(positions, 30, 400)
    ordered = [place for _, place in sorted(zip(positions, placed, strict=True))]
    assert all(b - a >= 30 - 1e-9 for a, b in zip(ordered, sorted(ordered)[1:], strict=False))
    assert all(0 <= place <= 400 for place in placed)


def test_the_profile_reaches_lower_bound_and_peak(scattered: Callable[..., Plan]) -> None:
    plan = scattered(3000, 2000)
    for columns in (50, 10**6):
        profile = Profile.of(plan, columns)
        assert profile.live.max() == plan.problem.lower_bound
        assert profile.top.max() == plan.peak
        assert (profile.top >= profile.live).all()
        assert (np.diff(profile.at) >= 0).all()
    assert len(Profile.of(plan, 50).at) <= 100


@pytest.mark.parametrize("seed", [1, 2])
def test_clumps_cover_exactly_the_cells_that_small_boxes_touch(scattered: Callable[..., Plan], seed: int) -> None:
    plan = scattered(60, 80, seed=seed)
    frame = Frame.around(plan, 90, 60)
    boxes = Boxes.of(plan, frame)
    expected = np.zeros((30, 20), dtype=bool)
    for left, right, bottom, top in zip(boxes.left, boxes.right, boxes.bottom, boxes.top, strict=True):
        expected[int(left // CELL) : -int(-right // CELL), int(bottom // CELL) : -int(-top // CELL)] = True
    drawn = np.zeros_like(expected, dtype=int)
    for left, right, bottom, top in clumps(boxes, boxes.by_area(), frame):
        drawn[int(left / CELL) : int(right / CELL), int(bottom / CELL) : int(top / CELL)] += 1
    assert drawn.max() == 1
    assert (drawn.astype(bool) == expected).all()
