"""Each rule finds what it is for, and says nothing where that is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import onnxmem.explaining.findings as rules
from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.explaining.findings import RULES, findings_of
from onnxmem.prediction.predict import Subject
from tests.unit.explaining.samples import MIB, STOCK, explained, runtime, subject, value

HIGH_LOAD = {**STOCK, "load": (42.0, 0.0, 62.0, 14.0, 100.0)}
WIDE = np.arange(1 << 18, dtype=np.float32).reshape(512, 512)


def _wide(dtype: type, *, twice: bool = False) -> Subject:
    """x · a · b, with matrices of that type; `twice`: of equal contents."""
    weights: dict[str, np.ndarray[Any, Any]] = {
        "a": WIDE.astype(dtype),
        "b": WIDE.astype(dtype) if twice else WIDE.astype(dtype) + 1,
    }
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"])]
    return subject(nodes, [value("x", 1, 512, kind=kind)], [value("y", 1, 512, kind=kind)], weights)


def _given_away(both: bool) -> Subject:
    """An intermediate tensor of 2 MiB, which is an output or not."""
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("ReduceMean", ["h"], ["y"])]
    outputs = [value("y", 1, 1), *([value("h", 1, 1 << 19)] if both else [])]
    return subject(nodes, [value("x", 1, 1 << 19)], outputs)


def _tensors(count: int) -> Subject:
    """So many tensors of 8 MiB that are alive at once: they are added up."""
    names = [f"t{k}" for k in range(count)]
    nodes = [helper.make_node("Expand", ["x", "shape"], [name]) for name in names]
    nodes += [helper.make_node("Sum", names, ["s"]), helper.make_node("ReduceMean", ["s"], ["y"])]
    return subject(nodes, [value("x", 1, 256)], [value("y", 1, 1)], {"shape": np.array([8192, 256])})


def _growing(dim: str | int) -> Subject:
    """A tensor whose size is a free dimension, or not."""
    nodes = [helper.make_node("Exp", ["x"], ["h"]), helper.make_node("ReduceMean", ["h"], ["y"])]
    given = {dim: 4096} if isinstance(dim, str) else {}
    return subject(nodes, [value("x", dim, 512)], [value("y", 1, 1)], dims=given)


def _image(window: int) -> Subject:
    """Two images of 16 MiB, alive at once, and what is left of the second when so much becomes one number."""
    weights = {"a": np.ones((16, 3, 3, 3), np.float32), "b": np.ones((16, 16, 3, 3), np.float32)}
    nodes = [
        helper.make_node("Conv", [*names], [made], pads=[1, 1, 1, 1]) for names, made in (("xa", "h"), ("hb", "i"))
    ]
    sides = [window, window]
    nodes += [helper.make_node("MaxPool", ["i"], ["y"], kernel_shape=sides, strides=sides)]
    left = 512 // window
    return subject(nodes, [value("x", 1, 3, 512, 512)], [value("y", 1, 16, left, left)], weights)


def _rows(axes: list[int]) -> Subject:
    """Rows of 16 KiB, 512 of them, with a mean of each or of all."""
    nodes = [helper.make_node("Exp", ["x"], ["h"]), helper.make_node("ReduceMean", ["h"], ["y"], axes=axes)]
    return subject(nodes, [value("x", "n", 4096)], [value("y", "n" if axes == [1] else 1, 1)], dims={"n": 512})


CASES: dict[str, tuple[Callable[[], Explained], Callable[[], Explained]]] = {
    "arena_slack": (
        lambda: explained({"arena slack": 5, "activations": 20}, mode="tuned"),
        lambda: explained({"arena slack": 5}, mode="planned"),
    ),
    "batch": (
        lambda: explained(subject=_rows([1]), mode="planned"),
        lambda: explained(subject=_rows([0, 1]), mode="planned"),
    ),
    "duplicates": (
        lambda: explained(subject=_wide(np.float32, twice=True)),
        lambda: explained(subject=_wide(np.float32)),
    ),
    "dynamic_growth": (
        lambda: explained(subject=_growing("rows"), dims={"rows": 4096}),
        lambda: explained(subject=_growing(4096)),
    ),
    "float64": (lambda: explained(subject=_wide(np.float64)), lambda: explained(subject=_wide(np.float32))),
    "heap_retention": (
        lambda: explained({"kept by the heap": 9}),
        lambda: explained({"kept by the heap": 9}, mode="tuned"),
    ),
    "load_peak": (lambda: explained(phases=HIGH_LOAD), lambda: explained(phases=STOCK)),
    "one_tensor": (
        lambda: explained(subject=_tensors(1)),
        lambda: explained(subject=_tensors(4)),
    ),
    "ort_copies": (
        lambda: explained({}, phases=HIGH_LOAD, mode="ort", runtime=runtime(packed=4 * MIB)),
        lambda: explained({}, phases=HIGH_LOAD, mode="ort-mapped"),
    ),
    "outputs": (lambda: explained({}, outputs=60 * MIB), lambda: explained({}, outputs=2 * MIB)),
    "packed_twice": (
        lambda: explained({"packed copies": 30}, mode="external"),
        lambda: explained({"packed copies": 30}, mode="prepacked"),
    ),
    "pattern": (
        lambda: explained({"pattern": 12, "activations": 20}),
        lambda: explained({"activations": 20}),
    ),
    "private_weights": (
        lambda: explained({"weights": 40, "packed copies": 10}, mode="planned"),
        lambda: explained({"weights": 40, "packed copies": 10}, mode="mapped"),
    ),
    "reuse": (lambda: explained({"reuse": 6}), lambda: explained({"reuse": 6}, mode="tuned")),
    "scratch": (
        lambda: explained({"scratch": 8}, runtime=runtime(scratch=8 * MIB), subject=_threads(4)),
        lambda: explained({"scratch": 8}, runtime=runtime(scratch=8 * MIB), subject=_threads(1)),
    ),
    "tiles": (
        lambda: explained(subject=_image(8), mode="planned"),
        lambda: explained(subject=_tensors(1), mode="planned"),
    ),
    "unasked_outputs": (lambda: explained(subject=_given_away(True)), lambda: explained(subject=_given_away(False))),
}
SAVINGS = {"arena_slack": 5 - 3.5, "duplicates": 1, "float64": 2, "heap_retention": 9, "outputs": 60,
           "packed_twice": 30, "pattern": 12 - 3.5, "private_weights": 50, "reuse": 6, "scratch": 6,
           "unasked_outputs": 2, "one_tensor": 4}  # fmt: skip


def _threads(count: int) -> Subject:
    return subject([helper.make_node("Relu", ["x"], ["y"])], [value("x", 1, 8)], [value("y", 1, 8)], threads=count)


def test_every_rule_is_tried_and_asked() -> None:
    files = {path.stem for path in Path(str(rules.__file__)).parent.glob("*.py")} - {"__init__"}
    assert files == CASES.keys() == {rule.__module__.rpartition(".")[2] for rule in RULES}


def _ask(name: str, case: Explained) -> Finding | None:
    return next(rule for rule in RULES if rule.__module__.endswith(f".{name}"))(case)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_finds_what_it_is_for(name: str) -> None:
    found = _ask(name, CASES[name][0]())
    assert found is not None and found.rule == name
    assert found.saving >= MIB and found.command and found.advice
    assert found.saving == SAVINGS.get(name, found.saving / MIB) * MIB
    assert any(letter.isdigit() for letter in found.evidence) and found.evidence.endswith(".")
    assert Finding.from_document(found.document()) == found


@pytest.mark.parametrize("name", CASES)
def test_a_rule_says_nothing_where_it_does_not_apply(name: str) -> None:
    assert _ask(name, CASES[name][1]()) is None


def test_outputs_of_planned_runs_are_not_copied_and_binding_them_would_not_help() -> None:
    found = _ask("outputs", explained({}, outputs=60 * MIB, mode="planned"))
    assert found is not None and "without a copy" in found.evidence
    assert "of the peak" not in found.evidence and "bind" not in found.advice + found.command


def test_the_largest_certain_saving_comes_first() -> None:
    case = explained({"pattern": 8, "kept by the heap": 20, "arena slack": 0.5, "weights": 80})
    found = findings_of(case)
    assert [finding.rule for finding in found] == ["heap_retention", "pattern", "private_weights"]
    assert all("--mode planned" in finding.command for finding in found[:2])


def test_savings_of_runs_wait_for_the_end_of_loading_where_that_is_the_peak() -> None:
    """Loading reached 121 MiB and running 156: the first may save 30 MiB of the peak, the second 40 only later."""
    assert [f.when for f in findings_of(explained({"pattern": 30}))] == [""]
    assert [f.when for f in findings_of(explained({"pattern": 40}))] == ["once it is loaded"]


def test_what_planning_costs_is_taken_off_once() -> None:
    found = findings_of(explained({"pattern": 8, "kept by the heap": 20, "reuse": 4}))
    assert sum(finding.saving for finding in found) == pytest.approx((32 - 3.5) * MIB, abs=3)


def test_little_waste_is_no_reason_to_plan() -> None:
    found = findings_of(explained({"pattern": 1.2, "kept by the heap": 9}))
    assert all("--mode tuned" in finding.command for finding in found)


def test_commands_feed_the_model_in_the_same_way() -> None:
    case = explained({"pattern": 9}, shapes={"x": (1, 3)}, dims={}, inputs="my feeds.npz", threads=2)
    (found,) = findings_of(case)
    expected = "onnxmem measure gone.onnx --shape x=1x3 --inputs 'my feeds.npz' --threads 2 --mode planned"
    assert found.command == expected
    case = explained({"pattern": 9}, ranges={"ids": (0.0, 1000003.0), "x": (-0.5, 0.12345678), "y": (0.0, 30522.0)})
    assert "--range ids=0:1000003.0 --range x=-0.5:0.12345678 --range y=0:30522 " in findings_of(case)[0].command
