"""Which sizes are tried."""

from __future__ import annotations

import pytest

from onnxmem.errors import UsageError
from onnxmem.fitting.axis import Axis, parse_dims, read_dims
from onnxmem.model.dims import Dim, symbol

IMAGE: dict[str, tuple[Dim, ...] | None] = {"x": (symbol("batch"), 3, symbol("height"), symbol("width"))}
TEXT: dict[str, tuple[Dim, ...] | None] = {"ids": (1, symbol("sequence")), "sound": (1, symbol("samples"))}


def test_ranges_are_read_as_people_write_them() -> None:
    dims = parse_dims(["batch=8", "height=256..1024:32", "width=height"])
    assert dims == {"batch": 8, "height": "256..1024:32", "width": "height"}
    fixed, axes = read_dims(IMAGE, dims, {})
    assert fixed == {"batch": 8}
    assert axes == (Axis(names=("height", "width"), start=256, stop=1024, step=32),)
    assert axes[0].last == 24 and axes[0].size(24) == 1024 and axes[0].dims(256) == {"height": 256, "width": 256}


def test_pythons_ranges_are_taken_too_and_a_range_may_have_no_end() -> None:
    _, axes = read_dims(IMAGE, {"batch": range(2, 65, 2), "height": "32..:32"}, {})
    assert axes == (Axis(names=("batch",), start=2, stop=64, step=2), Axis(names=("height",), start=32, step=32))
    assert axes[1].last is None


def test_a_batch_grows_unless_something_else_is_asked_for() -> None:
    assert read_dims(IMAGE, {}, {})[1] == (Axis(names=("batch",)),)
    assert read_dims(IMAGE, {"batch": 4}, {})[1] == (Axis(names=("height", "width"), start=32, step=32),)
    assert [axis.names for axis in read_dims(TEXT, {}, {})[1]] == [("sequence",), ("samples",)]
    assert read_dims(IMAGE, {}, {"x": (1, 3, 64, 64)}) == ({"batch": 1, "height": 64, "width": 64}, (Axis(),))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["batch"], "'batch' is not a dimension"),
        (["batch="], "'batch=' is not a dimension"),
        (["batch=1..4", "batch=2"], "given twice"),
        (["batch=4..1"], "not a range of sizes"),
        (["batch=0..4"], "not a range of sizes"),
        (["batch=1..4:0"], "not a range of sizes"),
        (["batch=many"], "neither a range nor the name"),
        (["depth=1..4"], "no free dimension 'depth'"),
    ],
)
def test_what_is_no_range_is_refused(given: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_dims(IMAGE, parse_dims(given), {})


def test_a_dimension_is_fixed_or_has_a_range() -> None:
    with pytest.raises(UsageError, match="both 2 and a range"):
        read_dims(IMAGE, {"batch": "1..4"}, {"x": (2, 3, 8, 8)})
