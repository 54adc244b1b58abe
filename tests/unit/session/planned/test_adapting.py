"""What is done about plans that runs deviate from: decided from how the runs went, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from onnxmem.session.memory import Deviation, DeviationKind
from onnxmem.session.planned.adapting import Advice, Change, Conduct, adapt, apply, in_common
from onnxmem.session.planned.placing import place
from onnxmem.session.planned.trace import OUTLIVES, Trace

FITTED = Conduct(fitted=True)


def at(step: int, kind: DeviationKind = DeviationKind.FREE_OF_ANOTHER_BUFFER) -> Deviation:
    return Deviation(kind=kind, step=step, expected_bytes=64, asked_bytes=128)


def of_size(step: int) -> Deviation:
    return at(step, DeviationKind.ALLOCATION_OF_ANOTHER_SIZE)


def after(conduct: Conduct, *runs: Deviation | None) -> tuple[Conduct, Advice | None]:
    """The last advice; none may come before the last run."""
    advice = None
    for run in runs:
        assert advice is None
        conduct, advice = adapt(conduct, run)
    return conduct, advice


def test_three_deviations_cut_the_plan_before_the_earliest() -> None:
    conduct, advice = after(FITTED, at(7), at(5), at(9))
    assert advice == (Change.CUT, 5)
    assert (conduct.cuts, conduct.deviated, conduct.strikes, conduct.steps) == (1, 3, 0.0, frozenset())
    assert conduct.last == at(9)


def test_clean_runs_take_strikes_back() -> None:
    conduct, advice = after(FITTED, *[at(3), None, None, None, None] * 20)
    assert advice is None
    assert (conduct.strikes, conduct.deviated) == (0.0, 20)
    assert after(FITTED, *[at(3), None] * 3)[1] is None
    assert after(FITTED, *[at(3), None] * 3, at(3))[1] == (Change.CUT, 3)


def test_one_buffer_of_changing_size_is_left_out_after_two() -> None:
    conduct, advice = after(FITTED, of_size(4), of_size(4))
    assert advice == (Change.LEAVE_OUT, 4)
    assert (conduct.left_out, conduct.cuts) == (1, 0)


def test_sizes_that_change_at_two_places_are_cut() -> None:
    assert after(FITTED, of_size(4), of_size(6), of_size(4))[1] == (Change.CUT, 4)


def test_no_more_than_64_buffers_are_left_out() -> None:
    conduct = Conduct(fitted=True, left_out=64)
    assert after(conduct, of_size(4), of_size(4), of_size(4))[1] == (Change.CUT, 4)


def test_what_never_fitted_is_recorded_again_but_only_once() -> None:
    assert after(Conduct(), at(0), at(0), at(0))[1] == (Change.RECORD_AGAIN, 0)
    assert after(Conduct(), None, at(2), at(2), at(2))[1] == (Change.CUT, 2)  # it fitted once
    assert after(Conduct(recorded_again=True), at(2), at(2), at(2))[1] == (Change.CUT, 2)


@pytest.fixture
def trace() -> Trace:
    """Two buffers of 1024 bytes one after the other, then two at once."""
    columns = ([1024, 1024, 1024, 1024], [0, 2, 4, 5], [1, 3, 6, 7])
    return Trace(*(np.array(column, np.int64) for column in columns))


def test_a_cut_plan_follows_the_part_before(trace: Trace) -> None:
    conduct, advice = after(FITTED, at(6), at(6), at(6))
    assert advice is not None
    placement, tape, reason = apply(advice, conduct, trace, place(trace), 0)
    assert tape is not None and tape.cut
    assert placement.peak == tape.peak == 2048
    assert reason == "only the first 6 steps are planned: a free of another buffer at step 6 of 8, 3 times"


def test_a_part_that_is_not_worth_it_is_not_followed(trace: Trace) -> None:
    whole = place(trace)
    conduct, advice = after(FITTED, at(0), at(0), at(0))
    assert advice is not None
    placement, tape, reason = apply(advice, conduct, trace, whole, 0)
    assert (placement, tape) == (whole, None)
    assert reason == "served from the heap for good: a free of another buffer at step 0 of 8, 3 times"
    conduct, advice = after(Conduct(fitted=True, cuts=3), at(6), at(6), at(6))
    assert advice is not None
    assert apply(advice, conduct, trace, whole, 0).tape is None  # cut often enough


def test_a_buffer_that_is_left_out_is_on_the_heap(trace: Trace) -> None:
    conduct, advice = after(FITTED, of_size(5), of_size(5))
    assert advice is not None
    placement, tape, reason = apply(advice, conduct, trace, place(trace), 0)
    assert tape is not None and not tape.cut
    assert (placement.peak, placement.offsets.tolist()[3]) == (1024, -1)
    assert reason == "1 buffer is on the heap: its size depends on the data"


def test_a_second_cut_keeps_the_places_of_what_was_alive_at_the_first(trace: Trace) -> None:
    conduct, advice = after(FITTED, at(6), at(6), at(6))
    assert advice is not None
    placement, tape, _ = apply(advice, conduct, trace, place(trace), 0)
    assert tape is not None
    again, advice = after(conduct, at(5), at(5), at(5))
    assert advice == (Change.CUT, 5)
    placement, tape, _ = apply(advice, again, Trace.recorded(tape.trace), placement, 0)
    assert tape is not None
    assert placement.offsets.tolist() == [0, 0, 0]  # the third has no end any more
    assert tape.peak == 1024


def made(*rows: tuple[int, int, int]) -> Trace:
    return Trace(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


def test_runs_that_are_the_same_have_everything_in_common(trace: Trace) -> None:
    part, cut = in_common([trace, trace, trace])
    assert part == trace and cut is None


def test_what_is_not_always_of_the_same_size_is_left_out() -> None:
    runs = [made((1024, 0, 1), (size, 2, 4), (4096, 3, 5)) for size in (512, 2048, 64)]
    part, cut = in_common(runs)
    assert cut is None
    assert part.sizes.tolist() == [1024, 0, 4096] and part.uppers.tolist() == [1, OUTLIVES, 5]


def test_runs_that_go_apart_are_planned_as_far_as_they_go_together() -> None:
    rows = (4096, 0, 3), (4096, 1, 2)
    short, long = made(*rows, (64, 4, 5)), made(*rows, (64, 4, 6), (64, 5, 7))
    for runs in ([short, long], [long, short]):
        part, cut = in_common(runs)
        assert cut == 5
        assert part.bound() == 8192 and len(part) == 3
    # What they have in common is nearly nothing: the larger one is planned.
    small, large = made((64, 0, 1)), made((64, 0, 2), (4096, 1, 3))
    assert in_common([small, large]) == (large, None)
    # The one ends where the other goes on.
    assert in_common([made(*rows), short])[1] == 4
