"""Records come back from their documents equal to what was saved; what is wrong is named by its place."""

import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmem.documents import Record, decode, inlined, stored
from onnxmem.errors import UsageError
from onnxmem.result import Result
from onnxmem.unknown import Bytes, Unknown


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Part(Record):
    rss: Bytes = stored("rss_bytes")
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Whole(Result):
    SCHEMA = "onnxmem.whole/1"

    parts: tuple[Part, ...]
    sizes: Mapping[str, tuple[int, ...]]
    peak: Bytes = stored("peak_bytes")
    latency: float | None
    colour: Colour = Colour.RED
    path: Path = Path("model.onnx")
    pair: tuple[int, str] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def derived(self) -> Mapping[str, Any]:
        return {"total_bytes": self.peak if isinstance(self.peak, Unknown) else self.peak + 1}


sizes = st.integers(0, 2**63) | st.builds(Unknown, st.text())
wholes = st.builds(
    Whole,
    parts=st.lists(st.builds(Part, rss=sizes, name=st.text())).map(tuple),
    sizes=st.dictionaries(st.text(), st.lists(st.integers()).map(tuple)),
    peak=sizes,
    latency=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    colour=st.sampled_from(Colour),
    path=st.just(Path("a/b.onnx")),
    pair=st.none() | st.tuples(st.integers(), st.text()),
    facts=st.dictionaries(st.text(), st.integers()),
)


@given(wholes)
def test_what_was_saved_comes_back_equal(whole: Whole) -> None:
    assert Whole.from_document(json.loads(json.dumps(whole.document()))) == whole


def test_unknown_is_null_with_its_reason_beside_it() -> None:
    document = Part(Unknown("no /proc")).document()
    assert document == {"rss_bytes": None, "name": "", "unknown": {"rss_bytes": "no /proc"}}


class Light(NamedTuple):
    size: int
    place: Part
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Holder(Record):
    part: Part = inlined()
    light: Light
    peak: Bytes = stored("peak_bytes")


def test_an_inlined_record_stands_among_the_keys_of_its_holder() -> None:
    light = Light(1, Part(2, "inside"), ("a",))
    holder = Holder(part=Part(Unknown("gone"), "heap"), light=light, peak=Unknown("no kernel"))
    document = holder.document()
    assert document == {
        "rss_bytes": None,
        "name": "heap",
        "light": {"size": 1, "place": {"rss_bytes": 2, "name": "inside"}, "notes": ["a"]},
        "peak_bytes": None,
        "unknown": {"rss_bytes": "gone", "peak_bytes": "no kernel"},
    }
    assert Holder.from_document(json.loads(json.dumps(document))) == holder


def test_every_document_says_where_when_and_by_which_command() -> None:
    document = Whole(parts=(), sizes={}, peak=1, latency=None).document()
    assert document["schema"] == "onnxmem.whole/1" and document["total_bytes"] == 2
    assert document["environment"]["python"] and document["date"].endswith("+00:00") and document["command"]


def test_arrays_and_their_numbers_are_plain_data() -> None:
    assert Part(np.int64(3)).document()["rss_bytes"] == 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"parts": [{"rss_bytes": "much"}]}, r"'parts\[0\].rss_bytes' cannot be 'much'"),
        ({"parts": [{}]}, r"it has no 'parts\[0\].rss_bytes'"),
        ({"parts": 3}, "'parts' cannot be '3'"),
        ({"latency": True}, "'latency' cannot be 'True'"),
        ({"colour": "green"}, "'colour' cannot be 'green'"),
        ({"pair": [1]}, "'pair'"),
        ({"sizes": {"x": [None]}}, r"'sizes.x\[0\]'"),
        ({"schema": "onnxmem.whole/2"}, "newer onnxmem"),
        ({"schema": "onnxmem.other/1"}, "not a document of"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(change: dict[str, Any], complaint: str) -> None:
    document = Whole(parts=(), sizes={}, peak=1, latency=None).document()
    with pytest.raises(UsageError, match=complaint):
        Whole.from_document({**document, **change})


def test_reading_leaves_nothing_to_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        assert decode(tuple[int | str | None, ...], ["n", 3, None]) == ("n", 3, None)
        assert gc.collect() == 0, "a caller would be kept alive by the error of a type that was tried"
    finally:
        gc.enable()


@pytest.mark.parametrize("value", [10**400, -(10**400)], ids=["large", "small"])
def test_integers_that_cannot_be_computed_with_are_refused(value: int) -> None:
    for kind in (float, int, float | None):
        with pytest.raises(UsageError, match=r"'x' cannot be '-?1000"):
            decode(kind, value, "x")


def test_what_python_cannot_write_is_refused_with_a_sentence() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (1 << 20_000, deep):
        with pytest.raises(UsageError, match="'x' cannot be '…'"):
            decode(str, value, "x")
