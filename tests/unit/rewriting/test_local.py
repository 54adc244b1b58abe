"""Which rows a window reads, and which rows a node makes."""

from __future__ import annotations

import pytest

from onnxmem.rewriting.local import Local, Rows, Window


@pytest.mark.parametrize(
    ("window", "rows", "read"),
    [
        (Window(2), Rows(3, 7), Rows(3, 7)),
        (Window(2, span=3, pad=1), Rows(0, 4), Rows(-1, 5)),
        (Window(2, stride=2, span=3, pad=1), Rows(2, 4), Rows(3, 8)),
        (Window(2, stride=2, pad=-1), Rows(0, 3), Rows(1, 6)),
    ],
)
def test_a_window_reads_from_its_first_to_its_last_row(window: Window, rows: Rows, read: Rows) -> None:
    assert window.over(rows) == read


def test_rows_that_come_in_groups_are_made_with_a_margin_that_is_not_used() -> None:
    twice = Local(2, (Window(2),), factor=2, margin=1)
    assert twice.groups(Rows(5, 9), 20) == Rows(1, 6)
    assert twice.made(Rows(5, 9), 20) == Rows(2, 12)
    assert twice.right(Rows(5, 9)) == Rows(4, 10)
    assert twice.made(Rows(0, 20), 20) == Rows(0, 20)  # there is nothing beyond the ends


def test_too_few_rows_become_enough_or_all() -> None:
    local = Local(2, (Window(2),), least=5, multiple=4)
    assert local.enough(Rows(3, 5), 30) == Rows(3, 11)
    assert local.enough(Rows(28, 30), 30) == Rows(22, 30)
    assert local.enough(Rows(2, 3), 6) == Rows(0, 6)
    assert Local(2, ()).enough(Rows(2, 3), 6) == Rows(2, 3)
