"""What all results have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from onnxmem.errors import UsageError
from onnxmem.result import Result


@dataclass(frozen=True, kw_only=True)
class Plain(Result):
    """A result that says nothing about its repr."""

    SCHEMA: ClassVar[str] = "onnxmem.plain/1"

    model: str
    rows: tuple[int, ...] = ()
    peak_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Own(Plain):
    """A result that does."""

    def __repr__(self) -> str:
        return "<Own>"


def test_a_result_is_shown_in_one_line() -> None:
    assert repr(Plain(model="m.onnx", rows=(1,) * 1000, peak_bytes=7)) == "<Plain: model='m.onnx', peak_bytes=7>"
    assert len(repr(Plain(model="m" * 1000))) <= 122
    assert "\n" not in repr(Plain(model="a\nb"))
    assert repr(Own(model="m")) == "<Own>"


def test_a_result_comes_back_equal_and_refuses_others() -> None:
    result = Plain(model="m.onnx", rows=(1, 2), peak_bytes=7)
    document = result.document()
    assert Plain.from_document(document) == result
    assert document["schema"] == "onnxmem.plain/1" and {"environment", "command", "date"} <= document.keys()
    with pytest.raises(UsageError, match="written by a newer onnxmem"):
        Plain.from_document({**document, "schema": "onnxmem.plain/2"})
    with pytest.raises(UsageError, match=r"not a document of 'onnxmem\.plain/1'"):
        Plain.from_document({**document, "schema": "onnxmem.other/1"})
