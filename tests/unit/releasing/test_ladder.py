"""What a ladder says: percentages with their base, figures that add up, and that it comes back from JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmem.measurement.protocol import Released
from onnxmem.releasing.ladder import Ladder, explain_release
from onnxmem.releasing.rungs import CLOSE, TRIM
from onnxmem.unknown import Unknown
from tests.unit.releasing.samples import MIB, ladder


@given(st.integers(11, 900), st.integers(0, 900), st.integers(0, 900))
def test_what_is_saved_comes_back_equal(full: int, closed: int, trimmed: int) -> None:
    result = ladder(full, closed, trimmed)
    document = json.loads(json.dumps(result.document(), allow_nan=False))
    assert Ladder.from_document(document) == result
    assert document["schema"] == "onnxmem.release/1" and document["explanation"] == list(explain_release(result))


def test_documents_keep_the_keys_that_others_rely_on() -> None:
    document = ladder().document()
    keys = {"name", "rss_bytes", "anon_bytes", "file_bytes", "virtual_bytes", "freed_bytes"}
    assert all(keys <= each.keys() for each in document["steps"])
    assert document["released_fraction"] == pytest.approx(288 / 290)


@given(st.integers(11, 900), st.integers(0, 900), st.integers(0, 900))
def test_what_the_steps_freed_adds_up_to_what_came_back(full: int, closed: int, trimmed: int) -> None:
    result = ladder(full, closed, trimmed)
    freed = [result.freed_by(step) for step in result.steps[:-1]]
    assert sum(size for size in freed if isinstance(size, int)) == result.returned
    assert isinstance(result.returned, int) and isinstance(result.remaining, int)
    assert result.brought == result.returned + result.remaining
    # RSS is what remains of the model, and pages of libraries.
    assert isinstance(result.left, int) and result.left - result.remaining == 7 * MIB


def test_the_percentage_has_its_base_and_agrees_with_the_sizes_beside_it() -> None:
    answer, freed, *rest = explain_release(ladder())
    assert answer == (
        "99.3% of the 290.0 MiB that net.onnx brought came back without ending the process; 2.0 MiB remain, "
        "mostly in the heap (which the next model uses again)."
    )
    assert freed.startswith("Closing the session freed 200.0 MiB and trimming the allocator")
    assert "freed 88.0 MiB. Dropping references, collecting garbage and shrinking the arena freed nothing." in freed
    assert "RSS also counts 7.0 MiB of library pages that were touched: a cache of the system's." in rest
    assert rest[-1] == "Ending the process frees everything: 59.0 MiB, Python and ONNX Runtime included."


def test_all_is_all_and_nothing_less() -> None:
    everything = explain_release(ladder(trimmed=10))[0]
    assert everything == "100.0% of the 290.0 MiB that net.onnx brought came back without ending the process."


def test_what_stood_in_the_way_is_said() -> None:
    met = Released(clear_cache=False, shrinkage="no arena", held_by=("1 IOBinding",), trim="this is not glibc")
    text = " ".join(explain_release(replace(ladder(), released=met)))
    assert "held by 1 IOBinding" in text and "not glibc" in text and "could not be shrunk" in text


def test_what_is_not_known_is_not_made_up() -> None:
    whole = ladder()
    blind = replace(whole, full=replace(whole.full, made_of=Unknown("smaps cannot be read")))
    assert explain_release(blind) == ("What net.onnx took cannot be told here: smaps cannot be read.",)
    assert isinstance(blind.released_fraction, Unknown)
    assert explain_release(ladder(full=10))[0] == "net.onnx took no memory that could be measured."


def test_mapped_weights_are_the_models_too() -> None:
    names = [step.name for step in ladder().steps]
    assert names.index(CLOSE) < names.index(TRIM)
