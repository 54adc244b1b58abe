"""Names that can be shown: short enough, and without what breaks lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onnxmem.report.names import printable, shorten, shorten_path


@given(st.text(), st.integers(1, 40))
def test_shortened_names_have_at_most_that_many_characters(name: str, room: int) -> None:
    assert len(shorten(name, room)) <= room
    assert len(shorten_path(name, room)) <= room


def test_printable_removes_what_breaks_lines_files_and_reading_direction() -> None:
    assert printable("a\x00b\nc\u202ed\ud800é") == "a�b�c�d�é"
