from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmem.placement.plan import Plan
from onnxmem.placement.problem import LARGEST, Buffer, Problem
from onnxmem.placement.strategies import solve
from onnxmem.report.charts.terminal_map import terminal_map

LIFETIMES = st.tuples(st.integers(-10, 60), st.integers(1, 30), st.integers(0, 5000))


@given(st.lists(LIFETIMES, max_size=20), st.integers(60, 160), st.integers(8, 40))
def test_it_keeps_to_its_size(rows: list[tuple[int, int, int]], width: int, height: int) -> None:
    plan = solve(
        Problem.of(Buffer(str(k), at, at + life, size) for k, (at, life, size) in enumerate(rows)), "first_fit"
    )
    lines = terminal_map(plan, width, height).split("\n")
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


def test_blocks_lie_where_the_plan_puts_them(planned: Callable[..., Plan]) -> None:
    plan = planned(("low", 0, 8, 3000), ("high", 4, 8, 1000))
    assert plan.offsets.tolist() == [0, 3000]
    lines = terminal_map(plan, width=80, height=14).split("\n")
    drawn = [line[11:65].replace("a", "█").replace("b", "▓") for line in lines[1:9]]
    # Each letter in the middle of its buffer, and below the map what it stands for.
    assert [line[11:65].find("a") for line in lines[1:9] if "a" in line[11:65]] == [26]
    assert lines[-2:] == ["  2.9 KiB a low, until step 7", "   1000 B b high, until step 7"]
    left, right = " " * 27, "▓" * 27
    assert [line.ljust(54) for line in drawn[:2]] == [left + right] * 2
    assert drawn[2:] == ["█" * 54] * 6


def test_peak_bound_and_step_are_named(planned: Callable[..., Plan]) -> None:
    optimal = terminal_map(planned(("a", 0, 4, 1 << 20), ("b", 2, 4, 1 << 20)))
    assert optimal.startswith("peak = lower bound 2.0 MiB: optimal\n")
    assert "◄ peak = bound" in optimal
    assert "peak at step 2" in optimal
    loose = terminal_map(planned(("a", 0, 2, 3 << 20), ("b", 2, 4, 1 << 20), strategy="naive", capacity=5 << 20))
    assert loose.startswith("peak 4.0 MiB, 33.3% above the lower bound 3.0 MiB; capacity 5.0 MiB\n")
    assert "◄ peak\n" in loose
    assert "◄ bound\n" in loose


def test_a_brief_peak_is_seen_among_many_steps(planned: Callable[..., Plan]) -> None:
    quiet = ((f"t{k}", k, k + 1, 10) for k in range(2000))
    drawn = terminal_map(planned(*quiet, ("spike", 1234, 1235, 10_000))).split("\n")
    assert drawn[-2:] == ["  9.8 KiB a spike, until step 1,234", "     10 B b t1234, until step 1,234"]
    assert all(line[11:65].strip() for line in drawn[1:-6])


def test_peak_tensors_are_named_with_their_last_readers(planned: Callable[..., Plan]) -> None:
    buffers = [(f"/encoder/layer.{k}/attention/MatMul_output_0", k, 9, (9 - k) << 20) for k in range(8)]
    plan = planned(*buffers)
    rows = [{"name": name, "bytes": size, "lower": lower, "upper": upper, "offset": 0, "producer": "MatMul",
             "consumers": ["Add", f"/decoder/layer.{lower}/Concat"], "kind": "activation" if lower else "output"}
            for name, lower, upper, size in buffers]  # fmt: skip
    for width in (60, 80, 120):
        lines = terminal_map(plan, width, placement=rows).split("\n")
        assert max(map(len, lines)) <= width
        assert lines[-1].strip() == "and 3 smaller buffers at the peak"
        assert lines[-6].endswith("MatMul_output_0, an output") and " a " in lines[-6]
        assert ", last reader " in lines[-5] and lines[-5].endswith("layer.1/Concat (step 8)")
    assert lines[-5].split("b ")[1].startswith("/encoder/layer.1/attention/MatMul_output_0, last reader /decoder/")
    assert terminal_map(planned(*buffers[:7])).endswith("and 2 smaller buffers at the peak")
    assert "smaller" not in terminal_map(planned(*buffers[:6]))


def test_colour_changes_nothing_but_colour(unet: Plan) -> None:
    plain, coloured = terminal_map(unet), terminal_map(unet, color=True)
    bare = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", coloured).split("\n")]
    assert [re.sub("[▓▒░]", "█", line) for line in plain.split("\n")] == bare
    assert "\x1b" not in plain


@pytest.mark.parametrize(
    ("buffers", "message"),
    [((), "no buffers: there is nothing to place"), ((("a", 0, 1, 0),), "all buffers are empty: no memory is needed")],
)
def test_nothing_to_draw_is_said(planned: Callable[..., Plan], buffers: tuple[object, ...], message: str) -> None:
    assert terminal_map(planned(*buffers)) == message


def test_extremes_are_drawn(planned: Callable[..., Plan], scattered: Callable[..., Plan]) -> None:
    for buffer in (("a", 0, 1, 1), ("a", 0, 1, LARGEST), ("a", -LARGEST // 4, LARGEST // 4, 7)):
        assert "peak" in terminal_map(planned(buffer))
    assert "peak" in terminal_map(scattered(5000, 3000), width=20, height=1)
