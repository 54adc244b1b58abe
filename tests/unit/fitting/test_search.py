"""The largest size that fits, by predictions alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto, helper

from onnxmem import zoo
from onnxmem.deadline import Deadline
from onnxmem.errors import UsageError
from onnxmem.fitting.axis import Axis
from onnxmem.fitting.changes import changes_of, recommend
from onnxmem.fitting.fitting import Answer, Fitting, ModeFit, Point, Verified
from onnxmem.fitting.search import MARGINS, Sizes, at_sizes, needed, search, together
from onnxmem.fitting.tiles import tiles_of
from onnxmem.model.model import Model
from onnxmem.prediction.calibration import Calibration, Process
from onnxmem.prediction.predict import MODES
from onnxmem.schedule.scheduled import Question
from tests.helpers import model_of

MIB = 2**20
PROCESS = Process(imported=60 * MIB, shared=36 * MIB, loading=7 * MIB, running=MIB)


def sizes_of(
    proto: ModelProto, axis: Axis, budget: int | None, workers: int = 1, time_limit: float = math.inf
) -> Sizes:
    return Sizes(
        model=Model.of(proto),
        axis=axis,
        question=lambda dims: Question(dims=dims),
        threads=1,
        environment=Calibration(stock=PROCESS, planned=PROCESS),
        budget=budget,
        workers=workers,
        deadline=Deadline(time_limit),
        on_size=lambda _: None,
    )


@pytest.fixture(scope="module")
def chain() -> ModelProto:
    return zoo.build("matmul", layers=4, width=512)


def test_what_was_measured_has_the_prediction_of_its_own_size(chain: ModelProto) -> None:
    sizes = sizes_of(chain, Axis(names=("batch",), stop=64), 140 * MIB)
    (mode,) = search(sizes, ("planned",))
    assert mode.size == 64 and not any(point.size == 50 for point in mode.points)
    held = replace(mode, verified=Verified(size=50, limited_by="RLIMIT_DATA", attempts=()))
    assert held.document()["bytes"] is None
    shown = at_sizes(sizes, held, [50, 64])
    assert shown.at_size is not None and shown.at_size.size == 50
    assert shown.document()["bytes"] == sizes.need("planned", 49)
    assert [point.size for point in shown.points] == sorted({50, *(point.size for point in mode.points)})


@pytest.mark.parametrize("stop", [None, 100_000])
def test_no_size_beyond_the_answer_fits_and_none_is_far_below(chain: ModelProto, stop: int | None) -> None:
    sizes = sizes_of(chain, Axis(names=("batch",), stop=stop), 140 * MIB)
    for mode in search(sizes, ("stock", "tuned", "planned")):
        assert mode.size is not None and not mode.open_end
        assert sizes.fits(mode.mode, mode.size - 1)
        assert not sizes.fits(mode.mode, mode.size)
        assert mode.at_size is not None and mode.at_size.bytes < mode.at_size.needed <= 140 * MIB
        # A batch of one more takes 2 KiB more in each of a few tensors: the budget is used up but for the margin.
        used = mode.at_size.needed / (140 * MIB)
        assert used > (0.98 if mode.mode == "planned" else 0.75)


def test_more_workers_leave_less_for_each(chain: ModelProto) -> None:
    axis = Axis(names=("batch",))
    one = {mode.mode: mode for mode in search(sizes_of(chain, axis, 140 * MIB), MODES)}
    two = {mode.mode: mode for mode in search(sizes_of(chain, axis, 140 * MIB, workers=2), MODES)}
    sizes = {mode: fit.size or 0 for mode, fit in one.items()}
    assert sizes["tuned"] >= sizes["stock"] > 0
    assert all((two[mode].size or 0) < sizes[mode] for mode in MODES)
    assert (one["prepacked"].workers or 0) >= (one["stock"].workers or 0) >= 1


def test_workers_share_their_files(chain: ModelProto) -> None:
    sizes = sizes_of(chain, Axis(names=("batch",)), 512 * MIB)
    for mode in MODES:
        forecast = sizes.forecast(mode, 0)
        assert forecast is not None
        assert together(forecast, 1) == forecast.peak
        assert together(forecast, 3) == forecast.peak + 2 * (forecast.steady - forecast.shared)


def test_an_end_is_kept_and_nothing_may_fit(chain: ModelProto) -> None:
    few = search(sizes_of(chain, Axis(names=("batch",), start=2, stop=9, step=3), 900 * MIB), ("stock",))[0]
    assert few.size == 8 and not few.open_end and [point.size for point in few.points] == [2, 5, 8]
    none = search(sizes_of(chain, Axis(names=("batch",)), 50 * MIB), ("stock",))[0]
    assert none.size is None and none.workers == 0 and none.smallest.bytes > 50 * MIB


def windowed() -> ModelProto:
    """Runs only if the length is a multiple of 16."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    return model_of(nodes, {"x": [1, "n"]}, ["y"], {"shape": [-1, 16]})


def test_sizes_between_which_the_model_cannot_run_need_a_step() -> None:
    with pytest.raises(UsageError, match="not every size suits it"):
        search(sizes_of(windowed(), Axis(names=("n",)), 140 * MIB), ("stock",))
    fit = search(sizes_of(windowed(), Axis(names=("n",), start=16, step=16), 140 * MIB), ("stock",))[0]
    assert fit.size is not None and fit.size % 16 == 0
    with pytest.raises(UsageError, match="runs at none of the sizes 1 … 8"):
        search(sizes_of(windowed(), Axis(names=("n",), stop=8), 140 * MIB), ("stock",))


def mode(name: str, size: int | None) -> ModeFit:
    point = Point(size=1, bytes=80 * MIB, needed=90 * MIB)
    return ModeFit(mode=name, size=size, open_end=False, gaps=(), workers=1, points=(point,))


def test_the_least_change_comes_first_and_a_few_per_cent_are_not_worth_a_package() -> None:
    modes = [mode("stock", 12), mode("prepacked", 31), mode("planned", 30), mode("tuned", 12), mode("mapped", 20)]
    assert [(change.mode, change.size) for change in changes_of(modes)] == [
        ("stock", 12),
        ("planned", 30),
        ("prepacked", 31),
    ]
    assert recommend(modes) == "planned"
    assert recommend([mode("stock", None), mode("mapped", 1)]) == "mapped"
    assert recommend([mode("stock", None)]) is None


def test_a_fitting_comes_back_as_it_was_saved() -> None:
    modes = (mode("stock", 12), mode("planned", 30))
    axis = Axis(names=("batch",), stop=64)
    answer = Answer(axis=axis, modes=modes, changes=changes_of(modes), recommended=recommend(modes), impossible=())
    fitting = Fitting(
        model="m.onnx", budget=140 * MIB, workers=1, threads=2, margins=MARGINS, fixed={}, assumed={},
        answers=(answer,), unknown_tensors=(),
    )  # fmt: skip
    assert Fitting.from_document(json.loads(json.dumps(fitting.document()))) == fitting
    assert repr(fitting) == "<Fitting of m.onnx into 140.0 MiB: batch up to 30 planned>"
    assert fitting.fits and fitting.document()["answers"][0]["gains"] == {"stock": 0.0, "planned": 1.5}


def test_without_a_budget_there_is_the_curve_over_the_whole_range(chain: ModelProto) -> None:
    modes = search(sizes_of(chain, Axis(names=("batch",), stop=64), None), ("stock", "planned"))
    for mode in modes:
        assert mode.size is None and mode.workers is None and mode.gaps == ()
        assert [point.size for point in mode.points][:: len(mode.points) - 1] == [1, 64] and len(mode.points) == 13
        assert all(point.exact for point in mode.points)
    unbounded = search(sizes_of(chain, Axis(names=("batch",), start=2, step=2), None), ("planned",))[0]
    assert unbounded.points[-1].size == 128


def test_a_curve_shows_what_the_forecasts_say_and_goes_on_beyond_the_budget(chain: ModelProto) -> None:
    sizes = sizes_of(chain, Axis(names=("batch",), stop=100_000), 140 * MIB)
    fit = search(sizes, ("planned",))[0]
    assert fit.size is not None and fit.size in [point.size for point in fit.points]
    assert fit.size < fit.points[-1].size <= 2 * fit.size + 1
    for point in fit.points:
        assert point.bytes == sizes.need("planned", point.size - 1)


def test_what_there_is_no_time_for_lies_on_a_line(chain: ModelProto) -> None:
    late = search(sizes_of(chain, Axis(names=("batch",), stop=97), None, time_limit=1e-9), ("planned",))[0]
    inexact = [point for point in late.points if not point.exact]
    first, last = late.points[0], late.points[-1]
    assert first.exact and last.exact and len(inexact) == len(late.points) - 2
    for point in inexact:
        part = (point.size - first.size) / (last.size - first.size)
        assert point.bytes == pytest.approx(first.bytes + part * (last.bytes - first.bytes), abs=1)


def test_a_size_that_depends_on_what_is_fed_makes_nothing_exact() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["a"]), helper.make_node("Cast", ["a"], ["y"], to=1)]
    fit = search(sizes_of(model_of(nodes, {"x": ["n", 8]}, ["y"]), Axis(names=("n",), stop=4), None), ("stock",))[0]
    assert not any(point.exact for point in fit.points)


def test_weights_are_read_once_for_all_sizes(chain: ModelProto) -> None:
    sizes = sizes_of(chain, Axis(names=("batch",), stop=3), None)
    subjects = [sizes.subject(index) for index in range(3)]
    assert subjects[0] is not None and all(
        each is not None and each.weights is subjects[0].weights for each in subjects
    )


def test_more_is_kept_free_where_less_is_known(chain: ModelProto) -> None:
    sizes = sizes_of(chain, Axis(names=("batch",)), None)
    for mode, part in (("stock", 0.10), ("tuned", 0.05), ("mapped", 0.05), ("planned", 0.05)):
        small, large = sizes.forecast(mode, 0), sizes.forecast(mode, 1 << 16)
        assert small is not None and large is not None and large.peak == large.steady
        assert needed(large, 1) == pytest.approx(large.peak * (1 + part), abs=1)
        if mode != "mapped":  # what loading takes is the same at every size, and decides where runs take little
            assert needed(small, 1) == pytest.approx(small.load_peak * 1.13, abs=1)


def test_what_fits_in_no_mode_may_fit_in_pieces() -> None:
    """A tensor of 16 MiB or more, of which stripes need little."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["y"], kernel_shape=[8, 8], strides=[8, 8]),
    ]
    proto = model_of(nodes, {"x": (1, 3, "side", "side")}, ["y"], {"w": np.ones((16, 3, 3, 3), np.float32)})
    axis = Axis(names=("side",), start=512, stop=1024, step=256)
    for budget, size in ((88 * MIB, 512), (100 * MIB, 1024)):
        sizes = sizes_of(proto, axis, budget)
        modes = search(sizes, ("stock", "planned"))
        largest = max((mode.size for mode in modes if mode.size is not None), default=0)
        found = tiles_of(sizes, modes)
        assert found is not None and largest < found.size == size
        assert found.bytes < found.needed <= budget and found.nodes > 0 and found.extra_work <= 0.1
    sizes = sizes_of(proto, axis, 1024 * MIB)
    assert tiles_of(sizes, search(sizes, ("stock", "planned"))) is None, "all sizes fit anyway"
