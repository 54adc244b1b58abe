"""The parts of a peak: what was measured decides, and they add up to it to the byte."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from onnxmem.errors import RuntimeUnsupported
from onnxmem.explaining.attribution import (
    ABOUT,
    NAMES,
    attribute,
    expected_without_model,
    peak_of,
    with_counted,
    with_packed,
)
from onnxmem.measurement.measurement import Measurement
from onnxmem.prediction.prediction import PARTS
from tests.unit.explaining.samples import MIB, STOCK, measurement, runtime

EXPECTED = {"weights": 20, "packed copies": 5, "session": 2, "kept by the heap": 10, "activations": 16, "pattern": 16}


def sizes(found: Measurement, expected: Mapping[str, float], mode: str = "stock") -> dict[str, float]:
    """The parts in MiB; whatever they are, they add up and none is negative."""
    parts = attribute(found, {name: int(size * MIB) for name, size in expected.items()}, mode)
    assert sum(part.bytes for part in parts) == peak_of(found)
    assert all(part.bytes > 0 for part in parts)
    assert [part.name for part in parts] == [name for name in NAMES if name in {part.name for part in parts}]
    return {part.name: part.bytes / MIB for part in parts}


def test_every_part_has_a_name_and_says_what_it_is() -> None:
    assert set(NAMES) == set(ABOUT) >= set(PARTS)


def test_what_the_system_tells_is_taken_as_it_is() -> None:
    found = sizes(measurement(), EXPECTED)
    assert found["libraries"] == 43 and found["interpreter"] == 20 and found["inputs"] == 2
    assert found["weights"] == 20 and found["packed copies"] == 5 and found["session"] == 2
    # Runs added 36 MiB and a peak of 1 more: 32 are expected, and nothing explains the rest, nor 1 MiB of loading.
    assert found["activations"] == 16 and found["pattern"] == 16 and found["unknown"] == 5 + 1


def test_what_the_heap_kept_is_known_by_what_came_back() -> None:
    """Of 54 MiB that loading left, 27 are in use; 49 of the heap and 4 of mappings came back: 26 were kept."""
    assert sizes(measurement(), EXPECTED)["kept by the heap"] == 26
    # What stayed after the trim was never the heap's to keep.
    stayed = {**STOCK, "trim": (43, 0, 43, 10, 0)}
    found = sizes(measurement(stayed), EXPECTED)
    assert found["kept by the heap"] == 10 and found["unknown"] == 5 + 17


def test_a_mode_that_trims_keeps_nothing_beyond_what_is_predicted() -> None:
    assert sizes(measurement(mode="tuned"), EXPECTED, "tuned")["kept by the heap"] == 10


def test_more_than_was_measured_is_never_said() -> None:
    large = {name: 100 * size for name, size in EXPECTED.items()}
    found = sizes(measurement(), large)
    assert "unknown" not in found
    assert found["activations"] == 37 and "pattern" not in found
    assert found["packed copies"] + found.get("weights", 0) == 54


def test_mapped_weights_are_pages_of_files() -> None:
    mapped = {**STOCK, "load": (42, 0, 14, 10, 0), "first run": (43, 18, 14, 20, 0), "steady runs": (43, 20, 14, 20, 0)}
    found = sizes(measurement(mapped, mode="mapped"), EXPECTED, "mapped")
    assert found["weights"] == 20 and "packed copies" not in found
    found = sizes(measurement(mapped, mode="prepacked"), EXPECTED, "prepacked")
    assert found["weights"] == 15 and found["packed copies"] == 5


def test_a_peak_of_loading_is_what_was_copied_then() -> None:
    high = {**STOCK, "load": (42, 0, 62, 14, 100)}
    found = sizes(measurement(high), EXPECTED)
    assert found["loading"] == 100 and "activations" not in found


def test_they_add_up_whatever_the_figures_are() -> None:
    generator = random.Random(7)
    for _ in range(300):
        phases = {name: tuple(generator.randrange(0, 60) for _ in range(5)) for name in STOCK}
        expected = {name: generator.randrange(0, 80) for name in PARTS}
        mode = generator.choice(["stock", "tuned", "external", "mapped", "prepacked", "planned", "ort"])
        sizes(measurement(phases, mode=mode), expected, mode)  # type: ignore[arg-type]


def test_without_the_model_the_runtime_tells() -> None:
    counted = measurement(runtime=runtime(packed=3 * MIB, used=23 * MIB), outputs=4 * MIB)
    expected = expected_without_model(counted)
    assert expected["weights"] == 2 * MIB and expected["packed copies"] == 3 * MIB
    assert expected["activations"] == 16 * MIB and expected["outputs"] == 4 * MIB
    # Of what the runtime did not count: the file, and what the first run and later ones added.
    expected = expected_without_model(measurement())
    assert expected["weights"] == 20 * MIB and expected["activations"] == 20 * MIB and expected["pattern"] == 16 * MIB


def test_what_the_runtime_counted_completes_what_is_on_paper() -> None:
    counted = measurement(runtime=runtime(used=30 * MIB, held=32 * MIB))
    paper = {"activations": 10 * MIB, "outputs": 5 * MIB}
    assert with_counted(paper, counted, complete=True)["arena slack"] == 17 * MIB
    unknown = with_counted(paper, counted, complete=False)
    assert unknown["activations"] == 25 * MIB and unknown["arena slack"] == 2 * MIB
    assert with_counted(paper, measurement(), complete=False)["activations"] == 10 * MIB


def test_a_measurement_without_a_look_into_memory_cannot_be_explained() -> None:
    with pytest.raises(RuntimeUnsupported, match="no phase 'load'"):
        sizes(measurement({name: STOCK[name] for name in ("start", "import", "inputs")}), EXPECTED)


def test_packed_copies_are_what_was_counted_where_that_is_less_than_on_paper() -> None:
    counted = measurement(runtime=runtime(packed=3 * MIB))
    paper = {"packed copies": 5 * MIB, "weights": MIB}
    assert with_packed(paper, counted, "stock") == {"packed copies": 3 * MIB, "weights": MIB}
    assert with_packed({"packed copies": MIB}, counted, "planned") == {"packed copies": MIB}
    # Those of a package are no part of the count, and without a count there is only the paper.
    assert with_packed(paper, counted, "prepacked") == with_packed(paper, measurement(), "stock") == paper
