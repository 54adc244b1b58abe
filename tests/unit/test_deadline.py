"""One time limit for a whole command."""

import math

import pytest

from onnxmem.deadline import Deadline
from onnxmem.errors import UsageError


def test_a_stage_gets_its_part_of_the_whole_or_what_is_left() -> None:
    deadline = Deadline(1000.0)
    assert deadline.share(0.25) == 250.0
    assert deadline.share(1.0) == pytest.approx(deadline.left)
    assert 0 < deadline.left <= 1000.0
    assert not deadline.passed
    assert Deadline().left == math.inf


def test_a_stage_that_comes_too_late_still_does_its_first_step() -> None:
    deadline = Deadline(1e-9)
    assert deadline.passed
    assert deadline.left == 0.0
    assert 0 < deadline.share(0.5) < 0.1


@pytest.mark.parametrize("wrong", [0, -1.0, math.nan])
def test_no_time_is_refused(wrong: float) -> None:
    with pytest.raises(UsageError, match="more than 0 seconds"):
        Deadline(wrong)
